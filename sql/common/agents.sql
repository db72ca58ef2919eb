-- Agents: one row an agent, trunk or fork.

-- name: agent_get :one Agent
-- One agent by id.
select * from main.agents where agent_id = :agent_id;

-- name: agent_list :many Agent
-- Agents of one session, or of all, by session, agent index and fork.
select * from main.agents
where cast(:session_id as text) is null or session_id = :session_id
order by session_id, agent_idx, fork_idx
limit :limit offset :offset;

-- name: agent_ids :many text
-- The ids of a session's agents, those without a row included, by agent index and fork; their prompts and tools, which may be large,
-- are not read. :agent_idx takes only those of this index, :forks = 0 leaves forks out.
select agent_id from main.session_agents
where session_id = :session_id
    and (cast(:agent_idx as integer) is null or agent_idx = :agent_idx)
    and (cast(:forks as integer) = 1 or fork_idx <= 1)
order by agent_idx, fork_idx
limit :limit;

-- name: agent_add :one Agent
-- Add an agent; no row when the id is taken.
insert into main.agents (agent_id, session_id, agent_idx, fork_idx, forked_at, cwd, prompt_id, prompt_args, system_prompt,
    tool_definitions, mcp_servers, request_params, model_identifier, status, created_at)
values (:agent_id, :session_id, :agent_idx, :fork_idx, :forked_at, :cwd, :prompt_id, :prompt_args, :system_prompt,
    :tool_definitions, :mcp_servers, :request_params, :model_identifier, :status, :created_at)
on conflict (agent_id) do nothing
returning *;

-- name: agent_fork :one Agent
-- Add a fork of one agent under the next free fork index; everything but its place and anchor is the parent's.
-- The anchor is :at, or the newest message in the parent's view. A repeat makes another fork. No row when the parent is
-- unknown, or when another fork took the index first.
insert into main.agents (agent_id, session_id, agent_idx, fork_idx, forked_at, cwd, prompt_id, prompt_args, system_prompt,
    tool_definitions, mcp_servers, request_params, model_identifier, status, created_at, forked_from)
select p.session_id || '-' || p.agent_idx || '-' || n.fork_idx, p.session_id, p.agent_idx, n.fork_idx,
    cast(coalesce(cast(:at as bigint), v.newest, cast(p.forked_at as bigint), 0) as text), p.cwd, p.prompt_id, p.prompt_args, p.system_prompt,
    p.tool_definitions, p.mcp_servers, p.request_params, p.model_identifier, p.status, :created_at,
    case when p.fork_idx > 1 then p.agent_id end
from main.agents p
join (
    select max(f.fork_idx) + 1 as fork_idx from main.agents f
    where f.session_id = :session_id and f.agent_idx = :agent_idx
) n on true
join (
    select max(m.id) as newest from main.messages m
    where m.agent_id = :agent_id
) v on true
where p.agent_id = :agent_id
on conflict (agent_id) do nothing
returning *;

-- name: agent_newest_message :one int
-- The newest message of the store: no fork can begin after it. 0 without messages.
select coalesce(max(id), 0) from main.messages;

-- name: agent_max_idx :one int
-- The highest agent index of a session within one fork, or over all forks when :fork_idx is null.
select max(agent_idx) from main.agents
where session_id = :session_id and (cast(:fork_idx as integer) is null or fork_idx = :fork_idx);

-- name: agent_max_fork :one int
-- The highest fork index of one agent of a session.
select max(fork_idx) from main.agents where session_id = :session_id and agent_idx = :agent_idx;

-- name: agent_set_servers :many text
-- Set the MCP servers of one agent, overwriting what was there; returns its id.
update main.agents set mcp_servers = :servers where agent_id = :agent_id returning agent_id;

-- name: agent_servers :one text
-- The MCP servers of a session within one fork: those of the newest agent that was ever given any.
-- A JSON null, which crow-cli writes for "never given", counts as none.
select cast(mcp_servers as text) from main.agents
where session_id = :session_id and fork_idx = :fork_idx and mcp_servers is not null and cast(mcp_servers as text) <> 'null'
order by agent_idx desc
limit 1;

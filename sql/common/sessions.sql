-- Sessions: one summary row each, kept true by triggers on agents and by whoever adds messages.

-- name: session_add_messages :none
-- Count :messages new messages of one session, the newest at :last.
-- :trunk and :first are 1 when their agent is on the trunk, and is agent 1 of it. :title_first and :title_second are the titles
-- that the first and the second of them would give: the second message of agent 1 gives the session's.
insert into main.session_summaries as s
    (session_id, all_activity, all_messages, trunk_activity, trunk_messages, first_messages, title)
values (:session_id, :last, :messages, case when :trunk = 1 then :last else '' end, cast(:messages as bigint) * :trunk, cast(:messages as bigint) * :first,
    case when :first = 1 then :title_second end)
on conflict (session_id) do update set
    all_activity = case when s.all_messages = 0 or s.all_activity < excluded.all_activity
        then excluded.all_activity else s.all_activity end,
    all_messages = s.all_messages + excluded.all_messages,
    trunk_activity = case when :trunk = 1 and (s.trunk_messages = 0 or s.trunk_activity < excluded.trunk_activity)
        then excluded.trunk_activity else s.trunk_activity end,
    trunk_messages = s.trunk_messages + excluded.trunk_messages,
    first_messages = s.first_messages + excluded.first_messages,
    title = coalesce(s.title, case when :first = 1 and s.first_messages = 0 then excluded.title
        when :first = 1 and s.first_messages = 1 then :title_first end);

-- name: session_exists :one int
-- Whether there is a session of this name, or (when :agent_id is given) exactly this agent; an agent is there when it has a row
-- or messages.
select 1
where (cast(:agent_id as text) is null and exists (select 1 from main.session_agents a where a.session_id = :session_id))
    or exists (select 1 from main.session_agents a where a.agent_id = :agent_id);

-- name: session_title :none
-- Give a session a title, replacing the one it has.
update main.session_summaries set title = :title where session_id = :session_id;

-- name: session_get :one SessionInfo
-- One session with every fork counted.
select session_id, all_activity as last_activity, all_messages as message_count, all_agents as agent_count,
    model_identifier, cwd, title
from main.session_summaries
where session_id = :session_id;

-- name: session_summary_delete :none
-- Forget a session's summary.
delete from main.session_summaries where session_id = :session_id;

-- name: session_delete_messages :many int
-- Delete the messages of every agent of a session.
delete from main.messages where agent_id in (select agent_id from main.session_agents where session_id = :session_id) returning id;

-- name: session_delete_agents :many text
-- Delete every agent of a session, all indexes and forks.
delete from main.agents where session_id = :session_id returning agent_id;

-- name: session_delete_tasks :many text
-- Delete the tasks that a session or one of its agents owned.
delete from main.tasks
where owner_session = :session_id or owner_session in (select agent_id from main.session_agents where session_id = :session_id)
returning task_id;

-- name: session_delete_deliveries :many int
-- Delete the mail addressed to a session or one of its agents.
delete from main.task_deliveries
where session_id = :session_id or session_id in (select agent_id from main.session_agents where session_id = :session_id)
returning id;

-- name: session_strays :many text
-- The agents of a session that have messages and no row.
select agent_id from main.stray_agents where session_id = :session_id;

-- name: session_delete_strays :none
-- Forget the agents of a session that have no row.
delete from main.stray_agents where session_id = :session_id;

-- name: session_wrong :many text
-- Sessions whose summary is not what counting finds, :most at most. Reads the stamps of all messages.
select f.session_id from main.session_facts f left join main.session_summaries s on s.session_id = f.session_id
where s.session_id is null or s.all_activity <> f.all_activity or s.all_messages <> f.all_messages
    or s.all_agents <> f.all_agents or s.trunk_activity <> f.trunk_activity or s.trunk_messages <> f.trunk_messages
    or s.trunk_agents <> f.trunk_agents or s.first_messages <> f.first_messages
    or s.model_identifier <> f.model_identifier or s.cwd <> f.cwd
union all
select s.session_id from main.session_summaries s
where not exists (select 1 from main.session_agents a where a.session_id = s.session_id)
limit :most;

-- name: session_strays_wrong :many text, int
-- Agents of which it has to be noted (1) that they have messages and no row, or forgotten (0), :most at most.
select m.agent_id, 1 from (select distinct agent_id from main.messages) m
where not exists (select 1 from main.session_agents a where a.agent_id = m.agent_id)
union all
select s.agent_id, 0 from main.stray_agents s
where exists (select 1 from main.agents a where a.agent_id = s.agent_id)
    or not exists (select 1 from main.messages m where m.agent_id = s.agent_id)
limit :most;

-- name: session_stray_drop :none
-- Forget an agent without a row.
delete from main.stray_agents where agent_id = :agent_id;

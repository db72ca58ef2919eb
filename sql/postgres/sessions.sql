-- Sessions: how a summary is made true again.

-- name: session_mend :none
-- Count a session again; the title it has stays.
-- differs: a function does it, which triggers call, too.
select main.crowmem_session_mend(:session_id);

-- name: session_stray_note :none
-- Note that an agent has messages and no row, unless it has one.
-- differs: a function reads the id.
insert into main.stray_agents (agent_id, session_id, agent_idx, fork_idx)
select cast(:agent_id as text), p.session_id, p.agent_idx, p.fork_idx from main.crowmem_place(:agent_id) p
where not exists (select 1 from main.agents where agent_id = :agent_id)
on conflict (agent_id) do nothing;

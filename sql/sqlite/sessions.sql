-- Sessions: how a summary is made true again.

-- name: session_mend :none
-- Count a session again; the title it has stays.
-- differs: the view's trigger does it, which other triggers use, too.
insert into session_mend (session_id) values (:session_id);

-- name: session_stray_note :none
-- Note that an agent has messages and no row, unless it has one.
-- differs: the table's columns read the id.
insert into stray_agents (agent_id) select :agent_id where not exists (select 1 from agents where agent_id = :agent_id)
on conflict (agent_id) do nothing;

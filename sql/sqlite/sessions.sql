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

-- name: session_unnamed :many text, text
-- Of some sessions those without a title whose second message another program wrote, with that message, which is to name them:
-- it is not indexed yet, or it would have given its title then.
-- differs: a list comes as a JSON array.
-- plan: ix_messages_agent_id
select s.session_id, m.data
from session_summaries s
join session_agents a on a.session_id = s.session_id and a.agent_idx = 1 and a.fork_idx = 1
join messages m on m.id = (
    select n.id from messages n where n.agent_id = a.agent_id order by n.id limit 1 offset 1)
where s.session_id in (select value from json_each(:session_ids)) and s.title is null and s.first_messages > 1 and m.indexed = 0
order by m.id;

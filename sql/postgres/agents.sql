-- Agents: what has to keep an order of locks.

-- name: agent_set_model :many text
-- Set the model of one agent; returns its id. The session's summary, which the change alters, is locked before the agent's row: a
-- deletion locks them in that order, and the two would wait for each other.
-- differs: it locks the summary.
with held as (
    select s.session_id from main.session_summaries s
    where s.session_id = (select a.session_id from main.agents a where a.agent_id = :agent_id) for update
)
update main.agents set model_identifier = :model
where agent_id = :agent_id and (select count(*) from held) >= 0 returning agent_id;

-- Agents: what PostgreSQL has to do in another way.

-- name: agent_set_model :many text
-- Set the model of one agent; returns its id.
-- differs: one writes at a time, so there is no order of locks to keep.
update agents set model_identifier = :model where agent_id = :agent_id returning agent_id;

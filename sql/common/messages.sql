-- Messages: rows of the crow format, read by agent, by session, and in the order they were written.

-- name: message_get :one Message
-- One message by id.
select * from main.messages where id = :id;

-- name: message_load :many text
-- The messages of one agent's own rows, oldest first, as the text stored.
select data from main.messages where agent_id = :agent_id order by id;

-- name: message_recent :many text
-- The newest assistant messages of one agent's own rows, newest first.
select data from main.messages where agent_id = :agent_id and role = 'assistant' order by id desc limit :limit;

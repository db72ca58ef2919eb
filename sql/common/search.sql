-- Search: statements that both databases take.

-- name: search_second :one text
-- The second message of a session's first agent, which names a session that has no title.
select cast(m.data as text) from main.messages m
where m.agent_id = :agent_id
    and exists (select 1 from main.session_summaries s where s.session_id = :session_id and s.title is null)
order by m.id limit 1 offset 1;

-- name: search_sessions :many text
-- Sessions with an agent of a working folder and model, a few.
select distinct session_id from main.agents
where (cast(:cwd as text) is null or cwd = :cwd) and (cast(:model as text) is null or model_identifier = :model)
limit :most;

-- name: search_total :one int, int
-- How many messages there are, and the newest id.
select count(*), coalesce(max(id), 0) from main.messages;

-- name: search_lagging :one int
-- How many messages of other programs are not indexed yet, the counting ending at :most.
select count(*) from (select 1 from main.messages where indexed = 0 limit :most) waiting;

-- name: search_after :many int, text, text, text, text, int, int
-- The messages after an id, in order: id, agent id, role, stamp, data, injected, indexed.
select id, agent_id, role, created_at, cast(data as text), injected, indexed from main.messages
where id > :after_id order by id limit :most;

-- name: search_gone :many int
-- Deleted messages that are not yet taken out of the index.
select id from main.message_index_gone;

-- name: search_setting_drop :none
-- Forget a setting.
delete from main.crowmem_settings where name = :name;

-- Messages: rows of the crow format, read by agent, by session, and in the order they were written.

-- name: message_put :one int
-- Append one message with its only index row and its session's summary, in one statement; returns its id.
-- differs: the view's trigger writes the three rows, and the id, which the trigger could not tell, is worked out before. A
-- message without words or with more than one index row takes message_add, message_index_add and session_add_messages.
insert into message_intake
    (id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, indexed, injected,
    text, scope, session_id, trunk, first, title)
values (
    max(coalesce((select seq from sqlite_sequence where name = 'messages'), 0), coalesce((select max(id) from messages), 0)) + 1,
    :agent_id, :fork_idx, :created_at, :data, :role, :prompt_tokens, :completion_tokens, :total_tokens, :indexed, :injected,
    :text, :scope, :session_id, :trunk, :first, :title)
returning id;

-- name: message_add :many int
-- Append one message, indexed by us; returns its id.
-- only: sqlite; its index rows and its session's summary are statements of their own in the same transaction, where PostgreSQL
-- takes message_put and message_put_many.
insert into messages (agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, indexed, injected)
values (:agent_id, :fork_idx, :created_at, :data, :role, :prompt_tokens, :completion_tokens, :total_tokens, :indexed, :injected)
returning id;

-- name: message_view :many text
-- A fork's view: its parent's rows up to the anchor, the parent's own view included, then its own.
-- differs: the anchor is text, which SQLite's cast reads whatever it holds.
with recursive line (agent_id, upto, depth) as (
    select cast(:agent_id as text), 9223372036854775807, 0
    union all
    select coalesce(a.forked_from, t.agent_id), min(line.upto, coalesce(cast(a.forked_at as integer), 9223372036854775807)), depth + 1
    from line
    join agents a on a.agent_id = line.agent_id and a.fork_idx > 1
    left join agents t on t.session_id = a.session_id and t.agent_idx = a.agent_idx and t.fork_idx = 1
    where depth < 1000
)
select m.data from line join messages m on m.agent_id = line.agent_id and m.id <= line.upto
order by line.depth desc, m.id;

-- name: message_query :many Message
-- Messages of the whole store by any mix of filters, oldest first.
-- differs: lists come as JSON arrays.
select m.* from messages m
where m.id > :after_id
    and (:agent_idx is null or m.agent_id in (select agent_id from session_agents where agent_idx = :agent_idx))
    and (:roles is null or m.role in (select value from json_each(:roles)))
    and (:after is null or m.created_at > :after)
    and (:before is null or m.created_at < :before)
    and (:include_forks or m.fork_idx <= 1)
    and (:injected or m.injected = 0)
order by m.id
limit :limit offset :offset;

-- name: message_query_newest :many Message
-- As message_query, newest first; :after_id then bounds from above.
-- differs: lists come as JSON arrays.
select m.* from messages m
where m.id < :after_id
    and (:agent_idx is null or m.agent_id in (select agent_id from session_agents where agent_idx = :agent_idx))
    and (:roles is null or m.role in (select value from json_each(:roles)))
    and (:after is null or m.created_at > :after)
    and (:before is null or m.created_at < :before)
    and (:include_forks or m.fork_idx <= 1)
    and (:injected or m.injected = 0)
order by m.id desc
limit :limit offset :offset;

-- name: message_query_some :many Message
-- As message_query, of one session's agents, or of those named: it costs what they hold, not what the store holds.
-- Without the index's name the planner walks all messages in the order of their ids.
-- differs: lists come as JSON arrays.
-- plan: ix_messages_agent_id
select m.* from messages m indexed by ix_messages_agent_id
where m.agent_id in (
        select a.agent_id from session_agents a
        where a.session_id = :session_id and (:agent_ids is null or a.agent_id in (select value from json_each(:agent_ids)))
            and (:agent_idx is null or a.agent_idx = :agent_idx)
        union all
        select g.value from json_each(:agent_ids) g
        where :session_id is null and (:agent_idx is null or exists (
            select 1 from session_agents a where a.agent_id = g.value and a.agent_idx = :agent_idx)))
    and m.id > :after_id
    and (:roles is null or m.role in (select value from json_each(:roles)))
    and (:after is null or m.created_at > :after)
    and (:before is null or m.created_at < :before)
    and (:include_forks or m.fork_idx <= 1)
    and (:injected or m.injected = 0)
order by m.id
limit :limit offset :offset;

-- name: message_query_some_newest :many Message
-- As message_query_some, newest first; :after_id then bounds from above.
-- differs: lists come as JSON arrays.
-- plan: ix_messages_agent_id
select m.* from messages m indexed by ix_messages_agent_id
where m.agent_id in (
        select a.agent_id from session_agents a
        where a.session_id = :session_id and (:agent_ids is null or a.agent_id in (select value from json_each(:agent_ids)))
            and (:agent_idx is null or a.agent_idx = :agent_idx)
        union all
        select g.value from json_each(:agent_ids) g
        where :session_id is null and (:agent_idx is null or exists (
            select 1 from session_agents a where a.agent_id = g.value and a.agent_idx = :agent_idx)))
    and m.id < :after_id
    and (:roles is null or m.role in (select value from json_each(:roles)))
    and (:after is null or m.created_at > :after)
    and (:before is null or m.created_at < :before)
    and (:include_forks or m.fork_idx <= 1)
    and (:injected or m.injected = 0)
order by m.id desc
limit :limit offset :offset;

-- name: message_query_agent :many Message
-- As message_query, of one agent, whose own rows an index holds in their order: a page costs what it holds.
-- differs: lists come as JSON arrays.
-- plan: ix_messages_agent_id
select m.* from messages m
where m.agent_id = :agent_id and m.id > :after_id
    and (:roles is null or m.role in (select value from json_each(:roles)))
    and (:after is null or m.created_at > :after)
    and (:before is null or m.created_at < :before)
    and (:include_forks or m.fork_idx <= 1)
    and (:injected or m.injected = 0)
order by m.id
limit :limit offset :offset;

-- name: message_query_agent_newest :many Message
-- As message_query_agent, newest first; :after_id then bounds from above.
-- differs: lists come as JSON arrays.
-- plan: ix_messages_agent_id
select m.* from messages m
where m.agent_id = :agent_id and m.id < :after_id
    and (:roles is null or m.role in (select value from json_each(:roles)))
    and (:after is null or m.created_at > :after)
    and (:before is null or m.created_at < :before)
    and (:include_forks or m.fork_idx <= 1)
    and (:injected or m.injected = 0)
order by m.id desc
limit :limit offset :offset;

-- name: message_horizon :one int, text
-- The newest id visible, and the transactions that were writing messages after that look: each may hold a smaller id.
-- differs: one writer at a time, so ids become visible in their order and nobody holds a smaller one.
select coalesce(max(id), 0), '' from messages;

-- name: message_follow :many Message
-- Messages after an id and up to another, oldest first.
select m.* from messages m
where m.id > :after_id and m.id <= :upto
order by m.id
limit :limit;

-- name: message_follow_session :many Message
-- As message_follow, of one session's agents.
-- plan: ix_messages_agent_id
-- differs: the index has to be named; see message_query_some.
select m.* from messages m indexed by ix_messages_agent_id
where m.agent_id in (select agent_id from session_agents where session_id = :session_id)
    and m.id > :after_id and m.id <= :upto
order by m.id
limit :limit;

-- name: message_index_add :none
-- Add one index row of one message. It replaces one that a message of the same number left, which another program deleted:
-- tables that another program made give the newest number out again.
-- differs: the scope words are a column of their own, and FTS5 counts the words itself.
insert or replace into message_index (rowid, text, scope) values (:id << 6 | :doc, :text, :scope);

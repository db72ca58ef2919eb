-- Imports: how far other programs' histories were read, and which messages came of them.

-- name: import_lock :many int
-- Hold these sessions against other importers until the transaction ends; they are taken in the order given.
-- differs: transactions run beside each other here.
select 1 from unnest(cast(:session_ids as text[])) with ordinality as u (session_id, place),
    lateral (select pg_advisory_xact_lock(hashtextextended('crowmem import ' || session_id, 0))) l
order by place;

-- name: import_source_put :none
-- Note how far a file was read.
-- differs: times are timestamps.
insert into main.import_sources
    (path, format, session_id, size_bytes, modified_us, offset_bytes, lines, state, fingerprint, imported_at)
values (:path, :format, :session_id, :size_bytes, :modified_us, :offset_bytes, :lines, :state, :fingerprint,
    clock_timestamp())
on conflict (path) do update set
    format = excluded.format, session_id = excluded.session_id, size_bytes = excluded.size_bytes,
    modified_us = excluded.modified_us, offset_bytes = excluded.offset_bytes, lines = excluded.lines,
    state = excluded.state, fingerprint = excluded.fingerprint, imported_at = excluded.imported_at;

-- name: import_keys_known :many int, int, int
-- Key, message id and parts of those keys of an agent that are known.
-- differs: lists come as arrays.
select key, message_id, parts from main.import_keys where agent = :agent and key = any(cast(:keys as bigint[]));

-- name: import_message_add :many int
-- Append one message of another program, under :id or (null) the next number; its id. It is indexed before the next search.
-- differs: the data column is json, and a number is drawn by hand.
insert into main.messages
    (id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, indexed, injected)
values (coalesce(cast(:id as bigint), nextval(pg_get_serial_sequence('main.messages', 'id'))), :agent_id, :fork_idx, :created_at, cast(cast(:data as text) as json), :role,
    :prompt_tokens, :completion_tokens, :total_tokens, 0, :injected)
returning id;

-- name: import_message_grow :none
-- A message that has grown since it was imported: the same row with more in it.
-- differs: the data column is json.
update main.messages set data = cast(cast(:data as text) as json), role = :role, injected = :injected, indexed = 0,
    prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens, total_tokens = :total_tokens
where id = :message_id;

-- name: import_agents_known :many text, text, int, text, text, text
-- The agents of some imported sessions: session, name, number, agent id, and the model and folder it was seen with last.
-- differs: lists come as arrays.
select i.session_id, i.name, i.id, i.agent_id, coalesce(a.model_identifier, ''), coalesce(a.cwd, '')
from main.import_agents i left join main.agents a on a.agent_id = i.agent_id
where i.session_id = any(cast(:session_ids as text[]))
order by i.id;

-- name: import_sessions_known :many text, text
-- Those of some sessions that were imported before, each with its title.
-- differs: lists come as arrays.
select session_id, title from main.import_sessions where session_id = any(cast(:session_ids as text[]));

-- name: import_sequence :one int
-- Let new messages be numbered after those that brought their own numbers.
-- only: postgres; SQLite goes on after the highest by itself.
select setval(pg_get_serial_sequence('main.messages', 'id'), greatest((select max(id) from main.messages), 1));

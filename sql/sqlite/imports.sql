-- Imports: how far other programs' histories were read, and which messages came of them.

-- name: import_lock :many int
-- Hold these sessions against other importers until the transaction ends.
-- differs: the transaction is the only writer.
select 1;

-- name: import_source_put :none
-- Note how far a file was read.
-- differs: times are text.
insert into import_sources
    (path, format, session_id, size_bytes, modified_us, offset_bytes, lines, state, fingerprint, imported_at)
values (:path, :format, :session_id, :size_bytes, :modified_us, :offset_bytes, :lines, :state, :fingerprint,
    strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'))
on conflict (path) do update set
    format = excluded.format, session_id = excluded.session_id, size_bytes = excluded.size_bytes,
    modified_us = excluded.modified_us, offset_bytes = excluded.offset_bytes, lines = excluded.lines,
    state = excluded.state, fingerprint = excluded.fingerprint, imported_at = excluded.imported_at;

-- name: import_keys_known :many int, int, int
-- Key, message id and parts of those keys of an agent that are known.
-- differs: lists come as JSON arrays.
select key, message_id, parts from import_keys where agent = :agent and key in (select value from json_each(:keys));

-- name: import_message_add :many int
-- Append one message of another program, under :id or (null) the next number; its id. It is indexed before the next search.
-- differs: a null takes the next number.
insert into messages
    (id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, indexed, injected)
values (:id, :agent_id, :fork_idx, :created_at, :data, :role,
    :prompt_tokens, :completion_tokens, :total_tokens, 0, :injected)
returning id;

-- name: import_message_grow :none
-- A message that has grown since it was imported: the same row with more in it.
update messages set data = :data, role = :role, injected = :injected, indexed = 0, prompt_tokens = :prompt_tokens,
    completion_tokens = :completion_tokens, total_tokens = :total_tokens
where id = :message_id;

-- name: import_agents_known :many text, text, int, text, text, text
-- The agents of some imported sessions: session, name, number, agent id, and the model and folder it was seen with last.
-- differs: lists come as JSON arrays.
select i.session_id, i.name, i.id, i.agent_id, coalesce(a.model_identifier, ''), coalesce(a.cwd, '')
from import_agents i left join agents a on a.agent_id = i.agent_id
where i.session_id in (select value from json_each(:session_ids))
order by i.id;

-- name: import_sessions_known :many text, text
-- Those of some sessions that were imported before, each with its title.
-- differs: lists come as JSON arrays.
select session_id, title from import_sessions where session_id in (select value from json_each(:session_ids));

-- Copying a store into another: what differs between the dialects, which is how JSON and times are kept.

-- name: copy_agents :many text, text, int, int, text, text, text, text, text, text, text, text, text, text, text, text
-- A page of agents.
-- differs: how JSON is kept.
select agent_id, session_id, agent_idx, fork_idx, forked_at, cwd, prompt_id, prompt_args, system_prompt,
    tool_definitions, mcp_servers, request_params, model_identifier, status, created_at, forked_from
from agents where agent_id > :after order by agent_id limit :limit;

-- name: copy_agents_put :none
-- One row of agents.
-- differs: how JSON is kept.
insert into agents (agent_id, session_id, agent_idx, fork_idx, forked_at, cwd, prompt_id, prompt_args, system_prompt,
    tool_definitions, mcp_servers, request_params, model_identifier, status, created_at, forked_from)
values (:agent_id, :session_id, :agent_idx, :fork_idx, :forked_at, :cwd, :prompt_id, :prompt_args, :system_prompt,
    :tool_definitions, :mcp_servers, :request_params, :model_identifier, :status, :created_at, :forked_from)
on conflict (agent_id) do update set
    session_id = excluded.session_id, agent_idx = excluded.agent_idx, fork_idx = excluded.fork_idx, forked_at =
    excluded.forked_at, cwd = excluded.cwd, prompt_id = excluded.prompt_id, prompt_args = excluded.prompt_args,
    system_prompt = excluded.system_prompt, tool_definitions = excluded.tool_definitions, mcp_servers =
    excluded.mcp_servers, request_params = excluded.request_params, model_identifier = excluded.model_identifier, status =
    excluded.status, created_at = excluded.created_at, forked_from = excluded.forked_from;

-- name: copy_messages :many int, text, int, text, text, text, int, int, int, int
-- A page of messages.
-- differs: how JSON is kept.
select id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, injected
from messages where id > :after order by id limit :limit;

-- name: copy_messages_put :many int
-- One row of messages; its id, unless it was there. :indexed says how much of it the index has.
-- only: sqlite; PostgreSQL takes many at once.
insert into messages (id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens,
    injected, indexed)
values (:id, :agent_id, :fork_idx, :created_at, :data, :role, :prompt_tokens, :completion_tokens, :total_tokens,
    :injected, :indexed)
on conflict (id) do nothing returning id;

-- name: copy_deliveries :many int, text, text, text, text, text, text, text, int, int, int, int, text, text, text, int
-- A page of mail.
-- differs: how times are kept.
select id, session_id, task_id, priority, content, status, created_at, delivered_at, attempts, max_attempts, due_at,
    lease_token, lease_worker, last_error, dedupe_key, dead_at
from task_deliveries where id > :after order by id limit :limit;

-- name: copy_deliveries_put :none
-- One row of mail.
-- differs: how times are kept.
insert into task_deliveries (id, session_id, task_id, priority, content, status, created_at, delivered_at, attempts,
    max_attempts, due_at, lease_token, lease_worker, last_error, dedupe_key, dead_at)
values (:id, :session_id, :task_id, :priority, :content, :status, :created_at, :delivered_at, :attempts,
    :max_attempts, :due_at, :lease_token, :lease_worker, :last_error, :dedupe_key, :dead_at)
on conflict (id) do update set
    session_id = excluded.session_id, task_id = excluded.task_id, priority = excluded.priority, content =
    excluded.content, status = excluded.status, created_at = excluded.created_at, delivered_at = excluded.delivered_at,
    attempts = excluded.attempts, max_attempts = excluded.max_attempts, due_at = excluded.due_at, lease_token =
    excluded.lease_token, lease_worker = excluded.lease_worker, last_error = excluded.last_error, dedupe_key =
    excluded.dedupe_key, dead_at = excluded.dead_at;

-- name: copy_payloads :many text, int, int, text
-- A page of sessions' payloads.
-- differs: how JSON and times are kept.
select session_id, version, updated_at, payload
from session_payloads where session_id > :after order by session_id limit :limit;

-- name: copy_payloads_put :none
-- One row of sessions' payloads.
-- differs: how JSON and times are kept.
insert into session_payloads (session_id, version, updated_at, payload)
values (:session_id, :version, :updated_at, :payload)
on conflict (session_id) do update set
    version = excluded.version, updated_at = excluded.updated_at, payload = excluded.payload;

-- name: copy_tapes :many text, int, int, int, int, int
-- A page of tapes.
-- differs: how times are kept.
select tape_id, branch, length, window_start, cuts, created_at
from tapes where tape_id > :after order by tape_id limit :limit;

-- name: copy_tapes_put :none
-- One row of tapes.
-- differs: how times are kept.
insert into tapes (tape_id, branch, length, window_start, cuts, created_at)
values (:tape_id, :branch, :length, :window_start, :cuts, :created_at)
on conflict (tape_id) do update set
    branch = excluded.branch, length = excluded.length, window_start = excluded.window_start, cuts = excluded.cuts,
    created_at = excluded.created_at;

-- name: copy_tape_lines :many int, text, int, int, int, int
-- A page of what tapes were before a restore.
-- differs: how times are kept.
select line, tape_id, branch, length, window_start, left_at
from tape_lines where line > :after order by line limit :limit;

-- name: copy_tape_lines_put :none
-- One row of what tapes were before a restore.
-- differs: how times are kept.
insert into tape_lines (line, tape_id, branch, length, window_start, left_at)
values (:line, :tape_id, :branch, :length, :window_start, :left_at)
on conflict (line) do nothing;

-- name: copy_checkpoints :many text, int, text, int, text, int, int, int, text, text, text
-- A page of checkpoints.
-- differs: how JSON and times are kept.
select checkpoint_id, number, tape_id, branch, session_id, entry_count, window_start, created_at, label,
    plugin_states, extra
from checkpoints where checkpoint_id > :after order by checkpoint_id limit :limit;

-- name: copy_checkpoints_put :none
-- One row of checkpoints.
-- differs: how JSON and times are kept.
insert into checkpoints (checkpoint_id, number, tape_id, branch, session_id, entry_count, window_start, created_at,
    label, plugin_states, extra)
values (:checkpoint_id, :number, :tape_id, :branch, :session_id, :entry_count, :window_start, :created_at, :label,
    :plugin_states, :extra)
on conflict (checkpoint_id) do update set
    tape_id = excluded.tape_id, branch = excluded.branch, session_id = excluded.session_id,
    entry_count = excluded.entry_count, window_start = excluded.window_start, created_at = excluded.created_at, label =
    excluded.label, plugin_states = excluded.plugin_states, extra = excluded.extra;

-- name: copy_leases :many text, text, int, int
-- A page of leases.
-- differs: how times are kept.
select name, owner, token, expires_at
from leases where name > :after order by name limit :limit;

-- name: copy_leases_put :none
-- One row of leases.
-- differs: how times are kept.
insert into leases (name, owner, token, expires_at)
values (:name, :owner, :token, :expires_at)
on conflict (name) do update set
    owner = excluded.owner, token = excluded.token, expires_at = excluded.expires_at;

-- name: copy_import_sources :many text, text, text, int, int, int, int, text, text, text
-- A page of imported files.
-- differs: how times are kept.
select path, format, session_id, size_bytes, modified_us, offset_bytes, lines, state, fingerprint, imported_at
from import_sources where path > :after order by path limit :limit;

-- name: copy_import_sources_put :none
-- One row of imported files.
-- differs: how times are kept.
insert into import_sources (path, format, session_id, size_bytes, modified_us, offset_bytes, lines, state,
    fingerprint, imported_at)
values (:path, :format, :session_id, :size_bytes, :modified_us, :offset_bytes, :lines, :state, :fingerprint,
    :imported_at)
on conflict (path) do update set
    format = excluded.format, session_id = excluded.session_id, size_bytes = excluded.size_bytes, modified_us =
    excluded.modified_us, offset_bytes = excluded.offset_bytes, lines = excluded.lines, state = excluded.state,
    fingerprint = excluded.fingerprint, imported_at = excluded.imported_at;

-- name: copy_import_agents :many int, text, text, text
-- A page of imported agents.
-- differs: PostgreSQL numbers these rows itself unless told.
select id, session_id, name, agent_id
from import_agents where id > :after order by id limit :limit;

-- name: copy_import_agents_put :none
-- One row of imported agents.
-- differs: PostgreSQL numbers these rows itself unless told.
insert into import_agents (id, session_id, name, agent_id)
values (:id, :session_id, :name, :agent_id)
on conflict (id) do nothing;

-- name: copy_entries :many int, int, int, text, text
-- A page of tapes' entries: branch, position, handoff, draft, entry.
-- differs: how an entry's place is kept.
select id >> 32, id & 4294967295, handoff, draft_id, entry from tape_entries
where id > :after_branch << 32 | :after_position
order by id limit :limit;

-- name: copy_entries_put :none
-- One entry; an entry never changes.
-- differs: how an entry's place is kept.
insert into tape_entries (id, handoff, draft_id, entry) values (:branch << 32 | :position, :handoff, :draft_id, :entry)
on conflict (id) do nothing;

-- name: copy_counters :one int, int, int, int
-- The last numbers given out: messages, mail, branches, lease tokens. None of them may be given out again.
-- differs: counters in rows, and SQLite's own.
select coalesce((select seq from sqlite_sequence where name = 'messages'), (select max(id) from messages), 0),
    coalesce((select seq from sqlite_sequence where name = 'task_deliveries'), (select max(id) from task_deliveries), 0),
    (select last from tape_branch_ids), (select last from lease_tokens);

-- name: copy_counters_put :many int
-- Go on from these numbers, or from our own when those are larger.
-- differs: SQLite's own counters; those in rows have a statement of their own.
update sqlite_sequence set seq = max(seq, case name when 'messages' then :messages else :deliveries end)
where name in ('messages', 'task_deliveries')
returning seq;

-- name: copy_counters_rows :none
-- Go on from these numbers, or from our own when those are larger.
-- only: sqlite; PostgreSQL has sequences.
update tape_branch_ids set last = max(last, :branches);

-- name: copy_tokens_row :none
-- Go on from this token, or from our own when that is larger.
-- only: sqlite; PostgreSQL has sequences.
update lease_tokens set last = max(last, :tokens);

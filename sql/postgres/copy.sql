-- Copying a store into another: what differs between the dialects, which is how JSON and times are kept.

-- name: copy_agents :many text, text, int, int, text, text, text, text, text, text, text, text, text, text, text, text
-- A page of agents.
-- differs: how JSON is kept.
select agent_id, session_id, agent_idx, fork_idx, forked_at, cwd, prompt_id, cast(prompt_args as text), system_prompt,
    cast(tool_definitions as text), cast(mcp_servers as text), cast(request_params as text), model_identifier, status,
    created_at, forked_from
from main.agents where agent_id > :after order by agent_id limit :limit;

-- name: copy_agents_put :none
-- One row of agents.
-- differs: how JSON is kept.
insert into main.agents (agent_id, session_id, agent_idx, fork_idx, forked_at, cwd, prompt_id, prompt_args,
    system_prompt, tool_definitions, mcp_servers, request_params, model_identifier, status, created_at, forked_from)
values (:agent_id, :session_id, :agent_idx, :fork_idx, :forked_at, :cwd, :prompt_id, cast(cast(:prompt_args as text)
    as json), :system_prompt, cast(cast(:tool_definitions as text) as json), cast(cast(:mcp_servers as text) as json),
    cast(cast(:request_params as text) as json), :model_identifier, :status, :created_at, :forked_from)
on conflict (agent_id) do update set
    session_id = excluded.session_id, agent_idx = excluded.agent_idx, fork_idx = excluded.fork_idx, forked_at =
    excluded.forked_at, cwd = excluded.cwd, prompt_id = excluded.prompt_id, prompt_args = excluded.prompt_args,
    system_prompt = excluded.system_prompt, tool_definitions = excluded.tool_definitions, mcp_servers =
    excluded.mcp_servers, request_params = excluded.request_params, model_identifier = excluded.model_identifier, status =
    excluded.status, created_at = excluded.created_at, forked_from = excluded.forked_from;

-- name: copy_messages :many int, text, int, text, text, text, int, int, int, int
-- A page of messages.
-- differs: how JSON is kept.
select id, agent_id, fork_idx, created_at, cast(data as text), role, prompt_tokens, completion_tokens, total_tokens,
    injected
from main.messages where id > :after order by id limit :limit;

-- name: copy_messages_put_many :many int
-- Many messages with their index rows, in one round trip; the ids of those that were not there yet.
-- The arrays that end in _each have one item a message; :ids, :docs, :lens and :texts have one an index row.
-- only: postgres; SQLite runs copy_messages_put and message_index_add once each.
with bulk as materialized (
    select set_config('gin_pending_list_limit', '4096', true)
), added as (
    insert into main.messages (id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens,
        total_tokens, injected, indexed)
    select id, agent_id, fork_idx, created_at, cast(data as json), role, prompt_tokens, completion_tokens, total_tokens,
        injected, indexed
    from bulk, unnest(cast(:id_each as bigint[]), cast(:agent_id_each as text[]), cast(:fork_idx_each as integer[]),
        cast(:created_at_each as text[]), cast(:data_each as text[]), cast(:role_each as text[]),
        cast(:prompt_tokens_each as integer[]), cast(:completion_tokens_each as integer[]),
        cast(:total_tokens_each as integer[]), cast(:injected_each as integer[]), cast(:indexed_each as integer[]))
        as g (id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, injected,
            indexed)
    on conflict (id) do nothing returning id
), words as (
    insert into main.message_index (message_id, doc, len, tsv)
    select id, d.doc, d.len, cast(d.tsv || U&' ''\E000b' || (id >> 14) || '''' as tsvector)
    from unnest(cast(:ids as bigint[]), cast(:docs as integer[]), cast(:lens as integer[]), cast(:texts as text[]))
        as d (id, doc, len, tsv)
    join added using (id)
    returning len
), stats as (
    insert into main.search_stats as s (slot, docs, toks)
    select pg_backend_pid() & 255, count(*), sum(len) from words having count(*) > 0
    on conflict (slot) do update set docs = s.docs + excluded.docs, toks = s.toks + excluded.toks
)
select id from added;

-- name: copy_deliveries :many int, text, text, text, text, text, text, text, int, int, int, int, text, text, text, int
-- A page of mail.
-- differs: how times are kept.
select id, session_id, task_id, priority, content, status, created_at, delivered_at, attempts, max_attempts,
    cast(extract(epoch from due_at) * 1000000 as bigint), lease_token, lease_worker, last_error, dedupe_key,
    cast(extract(epoch from dead_at) * 1000000 as bigint)
from main.task_deliveries where id > :after order by id limit :limit;

-- name: copy_deliveries_put :none
-- One row of mail.
-- differs: how times are kept.
insert into main.task_deliveries (id, session_id, task_id, priority, content, status, created_at, delivered_at,
    attempts, max_attempts, due_at, lease_token, lease_worker, last_error, dedupe_key, dead_at)
values (:id, :session_id, :task_id, :priority, :content, :status, :created_at, :delivered_at, :attempts,
    :max_attempts, timestamptz 'epoch' + cast(:due_at as bigint) * interval '1 microsecond', :lease_token, :lease_worker,
    :last_error, :dedupe_key, timestamptz 'epoch' + cast(:dead_at as bigint) * interval '1 microsecond')
on conflict (id) do update set
    session_id = excluded.session_id, task_id = excluded.task_id, priority = excluded.priority, content =
    excluded.content, status = excluded.status, created_at = excluded.created_at, delivered_at = excluded.delivered_at,
    attempts = excluded.attempts, max_attempts = excluded.max_attempts, due_at = excluded.due_at, lease_token =
    excluded.lease_token, lease_worker = excluded.lease_worker, last_error = excluded.last_error, dedupe_key =
    excluded.dedupe_key, dead_at = excluded.dead_at;

-- name: copy_payloads :many text, int, int, text
-- A page of sessions' payloads.
-- differs: how JSON and times are kept.
select session_id, version, cast(extract(epoch from updated_at) * 1000000 as bigint), cast(payload as text)
from main.session_payloads where session_id > :after order by session_id limit :limit;

-- name: copy_payloads_put :none
-- One row of sessions' payloads.
-- differs: how JSON and times are kept.
insert into main.session_payloads (session_id, version, updated_at, payload)
values (:session_id, :version, timestamptz 'epoch' + cast(:updated_at as bigint) * interval '1 microsecond',
    cast(cast(:payload as text) as json))
on conflict (session_id) do update set
    version = excluded.version, updated_at = excluded.updated_at, payload = excluded.payload;

-- name: copy_tapes :many text, int, int, int, int, int
-- A page of tapes.
-- differs: how times are kept.
select tape_id, branch, length, window_start, cuts, cast(extract(epoch from created_at) * 1000000 as bigint)
from main.tapes where tape_id > :after order by tape_id limit :limit;

-- name: copy_tapes_put :none
-- One row of tapes.
-- differs: how times are kept.
insert into main.tapes (tape_id, branch, length, window_start, cuts, created_at)
values (:tape_id, :branch, :length, :window_start, :cuts, timestamptz 'epoch' + cast(:created_at as bigint) * interval
    '1 microsecond')
on conflict (tape_id) do update set
    branch = excluded.branch, length = excluded.length, window_start = excluded.window_start, cuts = excluded.cuts,
    created_at = excluded.created_at;

-- name: copy_tape_lines :many int, text, int, int, int, int
-- A page of what tapes were before a restore.
-- differs: how times are kept.
select line, tape_id, branch, length, window_start, cast(extract(epoch from left_at) * 1000000 as bigint)
from main.tape_lines where line > :after order by line limit :limit;

-- name: copy_tape_lines_put :none
-- One row of what tapes were before a restore.
-- differs: how times are kept.
insert into main.tape_lines (line, tape_id, branch, length, window_start, left_at) overriding system value
values (:line, :tape_id, :branch, :length, :window_start, timestamptz 'epoch' + cast(:left_at as bigint) * interval '1
    microsecond')
on conflict (line) do nothing;

-- name: copy_checkpoints :many text, int, text, int, text, int, int, int, text, text, text
-- A page of checkpoints.
-- differs: how JSON and times are kept.
select checkpoint_id, number, tape_id, branch, session_id, entry_count, window_start, cast(extract(epoch from
    created_at) * 1000000 as bigint), label, cast(plugin_states as text), cast(extra as text)
from main.checkpoints where checkpoint_id > :after order by checkpoint_id limit :limit;

-- name: copy_checkpoints_put :none
-- One row of checkpoints.
-- differs: how JSON and times are kept.
insert into main.checkpoints (checkpoint_id, number, tape_id, branch, session_id, entry_count, window_start,
    created_at, label, plugin_states, extra) overriding system value
values (:checkpoint_id, :number, :tape_id, :branch, :session_id, :entry_count, :window_start, timestamptz 'epoch' +
    cast(:created_at as bigint) * interval '1 microsecond', :label, cast(cast(:plugin_states as text) as json),
    cast(cast(:extra as text) as json))
on conflict (checkpoint_id) do update set
    tape_id = excluded.tape_id, branch = excluded.branch, session_id = excluded.session_id,
    entry_count = excluded.entry_count, window_start = excluded.window_start, created_at = excluded.created_at, label =
    excluded.label, plugin_states = excluded.plugin_states, extra = excluded.extra;

-- name: copy_leases :many text, text, int, int
-- A page of leases.
-- differs: how times are kept.
select name, owner, token, cast(extract(epoch from expires_at) * 1000000 as bigint)
from main.leases where name > :after order by name limit :limit;

-- name: copy_leases_put :none
-- One row of leases.
-- differs: how times are kept.
insert into main.leases (name, owner, token, expires_at)
values (:name, :owner, :token, timestamptz 'epoch' + cast(:expires_at as bigint) * interval '1 microsecond')
on conflict (name) do update set
    owner = excluded.owner, token = excluded.token, expires_at = excluded.expires_at;

-- name: copy_import_sources :many text, text, text, int, int, int, int, text, text, text
-- A page of imported files.
-- differs: how times are kept; SQLite has this one as text.
select path, format, session_id, size_bytes, modified_us, offset_bytes, lines, state, fingerprint,
    to_char(imported_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
from main.import_sources where path > :after order by path limit :limit;

-- name: copy_import_sources_put :none
-- One row of imported files.
-- differs: how times are kept.
insert into main.import_sources (path, format, session_id, size_bytes, modified_us, offset_bytes, lines, state,
    fingerprint, imported_at)
values (:path, :format, :session_id, :size_bytes, :modified_us, :offset_bytes, :lines, :state, :fingerprint,
    cast(:imported_at as timestamptz))
on conflict (path) do update set
    format = excluded.format, session_id = excluded.session_id, size_bytes = excluded.size_bytes, modified_us =
    excluded.modified_us, offset_bytes = excluded.offset_bytes, lines = excluded.lines, state = excluded.state,
    fingerprint = excluded.fingerprint, imported_at = excluded.imported_at;

-- name: copy_import_agents :many int, text, text, text
-- A page of imported agents.
-- differs: PostgreSQL numbers these rows itself unless told.
select id, session_id, name, agent_id
from main.import_agents where id > :after order by id limit :limit;

-- name: copy_import_agents_put :none
-- One row of imported agents.
-- differs: PostgreSQL numbers these rows itself unless told.
insert into main.import_agents (id, session_id, name, agent_id) overriding system value
values (:id, :session_id, :name, :agent_id)
on conflict (id) do nothing;

-- name: copy_entries :many int, int, int, text, text
-- A page of tapes' entries: branch, position, handoff, draft, entry.
-- differs: how an entry's place is kept.
select branch, position, cast(handoff as int), draft_id, cast(entry as text) from main.tape_entries
where (branch, position) > (:after_branch, :after_position)
order by branch, position limit :limit;

-- name: copy_entries_put :none
-- One entry; an entry never changes.
-- differs: how an entry's place is kept.
insert into main.tape_entries (branch, position, handoff, draft_id, entry)
values (:branch, :position, :handoff = 1, :draft_id, cast(cast(:entry as text) as json))
on conflict (branch, position) do nothing;

-- name: copy_counters :one int, int, int, int
-- The last numbers given out: messages, mail, branches, lease tokens. None of them may be given out again.
-- differs: sequences.
select (select last_value from main.messages_id_seq), (select last_value from main.task_deliveries_id_seq),
    (select last_value from main.tape_branch_ids), (select last_value from main.lease_tokens);

-- name: copy_counters_put :many int
-- Go on from these numbers, or from our own when those are larger; also for numbers that only rows tell.
-- differs: sequences.
select setval(cast(s.name as regclass), greatest(s.floor, coalesce(s.given, 0), 1))
from (values
    ('main.messages_id_seq', (select max(id) from main.messages), cast(:messages as bigint)),
    ('main.task_deliveries_id_seq', (select max(id) from main.task_deliveries), cast(:deliveries as bigint)),
    ('main.tape_branch_ids', (select max(branch) from main.tape_branches), cast(:branches as bigint)),
    ('main.lease_tokens', (select max(token) from main.leases), cast(:tokens as bigint)),
    ('main.tape_lines_line_seq', (select max(line) from main.tape_lines), null),
    ('main.checkpoints_number_seq', (select max(number) from main.checkpoints), null),
    ('main.import_agents_id_seq', (select max(id) from main.import_agents), null)
) as s (name, floor, given);

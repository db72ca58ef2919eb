-- Messages: rows of the crow format, read by agent, by session, and in the order they were written.

-- name: message_view :many text
-- A fork's view: its parent's rows up to the anchor, the parent's own view included, then its own.
-- differs: an anchor that is no number shares nothing, where a cast would fail.
with recursive line (agent_id, upto, depth) as (
    select cast(:agent_id as text), 9223372036854775807, 0
    union all
    select coalesce(a.forked_from, t.agent_id),
        least(line.upto, case when a.forked_at is null then 9223372036854775807
            when a.forked_at ~ '^[0-9]{1,18}$' then cast(a.forked_at as bigint) else 0 end),
        depth + 1
    from line
    join main.agents a on a.agent_id = line.agent_id and a.fork_idx > 1
    left join main.agents t on t.session_id = a.session_id and t.agent_idx = a.agent_idx and t.fork_idx = 1
    where depth < 1000
)
select m.data from line join main.messages m on m.agent_id = line.agent_id and m.id <= line.upto
order by line.depth desc, m.id;

-- name: message_query :many Message
-- Messages of the whole store by any mix of filters, oldest first.
-- differs: lists come as arrays.
select m.* from main.messages m
where m.id > :after_id
    and (cast(:agent_idx as integer) is null or m.agent_id in (select agent_id from main.session_agents where agent_idx = :agent_idx))
    and (cast(:roles as text[]) is null or m.role = any(:roles))
    and (cast(:after as text) is null or m.created_at collate "C" > :after)
    and (cast(:before as text) is null or m.created_at collate "C" < :before)
    and (cast(:include_forks as boolean) or m.fork_idx <= 1)
    and (cast(:injected as boolean) or m.injected = 0)
order by m.id
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: message_query_newest :many Message
-- As message_query, newest first; :after_id then bounds from above.
-- differs: lists come as arrays.
select m.* from main.messages m
where m.id < :after_id
    and (cast(:agent_idx as integer) is null or m.agent_id in (select agent_id from main.session_agents where agent_idx = :agent_idx))
    and (cast(:roles as text[]) is null or m.role = any(:roles))
    and (cast(:after as text) is null or m.created_at collate "C" > :after)
    and (cast(:before as text) is null or m.created_at collate "C" < :before)
    and (cast(:include_forks as boolean) or m.fork_idx <= 1)
    and (cast(:injected as boolean) or m.injected = 0)
order by m.id desc
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: message_query_some :many Message
-- As message_query, of one session's agents, or of those named: it costs what they hold, not what the store holds.
-- An array is computed once, and no index has the order of `id + 0`: else the planner walks all messages by their ids.
-- differs: lists come as arrays.
-- plan: ix_messages_agent_id
select m.* from main.messages m
where m.agent_id = any(array(
        select a.agent_id from main.session_agents a
        where a.session_id = :session_id and (cast(:agent_ids as text[]) is null or a.agent_id = any(:agent_ids))
            and (cast(:agent_idx as integer) is null or a.agent_idx = :agent_idx)
        union all
        select g.agent_id from unnest(:agent_ids) as g (agent_id)
        where cast(:session_id as text) is null and (cast(:agent_idx as integer) is null or exists (
            select 1 from main.session_agents a where a.agent_id = g.agent_id and a.agent_idx = :agent_idx))))
    and m.id > :after_id
    and (cast(:roles as text[]) is null or m.role = any(:roles))
    and (cast(:after as text) is null or m.created_at collate "C" > :after)
    and (cast(:before as text) is null or m.created_at collate "C" < :before)
    and (cast(:include_forks as boolean) or m.fork_idx <= 1)
    and (cast(:injected as boolean) or m.injected = 0)
order by m.id + 0
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: message_query_some_newest :many Message
-- As message_query_some, newest first; :after_id then bounds from above.
-- differs: lists come as arrays.
-- plan: ix_messages_agent_id
select m.* from main.messages m
where m.agent_id = any(array(
        select a.agent_id from main.session_agents a
        where a.session_id = :session_id and (cast(:agent_ids as text[]) is null or a.agent_id = any(:agent_ids))
            and (cast(:agent_idx as integer) is null or a.agent_idx = :agent_idx)
        union all
        select g.agent_id from unnest(:agent_ids) as g (agent_id)
        where cast(:session_id as text) is null and (cast(:agent_idx as integer) is null or exists (
            select 1 from main.session_agents a where a.agent_id = g.agent_id and a.agent_idx = :agent_idx))))
    and m.id < :after_id
    and (cast(:roles as text[]) is null or m.role = any(:roles))
    and (cast(:after as text) is null or m.created_at collate "C" > :after)
    and (cast(:before as text) is null or m.created_at collate "C" < :before)
    and (cast(:include_forks as boolean) or m.fork_idx <= 1)
    and (cast(:injected as boolean) or m.injected = 0)
order by m.id + 0 desc
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: message_query_agent :many Message
-- As message_query, of one agent, whose own rows an index holds in their order: a page costs what it holds.
-- differs: lists come as arrays.
-- plan: ix_messages_agent_id
select m.* from main.messages m
where m.agent_id = :agent_id and m.id > :after_id
    and (cast(:roles as text[]) is null or m.role = any(:roles))
    and (cast(:after as text) is null or m.created_at collate "C" > :after)
    and (cast(:before as text) is null or m.created_at collate "C" < :before)
    and (cast(:include_forks as boolean) or m.fork_idx <= 1)
    and (cast(:injected as boolean) or m.injected = 0)
order by m.id
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: message_query_agent_newest :many Message
-- As message_query_agent, newest first; :after_id then bounds from above.
-- differs: lists come as arrays.
-- plan: ix_messages_agent_id
select m.* from main.messages m
where m.agent_id = :agent_id and m.id < :after_id
    and (cast(:roles as text[]) is null or m.role = any(:roles))
    and (cast(:after as text) is null or m.created_at collate "C" > :after)
    and (cast(:before as text) is null or m.created_at collate "C" < :before)
    and (cast(:include_forks as boolean) or m.fork_idx <= 1)
    and (cast(:injected as boolean) or m.injected = 0)
order by m.id desc
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: message_horizon :one int, text
-- The newest id visible, and the transactions that were writing messages after that look: each may hold a smaller id.
-- differs: ids are taken at the insert but become visible at the commit. The locks are read after the snapshot was taken, and
-- a writer has its lock before it takes an id.
select coalesce(max(id), 0), array_to_string(array(
    select l.virtualtransaction from pg_locks l
    where l.locktype = 'relation' and l.granted and l.mode = 'RowExclusiveLock' and l.pid <> pg_backend_pid()
        and l.database = (select oid from pg_database where datname = current_database())
        and l.relation = cast('main.messages' as regclass)), ',')
from main.messages;

-- name: message_writers :one int
-- How many of these transactions are still open.
-- only: postgres; on SQLite none ever are.
select count(distinct virtualtransaction) from pg_locks
where virtualtransaction = any(string_to_array(:writers, ','));

-- name: message_hole :one int
-- The last id before the first gap after an id and up to another; null when there is no gap.
-- only: postgres; on SQLite ids become visible in their order, so nobody waits behind a gap.
select min(prior) from (
    select id, lag(id, 1, cast(:after_id as bigint)) over (order by id) as prior
    from main.messages where id > :after_id and id <= :upto
) run
where id <> prior + 1;

-- name: message_follow :many Message
-- Messages after an id and up to another, oldest first.
select m.* from main.messages m
where m.id > :after_id and m.id <= :upto
order by m.id
limit :limit;

-- name: message_follow_session :many Message
-- As message_follow, of one session's agents.
-- plan: ix_messages_agent_id
-- differs: an array, and no index with its order; see message_query_some.
select m.* from main.messages m
where m.agent_id = any(array(select agent_id from main.session_agents where session_id = :session_id))
    and m.id > :after_id and m.id <= :upto
order by m.id + 0
limit :limit;

-- name: message_put :one int
-- Append one message with its only index row and its session's summary, in one statement; returns its id.
-- :len and :tsv are the index row; :trunk and :first say whether the agent is on the trunk, and is agent 1 of it. A message
-- without words or with more than one index row takes message_put_many.
-- differs: a statement has parts that write, and counts the index rows, which FTS5 does itself.
with added as (
    insert into main.messages (agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens,
        indexed, injected)
    values (:agent_id, :fork_idx, :created_at, cast(cast(:data as text) as json), :role, :prompt_tokens, :completion_tokens,
        :total_tokens, :indexed, :injected)
    returning id
), words as (
    insert into main.message_index (message_id, doc, len, tsv)
    select id, 0, :len, cast(cast(:tsv as text) || U&' ''\E000b' || (id >> 14) || '''' as tsvector) from added
), stats as (
    insert into main.search_stats as s (slot, docs, toks) values (pg_backend_pid() & 255, 1, :len)
    on conflict (slot) do update set docs = s.docs + 1, toks = s.toks + excluded.toks
), summary as (
    insert into main.session_summaries as s
        (session_id, all_activity, all_messages, trunk_activity, trunk_messages, first_messages, stray)
    values (:session_id, :created_at, 1, case when :trunk = 1 then :created_at else '' end, :trunk, :first, :agent_id)
    on conflict (session_id) do update set
        all_activity = case when s.all_messages = 0 then excluded.all_activity
            else greatest(s.all_activity, excluded.all_activity) end,
        all_messages = s.all_messages + 1,
        trunk_activity = case when :trunk = 0 then s.trunk_activity
            when s.trunk_messages = 0 then excluded.trunk_activity
            else greatest(s.trunk_activity, excluded.trunk_activity) end,
        trunk_messages = s.trunk_messages + :trunk,
        first_messages = s.first_messages + :first,
        title = coalesce(s.title, case when :first = 1 and s.first_messages = 1 then cast(:title as text) end),
        stray = case when s.newest_agent = :agent_id then null else main.crowmem_without_row(:agent_id) end
)
select id from added;

-- name: message_put_many :many int
-- Append many messages of one agent with their index rows and their session's summary, in one round trip; returns their ids,
-- which are in the order of the messages when sorted.
-- The arrays that end in _each have one item a message. :numbers, :docs, :lens and :tsvs have one an index row; a number is a
-- message's place in those arrays, from 1. The others are as in session_add_messages.
-- only: postgres; SQLite runs message_add and message_index_add once each.
with bulk as materialized (
    select case when cardinality(cast(:lens as integer[])) >= 64 then set_config('gin_pending_list_limit', '4096', true) end
), given as (
    select * from unnest(cast(:created_at_each as text[]), cast(:data_each as text[]), cast(:role_each as text[]),
        cast(:prompt_tokens_each as integer[]), cast(:completion_tokens_each as integer[]),
        cast(:total_tokens_each as integer[]), cast(:indexed_each as integer[]), cast(:injected_each as integer[]))
        with ordinality as g (created_at, data, role, prompt_tokens, completion_tokens, total_tokens, indexed, injected, place)
), added as (
    insert into main.messages (agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens,
        indexed, injected)
    select :agent_id, :fork_idx, created_at, cast(data as json), role, prompt_tokens, completion_tokens, total_tokens,
        indexed, injected
    from bulk, given order by place
    returning id
), numbered as (
    select id, row_number() over (order by id) as place from added
), words as (
    insert into main.message_index (message_id, doc, len, tsv)
    select n.id, d.doc, d.len, cast(d.tsv || U&' ''\E000b' || (n.id >> 14) || '''' as tsvector)
    from unnest(cast(:numbers as integer[]), cast(:docs as integer[]), cast(:lens as integer[]), cast(:tsvs as text[]))
        as d (place, doc, len, tsv)
    join numbered n using (place)
), stats as (
    insert into main.search_stats as s (slot, docs, toks)
    select pg_backend_pid() & 255, count(*), sum(len) from unnest(cast(:lens as integer[])) as d (len) having count(*) > 0
    on conflict (slot) do update set docs = s.docs + excluded.docs, toks = s.toks + excluded.toks
), summary as (
    insert into main.session_summaries as s
        (session_id, all_activity, all_messages, trunk_activity, trunk_messages, first_messages, title, stray)
    values (:session_id, :last, :messages, case when :trunk = 1 then :last else '' end, cast(:messages as bigint) * :trunk,
        cast(:messages as bigint) * :first, case when :first = 1 then cast(:title_second as text) end, :agent_id)
    on conflict (session_id) do update set
        all_activity = case when s.all_messages = 0 then excluded.all_activity
            else greatest(s.all_activity, excluded.all_activity) end,
        all_messages = s.all_messages + excluded.all_messages,
        trunk_activity = case when :trunk = 0 then s.trunk_activity
            when s.trunk_messages = 0 then excluded.trunk_activity
            else greatest(s.trunk_activity, excluded.trunk_activity) end,
        trunk_messages = s.trunk_messages + excluded.trunk_messages,
        first_messages = s.first_messages + excluded.first_messages,
        title = coalesce(s.title, case when :first = 1 and s.first_messages = 0 then excluded.title
            when :first = 1 and s.first_messages = 1 then cast(:title_first as text) end),
        stray = case when s.newest_agent = :agent_id then null else main.crowmem_without_row(:agent_id) end
)
select id from added;

-- name: message_index_add :none
-- Add one index row of one message.
-- differs: the scope words, the bucket's among them, stand in the tsvector.
insert into main.message_index (message_id, doc, len, tsv)
values (:id, :doc, :len, cast(cast(:text as text) || U&' ''\E000b' || (cast(:id as bigint) >> 14) || '''' as tsvector));

-- name: message_index_bulk :one text
-- For the rest of this transaction: gather 4 MB of index entries before they are merged into the index, for more rows a second.
-- only: postgres; FTS5 gathers what one transaction writes by itself.
select set_config('gin_pending_list_limit', '4096', true);

-- name: message_stats_add :none
-- Count index rows and their words.
-- only: postgres; FTS5 keeps these counts itself.
insert into main.search_stats as s (slot, docs, toks)
values (pg_backend_pid() & 255, :docs, :toks)
on conflict (slot) do update set docs = s.docs + excluded.docs, toks = s.toks + excluded.toks;

-- Search: the words of messages, ranked as FTS5's bm25() ranks them. docs/search.md tells how the pieces work together.

-- name: search_counts :many int, int
-- Rows (place, number): -2 messages to index or to take out of the index, 0 for none; -1 the newest indexed message's id;
-- 0 the number of index rows; 1.. in how many rows each term stands, the counting of a rare one or of a prefix ending at :most.
-- differs: terms are tsqueries of one word; common words come from counted or sampled frequencies.
select place, number from main.crowmem_counts(cast(:terms as text[]), :most);

-- name: search_rank :many int, float
-- The best index rows for an expression: message id and score, lower is better, the newer message first among equals.
-- :must is an expression that has to hold besides and is not scored; :terms and :counts what is scored, and in how many
-- index rows each stands.
-- differs: the formula is ours, in a function, since it needs settings of its own: memory for exact bitmaps, a plan for the
-- values at hand, no compiling, no helpers. The newest messages are asked for by their buckets' words.
select message_id, score from main.crowmem_rank(
    cast(:match as text), cast(:must as text), cast(:terms as text[]), cast(:counts as bigint[]), :most,
    cast(:filtered as boolean), cast(:after as text), cast(:before as text), cast(:agent_ids as text[]),
    cast(:cwd as text), cast(:model as text));

-- name: search_unindex :many int
-- Take some deleted messages out of the index; their ids.
-- differs: one statement takes the index rows, and their counts, along; what another process is taking out is passed over.
with gone as (
    delete from main.message_index_gone where id = any(array(
        select id from main.message_index_gone order by id limit :most for update skip locked))
    returning id
), dropped as (
    delete from main.message_index i using gone where i.message_id = gone.id returning i.len
), stats as (
    insert into main.search_stats as s (slot, docs, toks)
    select pg_backend_pid() & 255, -count(*), -sum(len) from dropped having count(*) > 0
    on conflict (slot) do update set docs = s.docs + excluded.docs, toks = s.toks + excluded.toks
)
select id from gone;

-- name: search_foreign :many int, text, text, text, text, int
-- Messages that are not indexed yet, oldest first: id, agent id, role, stamp, data, injected.
-- differs: rows that another process is indexing are passed over.
select id, agent_id, role, created_at, cast(data as text), injected from main.messages where indexed = 0
order by id limit :most for update skip locked;

-- name: search_drop_rows :none
-- Take messages out of the index, whether they are in it or not.
-- differs: their counts go with them.
with dropped as (
    delete from main.message_index where message_id = any(cast(:ids as bigint[])) returning len
)
insert into main.search_stats as s (slot, docs, toks)
select pg_backend_pid() & 255, -count(*), -sum(len) from dropped having count(*) > 0
on conflict (slot) do update set docs = s.docs + excluded.docs, toks = s.toks + excluded.toks;

-- name: search_mark :many int
-- Mark messages as indexed, which holds those who would delete them; the ids of those that are still there.
-- differs: lists come as arrays.
update main.messages set indexed = :indexed where id = any(cast(:ids as bigint[])) returning id;

-- name: search_hits :many int, text, int, text, text, text
-- The messages with these ids: id, agent id, fork index, role, stamp, data.
-- differs: lists come as arrays. One that is unpacked is as long as any to the planner, which else plans each call anew.
select m.id, m.agent_id, m.fork_idx, m.role, m.created_at, m.data
from main.messages m
where m.id = any(array(select unnest(cast(:ids as bigint[]))));

-- name: search_rows :many int, int
-- The index rows after one message and up to another: message id << 6 | number, and length.
-- differs: both are columns.
select message_id << 6 | doc, len from main.message_index where message_id > :after_id and message_id <= :upto
order by message_id, doc;

-- name: search_unlike :many int
-- Messages that have an index row of other words than these, the texts as message_index_add takes them. Words that begin like
-- :weeks are not compared.
-- only: postgres; FTS5 does not tell the words of a row, search_vocabulary.
select i.message_id
from unnest(cast(:ids as bigint[]), cast(:docs as smallint[]), cast(:texts as text[])) as made (id, doc, text)
join main.message_index i on i.message_id = made.id and i.doc = made.doc
cross join lateral (
    select cast(made.text || U&' ''\E000b' || (made.id >> 14) || '''' as tsvector) as tsv offset 0
) asked
where i.tsv <> asked.tsv
    and ts_delete(i.tsv, array(select w from unnest(tsvector_to_array(i.tsv)) w where starts_with(w, cast(:weeks as text))))
        <> ts_delete(
            asked.tsv, array(select w from unnest(tsvector_to_array(asked.tsv)) w where starts_with(w, cast(:weeks as text))));

-- name: search_drop_orphans :none
-- Take out the index rows after one message and up to another that belong to no message.
-- differs: their counts go with them.
with dropped as (
    delete from main.message_index i
    where message_id > :after_id and message_id <= :upto
        and not exists (select 1 from main.messages m where m.id = i.message_id)
    returning len
)
insert into main.search_stats as s (slot, docs, toks)
select pg_backend_pid() & 255, -count(*), -sum(len) from dropped having count(*) > 0
on conflict (slot) do update set docs = s.docs + excluded.docs, toks = s.toks + excluded.toks;

-- name: search_clear :none
-- Empty the index, however damaged it is.
-- differs: the counts go with the rows.
with dropped as (
    delete from main.message_index
), words as (
    delete from main.search_words
), counted as (
    update main.search_counted set upto = 0, docs = 0
)
delete from main.search_stats;

-- name: search_stats_differ :one int
-- By how many rows and words in sum the counts differ from the index.
-- only: postgres; FTS5 keeps its own.
select abs(docs - coalesce((select sum(docs) from main.search_stats), 0))
    + abs(toks - coalesce((select sum(toks) from main.search_stats), 0))
from (select count(*) as docs, coalesce(sum(len), 0) as toks from main.message_index) counted;

-- name: search_stats_lock :none
-- Let nobody count until the transaction ends: whoever has counted, has committed.
-- only: postgres; FTS5 keeps its own.
lock table main.search_stats in share row exclusive mode;

-- name: search_stats_mend :none
-- Add to the counts what they lack.
-- only: postgres; FTS5 keeps its own.
insert into main.search_stats as s (slot, docs, toks)
select 0, docs - coalesce((select sum(docs) from main.search_stats), 0),
    toks - coalesce((select sum(toks) from main.search_stats), 0)
from (select count(*) as docs, coalesce(sum(len), 0) as toks from main.message_index) counted
on conflict (slot) do update set docs = s.docs + excluded.docs, toks = s.toks + excluded.toks;

-- name: search_merge_list :one int
-- Merge into the index what bulk writers left beside it; how many pages there were.
-- only: postgres; FTS5 merges by itself.
select main.crowmem_merge_list();

-- name: search_count_words :one int
-- Count the words of the next messages, at most :most; how many index rows were counted, 0 at the end.
-- only: postgres; FTS5 counts by itself.
select main.crowmem_count_words(:most);

-- name: search_recount :none
-- Forget the counted words when rows that were counted are gone, or came late: more than one in a thousand.
-- only: postgres, for search_count_words.
with stale as (
    select 1 from main.search_counted c
    where abs(c.docs - (select count(*) from main.message_index i where i.message_id <= c.upto)) * 1000 > c.docs
), forgotten as (
    delete from main.search_words where exists (select 1 from stale)
)
update main.search_counted set upto = 0, docs = 0 where exists (select 1 from stale);

-- name: search_gone_rows :one int
-- How many index rows of deleted messages there are to be taken out.
-- only: postgres, for search_words_forget.
select count(*) from main.message_index where message_id in (select id from main.message_index_gone);

-- name: search_words_drift :one int
-- How many of the index rows whose words were counted are gone.
-- only: postgres, for search_words_forget.
select c.docs - (select count(*) from main.message_index i where i.message_id <= c.upto) from main.search_counted c;

-- name: search_words_forget :none
-- Forget counted words that no index row has any more; none can be on more rows than were taken out, :most.
-- only: postgres; FTS5 counts by itself.
delete from main.search_words w
where w.docs <= :most
    and not exists (select 1 from main.message_index i where i.tsv @@ quote_literal(w.word)::tsquery);

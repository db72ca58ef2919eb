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

-- name: search_mark :none
-- Mark messages as indexed, or as not indexed yet.
-- differs: lists come as arrays.
update main.messages set indexed = :indexed where id = any(cast(:ids as bigint[]));

-- name: search_hits :many Message
-- The messages with these ids.
-- differs: lists come as arrays.
select m.* from main.messages m where m.id = any(cast(:ids as bigint[]));

-- name: search_unmark :many int
-- Mark the next messages after an id as not indexed; their ids.
update main.messages set indexed = 0
where id = any(array(select id from main.messages where id > :after_id order by id limit :most)) returning id;

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

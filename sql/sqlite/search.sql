-- Search: the words of messages, ranked as FTS5's bm25() ranks them. docs/search.md tells how the pieces work together.

-- name: search_counts :many int, int
-- Rows (place, number): -2 messages to index or to take out of the index, 0 for none; -1 the newest indexed message's id;
-- 0 the number of index rows; 1.. in how many rows each term stands, the counting of a prefix ending at :most.
-- differs: FTS5 keeps the number of rows as the first number of a record, which the client decodes; terms are quoted tokens.
select -2, exists (select 1 from messages where indexed = 0) or exists (select 1 from message_index_gone)
union all
select -1, (select rowid >> 6 from message_index order by rowid desc limit 1)
union all
select 0, (select block from message_index_data where id = 1)
union all
select j.key + 1, case
    when j.value like '%*' then
        (select count(*) from (select 1 from message_index where message_index match 'text : ' || j.value limit :most))
    else (select doc from message_words where term = substr(j.value, 2, length(j.value) - 2)) end
from json_each(:terms) j;

-- name: search_rank :many int, float
-- The best index rows for an expression: message id and score, lower is better, the newer message first among equals.
-- :must is an expression that has to hold besides and is not scored; :low the smallest message id looked at; :weights of each
-- phrase of the expression, where they are known.
-- differs: FTS5 counts and weighs the words itself, unless we do, for a small scope. ORDER BY rank is slower here (236 against 131 ms for a common word among
-- a million), and so is any join before the limit.
select rowid >> 6,
    case when :weights is null then bm25(message_index, 1, 0) else crowmem_bm25(message_index, :weights) end as score
from message_index
where message_index match :match
    and rowid >= :low << 6
    and (:must is null
        or rowid in (select rowid from message_index where message_index match :must and rowid >= :low << 6))
    and not exists (select 1 from message_index_gone g where g.id = message_index.rowid >> 6)
    and (not :filtered or exists (
        select 1 from messages m
        where m.id = message_index.rowid >> 6
            and (:after is null or m.created_at > :after)
            and (:before is null or m.created_at < :before)
            and (:agent_ids is null or m.agent_id in (select value from json_each(:agent_ids)))
            and ((:cwd is null and :model is null) or m.agent_id in (
                select agent_id from agents
                where (:cwd is null or cwd = :cwd) and (:model is null or model_identifier = :model)))))
order by score, message_index.rowid desc
limit :most;

-- name: search_unindex :many int
-- Take some deleted messages out of the index; their ids.
-- differs: a trigger on this table does it, since FTS5 has no place for a part of a statement.
delete from message_index_gone where id in (select id from message_index_gone order by id limit :most) returning id;

-- name: search_foreign :many int, text, text, text, text, int
-- Messages that are not indexed yet, oldest first: id, agent id, role, stamp, data, injected.
-- differs: the transaction that asks is the only writer.
select id, agent_id, role, created_at, data, injected from messages where indexed = 0 order by id limit :most;

-- name: search_drop_rows :none
-- Take messages out of the index, whether they are in it or not.
-- differs: FTS5 keeps the numbers of its rows in a table of its own.
delete from message_index where rowid in (
    select d.id from json_each(:ids) j
    join message_index_docsize d on d.id between j.value << 6 and (j.value << 6) + 63
);

-- name: search_mark :many int
-- Mark messages as indexed, which holds those who would delete them; the ids of those that are still there.
-- differs: lists come as JSON arrays.
update messages set indexed = :indexed where id in (select value from json_each(:ids)) returning id;

-- name: search_hits :many int, text, int, text, text, text
-- The messages with these ids: id, agent id, fork index, role, stamp, data.
-- differs: lists come as JSON arrays.
select m.id, m.agent_id, m.fork_idx, m.role, m.created_at, m.data from messages m where m.id in (select value from json_each(:ids));

-- name: search_rows :many int, int
-- The index rows after one message and up to another: message id << 6 | number, and length.
-- differs: FTS5 keeps the lengths of both columns in a record, which the client decodes.
select id, sz from message_index_docsize where id > (:after_id << 6) + 63 and id <= (:upto << 6) + 63 order by id;

-- name: search_vocabulary :many text, int
-- The words after one of them, at most so many, and how often each stands in the index.
-- only: sqlite; PostgreSQL compares the rows themselves, search_unlike.
select term, cnt from message_words where term > :after order by term limit :most;

-- name: search_sizes :many int, int
-- FTS5's record of its rows and their words, beside 0; and each record of a row's lengths, beside the number of such rows.
-- only: sqlite; PostgreSQL has search_stats_differ.
select (select block from message_index_data where id = 1), 0
union all
select sz, count(*) from message_index_docsize group by sz;

-- name: search_drop_orphans :none
-- Take out the index rows after one message and up to another that belong to no message.
-- differs: FTS5 keeps the numbers of its rows in a table of its own.
delete from message_index where rowid in (
    select d.id from message_index_docsize d
    where d.id > (:after_id << 6) + 63 and d.id <= (:upto << 6) + 63
        and not exists (select 1 from messages m where m.id = d.id >> 6)
);

-- name: search_clear :none
-- Empty the index, however damaged it is.
-- differs: FTS5 has a command for it.
insert into message_index (message_index) values ('delete-all');

-- name: search_merge :none
-- A step of merging the index into one piece; :pages negative begins it, positive goes on.
-- only: sqlite; on PostgreSQL autovacuum does what is needed.
insert into message_index (message_index, rank) values ('merge', :pages);

-- name: search_changes :one int
-- How many rows this connection has changed so far: a merging step that changes fewer than two had nothing to do.
-- only: sqlite, for search_merge.
select total_changes();

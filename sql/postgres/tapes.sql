-- Tapes: what must lock, count and number entries.

-- name: tape_append :many int
-- Append entries to a tape, making it if it is new, in one round trip; returns its new length.
-- No row: it is not :expected entries long. :handoffs are the places in :entries (from 0) of handoff anchors, :handoff the last.
-- only: postgres; SQLite has no writing parts of a statement and takes tape_grow, tape_make, tape_entry_add.
-- The counter row is taken by an update, never read first: max(position) + 1 loses most appends of 4 writers at once.
-- A tape that is new to two writers is made by the one and grown by the other.
with grown as (
    update main.tapes set
        length = length + cardinality(cast(:entries as text[])),
        window_start = coalesce(length + cast(:handoff as bigint), window_start)
    where tape_id = :tape_id and (cast(:expected as bigint) is null or length = :expected)
    returning branch, length
), made as (
    insert into main.tapes as t (tape_id, branch, length, window_start)
    select :tape_id, nextval('main.tape_branch_ids'), cardinality(cast(:entries as text[])), coalesce(:handoff, 0)
    where coalesce(:expected, 0) = 0 and not exists (select from grown)
    on conflict (tape_id) do update set
        length = t.length + excluded.length,
        window_start = coalesce(t.length + :handoff, t.window_start)
    where :expected is null
    returning branch, length
), head as (
    select branch, length - cardinality(cast(:entries as text[])) as start from grown
    union all
    select branch, length - cardinality(cast(:entries as text[])) from made
), added as (
    insert into main.tape_entries (branch, position, handoff, draft_id, entry)
    select head.branch, head.start + e.place - 1, e.place - 1 = any(cast(:handoffs as bigint[])),
        case when e.place = 1 then cast(:draft_id as text) end, cast(e.entry as json)
    from head, unnest(cast(:entries as text[])) with ordinality as e (entry, place)
)
select start + cardinality(cast(:entries as text[])) from head;

-- name: tape_append_known :many int
-- As tape_append, of entries that are no handoff anchors, to a tape that is there; no row when it is not.
-- only: postgres; the part of tape_append that makes a tape costs the server a tenth of an append, used or not.
with grown as (
    update main.tapes set length = length + cardinality(cast(:entries as text[]))
    where tape_id = :tape_id
    returning branch, length
), added as (
    insert into main.tape_entries (branch, position, handoff, entry)
    select branch, length - cardinality(cast(:entries as text[])) + e.place - 1, false, cast(e.entry as json)
    from grown, unnest(cast(:entries as text[])) with ordinality as e (entry, place)
)
select length from grown;

-- name: tape_lock :one int, int, int
-- Hold a tape against appends, cuts, forks and checkpoints until the transaction ends: branch, length, window_start.
-- differs: row locks.
select branch, length, window_start from main.tapes where tape_id = :tape_id for update;

-- name: tape_share :one int, int, int
-- Hold a tape against cuts until the transaction ends, while others append: branch, length, window_start.
-- differs: row locks; an append changes no key and does not wait for `for key share`.
select branch, length, window_start from main.tapes where tape_id = :tape_id for key share;

-- name: tape_family_lock :one int
-- Hold all tapes that share a first branch against another clearing up, until the transaction ends.
-- differs: two that let go of one branch at the same moment would each see the other's name on it.
select 1 from pg_advisory_xact_lock(hashtextextended('crowmem tapes main.' || cast(:root as text), 0));

-- name: tape_branch_id :many int
-- The number of a new branch.
-- differs: a sequence.
select nextval('main.tape_branch_ids');

-- name: tape_drafted :one int
-- Whether a draft was saved.
select 1 from main.tape_entries where draft_id = :draft_id;

-- name: tape_load :many int, text
-- Entries of a tape with their numbers, in order, from :start (null: its last handoff anchor) up to but not including :stop.
-- differs: entries have two columns for their place.
-- The tape's own entries come in order from the primary key and are merged with those it shares, which are sorted. Lateral:
-- a join looked through the entries of every tape.
-- plan: tape_entries_pkey
with recursive head as (
    select branch, coalesce(cast(:start as bigint), window_start) as start from main.tapes where tape_id = :tape_id
), line (branch, stop) as (
    select b.parent, b.shared from head join main.tape_branches b on b.branch = head.branch and b.shared > head.start
    union all
    select b.parent, b.shared from line join main.tape_branches b on b.branch = line.branch
    where b.shared > (select start from head)
)
(
    select e.position, e.entry from line cross join lateral (
        select position, entry from main.tape_entries
        where branch = line.branch and position >= (select start from head) and position < least(line.stop, :stop)
        order by position
    ) e
    order by e.position
) union all (
    select e.position, e.entry from main.tape_entries e
    where e.branch = (select branch from head) and e.position >= (select start from head) and e.position < :stop
    order by e.position
)
order by position;

-- name: tape_load_branch :many int, text
-- As tape_load, of any branch.
-- differs: entries have two columns for their place.
with recursive line (branch, stop) as (
    select parent, shared from main.tape_branches where branch = :branch and shared > :start
    union all
    select b.parent, b.shared from line join main.tape_branches b on b.branch = line.branch where b.shared > :start
)
(
    select e.position, e.entry from line cross join lateral (
        select position, entry from main.tape_entries
        where branch = line.branch and position >= :start and position < least(line.stop, :stop)
        order by position
    ) e
    order by e.position
) union all (
    select e.position, e.entry from main.tape_entries e
    where e.branch = :branch and e.position >= :start and e.position < :stop
    order by e.position
)
order by position;

-- name: tape_handoff :one int
-- The number of the last handoff anchor before :length in a branch; null when there is none.
-- differs: entries have two columns for their place.
with recursive line (branch, stop) as (
    select cast(:branch as bigint), cast(:length as bigint)
    union all
    select b.parent, b.shared from line join main.tape_branches b on b.branch = line.branch
)
select max((
    select max(e.position) from main.tape_entries e
    where e.branch = line.branch and e.position < line.stop and e.handoff
)) from line;

-- name: tape_trim :none
-- Delete the entries of a branch from number :keep on.
-- differs: entries have two columns for their place.
delete from main.tape_entries where branch = :branch and position >= :keep;

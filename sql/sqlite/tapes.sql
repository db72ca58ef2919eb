-- Tapes: what must count and number entries. An entry's id is its branch << 32 | its number.

-- name: tape_grow :many int, int
-- Make room for :entries entries at the end of a tape: its branch, its new length. No row: it is not there, or not :expected long.
-- only: sqlite; PostgreSQL appends in one statement, tape_append.
update tapes set length = length + :entries, window_start = coalesce(length + :handoff, window_start)
where tape_id = :tape_id and (:expected is null or length = :expected)
returning branch, length;

-- name: tape_make :many int, int
-- Begin a tape with room for :entries entries: its branch, its length. No row: it is there already.
-- only: sqlite; PostgreSQL appends in one statement, tape_append.
insert into tapes (tape_id, branch, length, window_start) values (:tape_id, :branch, :entries, coalesce(:handoff, 0))
on conflict (tape_id) do nothing
returning branch, length;

-- name: tape_entry_add :none
-- Put one plain entry in its place. A tenth of an append's time is saved by binding no more than this.
-- only: sqlite; PostgreSQL appends in one statement, tape_append.
insert into tape_entries (id, handoff, entry) values (:id, 0, :entry);

-- name: tape_entry_add_marked :none
-- Put one entry in its place that may be a handoff anchor, or the first of a draft.
-- only: sqlite; PostgreSQL appends in one statement, tape_append.
insert into tape_entries (id, handoff, draft_id, entry) values (:id, :handoff, :draft_id, :entry);

-- name: tape_lock :one int, int, int
-- Hold a tape against appends, cuts, forks and checkpoints until the transaction ends: branch, length, window_start.
-- differs: the transaction is the lock.
select branch, length, window_start from tapes where tape_id = :tape_id;

-- name: tape_share :one int, int, int
-- Hold a tape against cuts until the transaction ends: branch, length, window_start.
-- differs: the transaction is the lock.
select branch, length, window_start from tapes where tape_id = :tape_id;

-- name: tape_family_lock :one int
-- Hold all tapes that share a first branch against another clearing up, until the transaction ends.
-- differs: the transaction is the lock.
select 1;

-- name: tape_branch_id :many int
-- The number of a new branch.
-- differs: a counter row.
update tape_branch_ids set last = last + 1 returning last;

-- name: tape_drafted :one int
-- Whether a draft was saved.
select 1 from tape_entries where draft_id = :draft_id;

-- name: tape_load :many int, text
-- Entries of a tape with their numbers, in order, from :start (null: its last handoff anchor) up to but not including :stop.
-- differs: entries have one column for their place, and the numbers stand in its lower half; what is in the upper is the same
-- for all, so that the tape's own entries, in the order of their ids, need no sorting.
with recursive head as materialized (
    select branch, coalesce(:start, window_start) as start from tapes where tape_id = :tape_id
), line (branch, stop) as (
    select b.parent, b.shared from head join tape_branches b on b.branch = head.branch and b.shared > head.start
    union all
    select b.parent, b.shared from line join tape_branches b on b.branch = line.branch
    where b.shared > (select start from head)
)
select (select branch from head) << 32 | (e.id & 4294967295) as place, e.entry
from line join tape_entries e on e.id >= line.branch << 32 | (select start from head)
    and e.id < line.branch << 32 | min(line.stop, :stop)
union all
select e.id, e.entry from tape_entries e
where e.id >= (select branch << 32 | start from head) and e.id < (select branch << 32 | :stop from head)
order by place;

-- name: tape_load_branch :many int, text
-- As tape_load, of any branch.
-- differs: entries have one column for their place, as in tape_load.
with recursive line (branch, stop) as (
    select parent, shared from tape_branches where branch = :branch and shared > :start
    union all
    select b.parent, b.shared from line join tape_branches b on b.branch = line.branch where b.shared > :start
)
select :branch << 32 | (e.id & 4294967295) as place, e.entry
from line join tape_entries e on e.id >= line.branch << 32 | :start and e.id < line.branch << 32 | min(line.stop, :stop)
union all
select e.id, e.entry from tape_entries e
where e.id >= :branch << 32 | :start and e.id < :branch << 32 | :stop
order by place;

-- name: tape_handoff :one int
-- The number of the last handoff anchor before :length in a branch; null when there is none.
-- differs: entries have one column for their place.
with recursive line (branch, stop) as (
    select :branch, :length
    union all
    select b.parent, b.shared from line join tape_branches b on b.branch = line.branch
)
select max((
    select max(e.id) & 4294967295 from tape_entries e
    where e.id >= line.branch << 32 and e.id < line.branch << 32 | line.stop and e.handoff = 1
)) from line;

-- name: tape_trim :none
-- Delete the entries of a branch from number :keep on.
-- differs: entries have one column for their place.
delete from tape_entries where id >= :branch << 32 | :keep and id < (:branch + 1) << 32;

-- Tapes: entries in branches, and which branches are still named by anybody.

-- name: tape_head :one int, int, int, int
-- Where a tape stands: branch, length, window_start, cuts.
select branch, length, window_start, cuts from main.tapes where tape_id = :tape_id;

-- name: tape_list :many text
-- One page of tape ids, sorted by their bytes.
select tape_id from main.tapes order by tape_id limit :limit offset :offset;

-- name: tape_list_infos :many TapeInfo
-- One page of tapes, sorted by the bytes of their ids.
select * from main.tapes order by tape_id limit :limit offset :offset;

-- name: tape_list_session :many text
-- The tapes named after a session or one of its agents.
select tape_id from main.tapes
where tape_id = :session_id or tape_id in (select agent_id from main.session_agents where session_id = :session_id)
order by tape_id;

-- name: tape_chain :many int, int, int
-- The branches that a branch is read from, its own first: branch, where its own entries start, where they stop.
with recursive line (branch, stop) as (
    select cast(:branch as bigint), cast(:length as bigint)
    union all
    select b.parent, b.shared from line join main.tape_branches b on b.branch = line.branch
)
select line.branch, coalesce(b.shared, 0), line.stop
from line left join main.tape_branches b on b.branch = line.branch
order by coalesce(b.shared, 0) desc;

-- name: tape_branch_add :none
-- Begin a branch with the first :shared entries of another.
insert into main.tape_branches (branch, parent, shared) values (:branch, :parent, :shared);

-- name: tape_head_set :none
-- Let a tape go on elsewhere.
update main.tapes set branch = :branch, length = :length, window_start = :window_start, cuts = cuts + 1
where tape_id = :tape_id;

-- name: tape_add :one text
-- Begin a tape on a branch; no row when there is one of this name.
insert into main.tapes (tape_id, branch, length, window_start) values (:tape_id, :branch, :length, :window_start)
on conflict (tape_id) do nothing
returning tape_id;

-- name: tape_delete :none
-- Forget where a tape stands.
delete from main.tapes where tape_id = :tape_id;

-- name: tape_named :one int
-- How many entries of a branch anybody still names: a tape, a line it left, a checkpoint, a branch that begins with them.
-- Null when nobody does. :but is a tape that does not count.
select max(n) from (
    select max(length) as n from main.tapes where branch = :branch and tape_id <> cast(:but as text)
    union all
    select max(length) from main.tape_lines where branch = :branch
    union all
    select max(entry_count) from main.checkpoints where branch = :branch
    union all
    select max(shared) from main.tape_branches where parent = :branch
) named;

-- name: tape_branch_delete :many int
-- Forget a branch; returns the one it began with.
delete from main.tape_branches where branch = :branch returning parent;

-- name: tape_names :many int
-- Every branch that a tape names: its own, those of lines it left, and of its checkpoints.
select branch from main.tapes where tape_id = :tape_id
union
select branch from main.tape_lines where tape_id = :tape_id
union
select branch from main.checkpoints where tape_id = :tape_id;

-- name: tape_line_add :none
-- Remember where a tape stood.
insert into main.tape_lines (tape_id, branch, length, window_start) values (:tape_id, :branch, :length, :window_start);

-- name: tape_line_list :many TapeLine
-- The lines a tape has left, oldest first.
select line, tape_id, length, left_at from main.tape_lines where tape_id = :tape_id order by line;

-- name: tape_line_get :one int, int, int
-- Where a line that a tape left ends: branch, length, window_start.
select branch, length, window_start from main.tape_lines where tape_id = :tape_id and line = :line;

-- name: tape_line_delete :many int
-- Forget the lines a tape has left; returns their branches.
delete from main.tape_lines where tape_id = :tape_id returning branch;

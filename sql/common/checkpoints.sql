-- Checkpoints: places in branches, with states and a label.

-- name: checkpoint_get :one StoredCheckpoint
-- One checkpoint, without entries.
select * from main.checkpoints where checkpoint_id = :checkpoint_id;

-- name: checkpoint_list :many CheckpointInfo
-- Checkpoints of one tape, the earliest first; ties in the order they were saved.
-- plan: checkpoints_tape
select * from main.checkpoints where tape_id = :tape_id order by created_at, number limit :limit offset :offset;

-- name: checkpoint_delete :many int
-- Delete a checkpoint; returns the branch it named.
delete from main.checkpoints where checkpoint_id = :checkpoint_id returning branch;

-- name: checkpoint_delete_later :many int
-- Delete the checkpoints of a tape that come after one in its list; returns the branches they named.
delete from main.checkpoints
where tape_id = :tape_id and (created_at, number) > (
    select created_at, number from main.checkpoints where checkpoint_id = :checkpoint_id
)
returning branch;

-- name: checkpoint_delete_tape :many int
-- Delete every checkpoint of a tape; returns the branches they named.
delete from main.checkpoints where tape_id = :tape_id returning branch;

-- name: checkpoint_list_session :many text, text
-- The tapes and checkpoints that were saved for a session or one of its agents, by tape.
select tape_id, checkpoint_id from main.checkpoints
where session_id = :session_id or session_id in (select agent_id from main.session_agents where session_id = :session_id)
order by tape_id, checkpoint_id;

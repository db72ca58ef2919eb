-- Checkpoints: what must know the clock.

-- name: checkpoint_add :one CheckpointInfo
-- Save where a tape stands now, holding it against cuts meanwhile; no row when there is no such tape.
-- differs: the clock; the transaction is the lock.
insert into checkpoints
    (checkpoint_id, tape_id, branch, session_id, entry_count, window_start, created_at, label, plugin_states, extra)
select :checkpoint_id, tape_id, branch, :session_id, length, window_start,
    coalesce(unixepoch(substr(:created_at, 1, 19)) * 1000000 + substr(:created_at, 21, 6), cast(unixepoch('subsec') * 1000000 as integer)),
    :label, :plugin_states, :extra
from tapes
where tape_id = :tape_id
returning *;

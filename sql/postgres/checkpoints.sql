-- Checkpoints: what must know the clock.

-- name: checkpoint_add :one CheckpointInfo
-- Save where a tape stands now, holding it against cuts meanwhile; no row when there is no such tape.
-- differs: the clock, and the row lock.
insert into main.checkpoints as c
    (checkpoint_id, tape_id, branch, session_id, entry_count, window_start, created_at, label, plugin_states, extra)
select :checkpoint_id, t.tape_id, t.branch, :session_id, t.length, t.window_start,
    coalesce(cast(cast(:created_at as text) as timestamptz), clock_timestamp()), :label,
    cast(cast(:plugin_states as text) as json), cast(cast(:extra as text) as json)
from main.tapes t
where t.tape_id = :tape_id
for key share
returning c.*;

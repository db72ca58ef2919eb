-- Leases: what needs no clock.

-- name: lease_delete_session :many text
-- Delete the leases named after a session or one of its agents, and the locks on them; returns their names.
-- :lock is what stands before the name of a lock.
delete from main.leases
where name in (:session_id, cast(:lock as text) || :session_id)
    or name in (select agent_id from main.agents where session_id = :session_id)
    or name in (select cast(:lock as text) || agent_id from main.agents where session_id = :session_id)
returning name;

-- Locks on sessions. They live and die with a connection of their own, so a holder that is killed lets go at once.

-- name: lock_try :one bool
-- Take a lock of the session if it is free.
-- only: postgres; SQLite keeps a lease.
select pg_try_advisory_lock(:key);

-- name: lock_try_transaction :one bool
-- Take a lock of the transaction if it is free; of the same lock space.
-- only: postgres; SQLite keeps a lease.
select pg_try_advisory_xact_lock(:key);

-- name: lock_patience :one text
-- Wait at most so many milliseconds for a lock (0: for ever), and let nothing else end the wait or the session.
-- :local is true for this transaction only.
-- only: postgres; SQLite keeps a lease.
select set_config('lock_timeout', cast(:timeout_ms as text), cast(:local as boolean))
    || set_config('statement_timeout', '0', cast(:local as boolean))
    || set_config('idle_in_transaction_session_timeout', '0', cast(:local as boolean));

-- name: lock_wait :one text
-- Wait for a lock of the session, in order of arrival.
-- only: postgres; SQLite keeps a lease.
select cast(pg_advisory_lock(:key) as text);

-- name: lock_wait_transaction :one text
-- Wait for a lock of the transaction, in order of arrival.
-- only: postgres; SQLite keeps a lease.
select cast(pg_advisory_xact_lock(:key) as text);

-- name: lock_free :one bool
-- Give back exactly this lock of the session; false when it was not held.
-- only: postgres; SQLite keeps a lease.
select pg_advisory_unlock(:key);

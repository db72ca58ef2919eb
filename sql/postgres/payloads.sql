-- Payloads: what must know the clock.

-- name: payload_save :one int
-- Save a session's payload; returns its version, 1 for the first. A repeat makes another version.
-- No row: :expected is 0 and there is one.
-- differs: the clock.
insert into main.session_payloads as p (session_id, version, updated_at, payload)
values (:session_id, 1, clock_timestamp(), cast(cast(:payload as text) as json))
on conflict (session_id) do update set
    version = p.version + 1, updated_at = excluded.updated_at, payload = excluded.payload
where cast(:expected as bigint) is null
returning version;

-- name: payload_replace :many int
-- Save a session's payload over version :expected; returns the new version, no row when it has another.
-- differs: the clock.
update main.session_payloads set
    version = version + 1, updated_at = clock_timestamp(), payload = cast(cast(:payload as text) as json)
where session_id = :session_id and version = :expected
returning version;

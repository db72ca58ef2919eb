-- Payloads: what must know the clock, and how versions go on.

-- name: payload_save :one int
-- Make a session's payload; returns its version, larger than any that was deleted. One that is there is replaced.
-- No row: :expected is 0 and there is one.
-- differs: the clock; nobody else writes meanwhile.
insert into session_payloads as p (session_id, version, updated_at, payload)
values (:session_id, (select last + 1 from payload_versions), cast(unixepoch('subsec') * 1000000 as integer), :payload)
on conflict (session_id) do update set
    version = p.version + 1, updated_at = excluded.updated_at, payload = excluded.payload
where :expected is null
returning version;

-- name: payload_replace :many int
-- Save a session's payload over version :expected, over any when that is null; returns the new version, no row when it has
-- another or there is none.
-- differs: the clock.
update session_payloads set version = version + 1, updated_at = cast(unixepoch('subsec') * 1000000 as integer), payload = :payload
where session_id = :session_id and (:expected is null or version = :expected)
returning version;

-- name: payload_delete :many text
-- Delete the payload of a session.
-- differs: a trigger keeps the version.
delete from session_payloads where session_id = :session_id returning session_id;

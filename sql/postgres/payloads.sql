-- Payloads: what must know the clock, and how versions go on.

-- name: payload_save :one int
-- Make a session's payload; returns its version, larger than any that was deleted. One that is there is replaced.
-- No row: :expected is 0 and there is one.
-- differs: the clock; the row of versions is shared, so that no deletion of this very payload comes in between.
with versions as materialized (select last from main.payload_versions for share)
insert into main.session_payloads as p (session_id, version, updated_at, payload)
select :session_id, last + 1, clock_timestamp(), cast(cast(:payload as text) as json) from versions
on conflict (session_id) do update set
    version = p.version + 1, updated_at = excluded.updated_at, payload = excluded.payload
where cast(:expected as bigint) is null
returning version;

-- name: payload_replace :many int
-- Save a session's payload over version :expected, over any when that is null; returns the new version, no row when it has
-- another or there is none.
-- differs: the clock.
update main.session_payloads set
    version = version + 1, updated_at = clock_timestamp(), payload = cast(cast(:payload as text) as json)
where session_id = :session_id and (cast(:expected as bigint) is null or version = cast(:expected as bigint))
returning version;

-- name: payload_delete :many text
-- Delete the payload of a session, and keep its version.
-- differs: the row of versions is locked before the payload's.
with versions as materialized (
    select last from main.payload_versions
    where exists (select from main.session_payloads where session_id = :session_id)
    for update
), gone as (
    delete from main.session_payloads p using versions where p.session_id = :session_id returning p.session_id, p.version
), kept as (
    update main.payload_versions set last = greatest(last, (select version from gone)) where exists (select from gone)
)
select session_id from gone;

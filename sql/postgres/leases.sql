-- Leases: the database's clock decides, and it moves within a transaction (now() would not). :now, microseconds since 1970,
-- stands in for it in tests.

-- name: lease_acquire :many Lease
-- Take a lease for :lease_us microseconds when nobody has it; no row while somebody does, be it the same owner.
-- differs: the clock; a row lock decides between two who come at once.
with taken as (
    update main.leases set
        owner = :owner,
        token = nextval('main.lease_tokens'),
        expires_at = coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
            + cast(:lease_us as bigint) * interval '1 microsecond'
    where name = :name
        and expires_at <= coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
    returning *
), made as (
    insert into main.leases (name, owner, token, expires_at)
    select :name, :owner, nextval('main.lease_tokens'),
        coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
            + cast(:lease_us as bigint) * interval '1 microsecond'
    where not exists (select from main.leases where name = :name)
    on conflict (name) do nothing
    returning *
)
select taken.* from taken union all select made.* from made;

-- name: lease_renew :many Lease
-- Let a lease end :lease_us microseconds from now; no row when it has ended or somebody else has it.
-- differs: the clock.
update main.leases set
    expires_at = coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
        + cast(:lease_us as bigint) * interval '1 microsecond'
where name = :name and owner = :owner and token = :token
    and expires_at > coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
returning *;

-- name: lease_release :many text
-- End a lease now; no row when it has ended or somebody else has it. The row stays, for its token.
-- differs: the clock.
update main.leases set
    expires_at = coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
where name = :name and owner = :owner and token = :token
    and expires_at > coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
returning name;

-- name: lease_get :one Lease
-- Who has a lease now.
-- differs: the clock.
select * from main.leases
where name = :name
    and expires_at > coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp());

-- name: lease_left :one int
-- In how many microseconds a lease ends that somebody has; no row when nobody has it.
-- differs: the clock.
select cast(extract(epoch from expires_at - coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())) * 1000000 as bigint) from main.leases
where name = :name
    and expires_at > coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp());

-- name: lease_list :many Lease
-- One page of the leases that somebody has now, sorted by the bytes of their names.
-- differs: the clock.
select * from main.leases
where expires_at > coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
order by name
limit :limit offset :offset;

-- name: lease_check :one Lease
-- A lease that is still held, kept from any other owner until the transaction ends; no row when it was lost.
-- differs: the clock, and a row lock. Renewing changes no key and does not wait for it; a new token is a new key and does.
select * from main.leases
where name = :name and owner = :owner and token = :token
    and expires_at > coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
for key share;

-- name: lease_drop :many text
-- End a lease whose row nobody needs; no row when it has ended or somebody else has it.
-- differs: the clock.
delete from main.leases
where name = :name and owner = :owner and token = :token and expires_at > coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
returning name;

-- name: lease_delete_session :many text
-- Delete the leases named after a session or one of its agents, and locks on them that nobody holds; returns their names.
-- :lock is what stands before the name of a lock. A lock that is held goes when it is given back.
-- differs: the clock.
delete from main.leases
where name = :session_id
    or name in (select agent_id from main.session_agents where session_id = :session_id)
    or (expires_at <= coalesce(timestamptz 'epoch' + cast(:now as bigint) * interval '1 microsecond', clock_timestamp())
        and (name = cast(:lock as text) || :session_id
            or name in (select cast(:lock as text) || agent_id from main.session_agents where session_id = :session_id)))
returning name;

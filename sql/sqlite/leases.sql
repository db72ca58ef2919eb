-- Leases: the database's clock decides. :now, microseconds since 1970, stands in for it in tests.

-- name: lease_acquire :many Lease
-- Take a lease for :lease_us microseconds when nobody has it; no row while somebody does, be it the same owner.
-- differs: the clock; one writer at a time.
insert into leases (name, owner, token, expires_at)
values (:name, :owner, (select last + 1 from lease_tokens),
    coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer)) + :lease_us)
on conflict (name) do update set owner = excluded.owner, token = excluded.token, expires_at = excluded.expires_at
where expires_at <= coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer))
returning *;

-- name: lease_renew :many Lease
-- Let a lease end :lease_us microseconds from now; no row when it has ended or somebody else has it.
-- differs: the clock.
update leases set expires_at = coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer)) + :lease_us
where name = :name and owner = :owner and token = :token
    and expires_at > coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer))
returning *;

-- name: lease_release :many text
-- End a lease now; no row when it has ended or somebody else has it. The row stays, for its token.
-- differs: the clock.
update leases set expires_at = coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer))
where name = :name and owner = :owner and token = :token
    and expires_at > coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer))
returning name;

-- name: lease_get :one Lease
-- Who has a lease now.
-- differs: the clock.
select * from leases
where name = :name and expires_at > coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer));

-- name: lease_left :one int
-- In how many microseconds a lease ends that somebody has; no row when nobody has it.
-- differs: the clock.
select expires_at - coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer)) from leases
where name = :name
    and expires_at > coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer));

-- name: lease_list :many Lease
-- One page of the leases that somebody has now, sorted by the bytes of their names.
-- differs: the clock.
select * from leases
where expires_at > coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer))
order by name
limit :limit offset :offset;

-- name: lease_check :one Lease
-- A lease that is still held, kept from any other owner until the transaction ends; no row when it was lost.
-- differs: the clock; the transaction is the lock.
select * from leases
where name = :name and owner = :owner and token = :token
    and expires_at > coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer));

-- name: lease_drop :many text
-- End a lease whose row nobody needs; no row when it has ended or somebody else has it.
-- differs: the clock.
delete from leases
where name = :name and owner = :owner and token = :token and expires_at > coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer))
returning name;

-- name: lease_delete_session :many text
-- Delete the leases named after a session or one of its agents, and locks on them that nobody holds; returns their names.
-- :lock is what stands before the name of a lock. A lock that is held goes when it is given back.
-- differs: the clock.
delete from leases
where name = :session_id
    or name in (select agent_id from session_agents where session_id = :session_id)
    or (expires_at <= coalesce(:now, cast(unixepoch('subsec') * 1000000 as integer))
        and (name = cast(:lock as text) || :session_id
            or name in (select cast(:lock as text) || agent_id from session_agents where session_id = :session_id)))
returning name;

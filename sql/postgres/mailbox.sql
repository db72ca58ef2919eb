-- The mailbox on PostgreSQL. Rows are locked one by one, and a row that another consumer holds is passed over.
--
-- What runs thousands of times a second takes its parameters as `(select ...)`: with the values in sight a plan made for one
-- call always looks cheaper than the general one, so every call would be planned anew (140 us of the server's time a claim, 40
-- without).
--
-- Who looks from a mark passes over rows that another transaction, which was still at work when the statement began, has locked
-- or changed. `skip locked` would do so too, but it asks the lock manager about each of them or follows it to its new version:
-- beside 15 other consumers of 100 rows that was more than half of the server's time. Lockers that are done do not count, so what
-- came back is taken in its place; a look from the start (:mark is 0) passes over nothing.

-- name: mailbox_send :one Delivery
-- Put one delivery into a mailbox, to be handed out after :delay_us microseconds; no row when its key is in use.
-- differs: the clock is written differently.
insert into main.task_deliveries
    (session_id, task_id, priority, content, status, created_at, due_at, max_attempts, dedupe_key)
values (:address, :task_id, :priority, :content,
    case when cast(:delay_us as bigint) > 0 then 'waiting' else 'pending' end,
    to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
    case when cast(:delay_us as bigint) > 0 then clock_timestamp() + cast(:delay_us as bigint) * interval '1 microsecond' end,
    :max_attempts, :key)
on conflict (session_id, dedupe_key) where dedupe_key is not null do nothing
returning *;

-- name: mailbox_send_many :many int
-- Put many deliveries into a mailbox, in the order of :contents; returns their ids in no order.
-- differs: one statement over an array, in one round trip.
insert into main.task_deliveries (session_id, task_id, priority, content, status, created_at, max_attempts)
select :address, '', :priority, given.content, 'pending', to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'), :max_attempts
from unnest(cast(:contents as text[])) with ordinality as given (content, place)
order by given.place
returning id;

-- name: mailbox_claim :many int, text, text, text, text, text, int, text
-- Finish up to :limit pending deliveries of one address and return them, in no order; null takes all. Only those after :mark
-- are looked at: before it the caller found nothing left, only dead index entries that cost time. Of a row only what the caller
-- does not know comes back.
-- With `id in (select ... limit n for update skip locked)` some plans claim the whole mailbox for a limit of one (seen with
-- hash aggregation off); an array is computed once. `order by id` would let the planner walk the primary key. The rows are locked,
-- so they stay where they are: found again by place, not by key, they cost a tenth less. One that another consumer took and gave
-- back after this statement began is passed over.
-- plan: task_deliveries_ready
update main.task_deliveries set status = 'delivered', attempts = attempts + 1,
    delivered_at = (select to_char(statement_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
where ctid = any(array(
    select ctid from main.task_deliveries
    where session_id = (select cast(:address as text)) and status = 'pending' and pos > (select cast(:mark as bigint))
        and coalesce(priority = (select cast(:priority as text)), true)
        and ((select cast(:mark as bigint)) = 0 or age(xmax) > (select age(pg_snapshot_xmin(pg_current_snapshot())::xid)))
    order by pos
    limit (select cast(:limit as bigint))
    for update skip locked
))
returning id, task_id, priority, content, created_at, delivered_at, attempts, last_error;

-- name: mailbox_claim_urgent :many int, text, text, text, text, text, int, text
-- As mailbox_claim, of one priority other than low.
-- plan: task_deliveries_high
update main.task_deliveries set status = 'delivered', attempts = attempts + 1,
    delivered_at = (select to_char(statement_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
where ctid = any(array(
    select ctid from main.task_deliveries
    where session_id = (select cast(:address as text)) and status = 'pending' and pos > (select cast(:mark as bigint))
        and priority = (select cast(:priority as text)) and priority <> 'low'
        and ((select cast(:mark as bigint)) = 0 or age(xmax) > (select age(pg_snapshot_xmin(pg_current_snapshot())::xid)))
    order by pos
    limit (select cast(:limit as bigint))
    for update skip locked
))
returning id, task_id, priority, content, created_at, delivered_at, attempts, last_error;

-- name: mailbox_lease :many int, text, text, text, text, text, int, int, text, int
-- Lease up to :limit pending deliveries of one address after :mark to :worker for :lease_us microseconds, in no order. The
-- attempt is counted here, in the same commit: a worker that dies has had its try.
-- plan: task_deliveries_ready
update main.task_deliveries set status = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
    lease_worker = :worker, due_at = (select clock_timestamp() + cast(:lease_us as bigint) * interval '1 microsecond')
where ctid = any(array(
    select ctid from main.task_deliveries
    where session_id = (select cast(:address as text)) and status = 'pending' and pos > (select cast(:mark as bigint))
        and coalesce(priority = (select cast(:priority as text)), true)
        and ((select cast(:mark as bigint)) = 0 or age(xmax) > (select age(pg_snapshot_xmin(pg_current_snapshot())::xid)))
    order by pos
    limit (select cast(:limit as bigint))
    for update skip locked
))
returning id, task_id, priority, content, created_at, delivered_at, attempts,
    cast(date_part('epoch', due_at) * 1000000 as bigint), last_error, lease_token;

-- name: mailbox_lease_urgent :many int, text, text, text, text, text, int, int, text, int
-- As mailbox_lease, of one priority other than low.
-- plan: task_deliveries_high
update main.task_deliveries set status = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
    lease_worker = :worker, due_at = (select clock_timestamp() + cast(:lease_us as bigint) * interval '1 microsecond')
where ctid = any(array(
    select ctid from main.task_deliveries
    where session_id = (select cast(:address as text)) and status = 'pending' and pos > (select cast(:mark as bigint))
        and priority = (select cast(:priority as text)) and priority <> 'low'
        and ((select cast(:mark as bigint)) = 0 or age(xmax) > (select age(pg_snapshot_xmin(pg_current_snapshot())::xid)))
    order by pos
    limit (select cast(:limit as bigint))
    for update skip locked
))
returning id, task_id, priority, content, created_at, delivered_at, attempts,
    cast(date_part('epoch', due_at) * 1000000 as bigint), last_error, lease_token;

-- name: mailbox_ack_lease :many int, text, text, text, text, text, int, int, text, int
-- Finish leased deliveries (:ids, all leased with the same :token) and lease the next ones, in one round trip. When one of them
-- was not finished nothing new is leased, and those come back with their ids alone: their leases are lost, or another change was
-- committed meanwhile, which mailbox_ack_many tells apart.
-- only: postgres; SQLite does the two in one transaction, which costs it nothing.
-- plan: task_deliveries_ready
with acked as (
    update main.task_deliveries set status = 'delivered', due_at = null, last_error = null,
        delivered_at = (select to_char(statement_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
    where ctid = any(array(
        select ctid from main.task_deliveries
        where id = any((select cast(:ids as bigint[]))::bigint[]) and status = 'leased' and lease_token = (select cast(:token as bigint))
        order by id
        for update
    ))
    returning id
),
next as (
    update main.task_deliveries set status = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
        lease_worker = :worker, due_at = (select clock_timestamp() + cast(:lease_us as bigint) * interval '1 microsecond')
    where (select count(*) from acked) = (select cardinality(cast(:ids as bigint[]))) and ctid = any(array(
        select ctid from main.task_deliveries
        where session_id = (select cast(:address as text)) and status = 'pending' and pos > (select cast(:mark as bigint))
            and coalesce(priority = (select cast(:priority as text)), true)
            and ((select cast(:mark as bigint)) = 0 or age(xmax) > (select age(pg_snapshot_xmin(pg_current_snapshot())::xid)))
        order by pos
        limit (select cast(:limit as bigint))
        for update skip locked
    ))
    returning id, task_id, priority, content, created_at, delivered_at, attempts,
        cast(date_part('epoch', due_at) * 1000000 as bigint) as due_us, last_error, lease_token
)
select given.id, '', '', '', '', null, 0, null, null, 0
from unnest((select cast(:ids as bigint[]))) as given (id)
where given.id not in (select id from acked)
union all
select next.* from next;

-- name: mailbox_renew :one LeasedDelivery
-- Let a lease end :lease_us microseconds from now; no row when it was lost.
update main.task_deliveries set due_at = clock_timestamp() + cast(:lease_us as bigint) * interval '1 microsecond'
where id = :id and status = 'leased' and lease_token = :token
returning *;

-- name: mailbox_ack :many int
-- Finish one leased delivery; returns its id, nothing when the lease was lost.
update main.task_deliveries set status = 'delivered', due_at = null, last_error = null,
    delivered_at = to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
where id = :id and status = 'leased' and lease_token = :token
returning id;

-- name: mailbox_ack_many :many int
-- Finish leased deliveries, :ids with :tokens; returns the ids of those whose lease was held. Rows are locked by id, so that two
-- callers with the same rows in opposite orders do not wait for each other.
-- differs: one statement over arrays, in one round trip.
update main.task_deliveries set status = 'delivered', due_at = null, last_error = null,
    delivered_at = (select to_char(statement_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
where id = any(array(
    select t.id from main.task_deliveries t
    join unnest((select cast(:ids as bigint[])), (select cast(:tokens as bigint[]))) as given (id, token) on given.id = t.id
    where t.status = 'leased' and t.lease_token = given.token
    order by t.id
    for update of t
))
returning id;

-- name: mailbox_release :one Delivery
-- Give a leased delivery back, to be handed out again after :delay_us microseconds; dead when it has had all its attempts. No row
-- when the lease was lost.
update main.task_deliveries set
    status = case when attempts >= coalesce(max_attempts, :max_attempts) then 'dead'
        when cast(:delay_us as bigint) > 0 then 'waiting' else 'pending' end,
    due_at = case when attempts < coalesce(max_attempts, :max_attempts) and cast(:delay_us as bigint) > 0
        then clock_timestamp() + cast(:delay_us as bigint) * interval '1 microsecond' end,
    dead_at = case when attempts >= coalesce(max_attempts, :max_attempts) then clock_timestamp() end,
    last_error = coalesce(cast(:error as text), last_error,
        case when attempts >= coalesce(max_attempts, :max_attempts) then 'released' end)
where id = :id and status = 'leased' and lease_token = :token
returning *;

-- name: mailbox_sweep :many text
-- Give back up to :limit deliveries of one address whose lease or delay has ended: to be handed out again, or dead when a lease
-- has used up the last attempt. Returns the new status of each.
-- plan: task_deliveries_due
update main.task_deliveries set
    status = case when status = 'leased' and attempts >= coalesce(max_attempts, :max_attempts) then 'dead' else 'pending' end,
    dead_at = case when status = 'leased' and attempts >= coalesce(max_attempts, :max_attempts) then clock_timestamp() end,
    last_error = case when status = 'leased' then coalesce(last_error, 'lease expired') else last_error end,
    due_at = null
where id = any(array(
    select id from main.task_deliveries
    where session_id = (select cast(:address as text)) and due_at <= (select clock_timestamp())
        and status in ('leased', 'waiting')
    order by due_at
    limit (select cast(:limit as bigint))
    for update skip locked
))
returning status;

-- name: mailbox_ready :many text, int
-- Which of the addresses have a delivery to hand out, 0, or will have one: microseconds from now. Others have no row.
-- differs: lists come as arrays.
select given.address, next.due
from unnest((select cast(:topics as text[]))) as given (address)
cross join lateral (
    select 0::bigint as due where exists (
        select from main.task_deliveries where session_id = given.address and status = 'pending')
    union all
    select case when min(due_at) is not null
        then greatest(0, cast(extract(epoch from min(due_at) - clock_timestamp()) * 1000000 as bigint)) end
    from main.task_deliveries where session_id = given.address and due_at is not null and status in ('leased', 'waiting')
    order by 1
    limit 1
) next
where next.due is not null;

-- name: mailbox_pending :many Delivery
-- Deliveries of one address to be handed out, in the order of arrival.
-- plan: task_deliveries_ready
select * from main.task_deliveries where session_id = :address and status = 'pending' order by pos limit :limit;

-- name: mailbox_dead :many Delivery
-- Deliveries of one address that are given up, in the order of arrival.
-- plan: task_deliveries_dead
select * from main.task_deliveries where session_id = :address and status = 'dead' and dead_at is not null
order by pos limit :limit;

-- name: mailbox_revive :many text
-- Hand a dead delivery out again, with all its attempts; returns its address, nothing when it is not dead.
update main.task_deliveries set status = 'pending', attempts = 0, dead_at = null, due_at = null
where id = :id and status = 'dead'
returning session_id;

-- name: mailbox_mark :many int
-- Stamp deliveries as delivered, whoever holds them; returns the ids of those that were not yet.
-- differs: lists come as arrays.
update main.task_deliveries set status = 'delivered', due_at = null, dead_at = null,
    delivered_at = (select to_char(statement_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
where id = any(array(
    select id from main.task_deliveries where id = any(cast(:ids as bigint[])) and status <> 'delivered' order by id for update
))
returning id;

-- name: mailbox_purge :many int
-- Delete up to :limit deliveries after an id that were delivered before a moment; returns their ids.
delete from main.task_deliveries
where id = any(array(
    select id from main.task_deliveries
    where id > :after_id and status = 'delivered' and delivered_at collate "C" < :before
    order by id
    limit :limit
))
returning id;

-- The mailbox on SQLite. One writer at a time, so nothing is locked; mailbox_ready tells which rows to look at.

-- name: mailbox_send :one Delivery
-- Put one delivery into a mailbox, to be handed out after :delay_us microseconds; no row when its key is in use.
-- differs: the clock counts microseconds since 1970, in steps of a millisecond.
insert into task_deliveries
    (session_id, task_id, priority, content, status, created_at, due_at, max_attempts, dedupe_key)
values (:address, :task_id, :priority, :content, case when :delay_us > 0 then 'waiting' else 'pending' end,
    strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'),
    case when :delay_us > 0 then cast(unixepoch('subsec') * 1000000 as integer) + :delay_us end,
    :max_attempts, :key)
on conflict (session_id, dedupe_key) where dedupe_key is not null do nothing
returning *;

-- name: mailbox_send_many :many int
-- Put one of many deliveries into a mailbox; returns its id.
-- differs: run once for each content, in one transaction.
insert into task_deliveries (session_id, task_id, priority, content, status, created_at, max_attempts)
values (:address, '', :priority, :content, 'pending', strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'), :max_attempts)
returning id;

-- name: mailbox_claim_one :many int, text, text, text, text, text, int, text
-- As mailbox_claim for a limit of one and any priority; only what the caller does not know comes back.
-- only: sqlite; a list in `in (select ...)` is a temporary table, which costs a single row as much as the row itself.
update task_deliveries set status = 'delivered', attempts = attempts + 1,
    delivered_at = strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
where id = (
    select r.id from mailbox_ready r
    where r.session_id = :address and r.id > :mark
        and (select status from task_deliveries where id = r.id) = 'pending'
    order by r.id
    limit 1
)
returning id, task_id, priority, content, created_at, delivered_at, attempts, last_error;

-- name: mailbox_claim_next :many int, text, text, text, text, text, int, text
-- As mailbox_claim_one, of the one delivery with this id; no row when it is not pending, or not in this mailbox.
-- only: sqlite; an update that looks for its row in another table first takes twice as long.
update task_deliveries set status = 'delivered', attempts = attempts + 1,
    delivered_at = strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
where id = :id and session_id = :address and status = 'pending'
returning id, task_id, priority, content, created_at, delivered_at, attempts, last_error;

-- name: mailbox_claim :many int, text, text, text, text, text, int, text
-- Finish up to :limit pending deliveries of one address after :mark and return them, in no order; null takes all.
-- differs: a null limit is "all" on PostgreSQL only.
update task_deliveries set status = 'delivered', attempts = attempts + 1,
    delivered_at = (select strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'))
where id in (
    select r.id from mailbox_ready r
    where r.session_id = :address and r.id > :mark
        and (:priority is null or r.priority = :priority)
        and (select status from task_deliveries where id = r.id) = 'pending'
    order by r.id
    limit coalesce(:limit, -1)
)
returning id, task_id, priority, content, created_at, delivered_at, attempts, last_error;

-- name: mailbox_claim_urgent :many int, text, text, text, text, text, int, text
-- As mailbox_claim, of one priority other than low.
-- plan: mailbox_ready_priority
-- differs: as mailbox_claim.
update task_deliveries set status = 'delivered', attempts = attempts + 1,
    delivered_at = (select strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'))
where id in (
    select r.id from mailbox_ready r
    where r.session_id = :address and r.id > :mark
        and r.priority = :priority and r.priority <> 'low'
        and (select status from task_deliveries where id = r.id) = 'pending'
    order by r.id
    limit coalesce(:limit, -1)
)
returning id, task_id, priority, content, created_at, delivered_at, attempts, last_error;

-- name: mailbox_lease_one :many int, text, text, text, text, text, int, int, text, int
-- As mailbox_lease for a limit of one and any priority.
-- only: sqlite; as mailbox_claim_one.
update task_deliveries set status = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
    lease_worker = :worker, due_at = cast(unixepoch('subsec') * 1000000 as integer) + :lease_us
where id = (
    select r.id from mailbox_ready r
    where r.session_id = :address and r.id > :mark
        and (select status from task_deliveries where id = r.id) = 'pending'
    order by r.id
    limit 1
)
returning id, task_id, priority, content, created_at, delivered_at, attempts, due_at, last_error, lease_token;

-- name: mailbox_lease_next :many int, text, text, text, text, text, int, int, text, int
-- As mailbox_lease_one, of the one delivery with this id; no row when it is not pending, or not in this mailbox.
-- only: sqlite; as mailbox_claim_next.
update task_deliveries set status = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
    lease_worker = :worker, due_at = cast(unixepoch('subsec') * 1000000 as integer) + :lease_us
where id = :id and session_id = :address and status = 'pending'
returning id, task_id, priority, content, created_at, delivered_at, attempts, due_at, last_error, lease_token;

-- name: mailbox_lease :many int, text, text, text, text, text, int, int, text, int
-- Lease up to :limit pending deliveries of one address after :mark to :worker for :lease_us microseconds, in no order. The
-- attempt is counted here, in the same commit: a worker that dies has had its try.
update task_deliveries set status = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
    lease_worker = :worker, due_at = cast(unixepoch('subsec') * 1000000 as integer) + :lease_us
where id in (
    select r.id from mailbox_ready r
    where r.session_id = :address and r.id > :mark
        and (:priority is null or r.priority = :priority)
        and (select status from task_deliveries where id = r.id) = 'pending'
    order by r.id
    limit :limit
)
returning id, task_id, priority, content, created_at, delivered_at, attempts, due_at, last_error, lease_token;

-- name: mailbox_lease_urgent :many int, text, text, text, text, text, int, int, text, int
-- As mailbox_lease, of one priority other than low.
-- plan: mailbox_ready_priority
update task_deliveries set status = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
    lease_worker = :worker, due_at = cast(unixepoch('subsec') * 1000000 as integer) + :lease_us
where id in (
    select r.id from mailbox_ready r
    where r.session_id = :address and r.id > :mark
        and r.priority = :priority and r.priority <> 'low'
        and (select status from task_deliveries where id = r.id) = 'pending'
    order by r.id
    limit :limit
)
returning id, task_id, priority, content, created_at, delivered_at, attempts, due_at, last_error, lease_token;

-- name: mailbox_clear_taken :none
-- Forget that these deliveries of one address were ready; those that are pending again stay.
-- only: sqlite; PostgreSQL's partial index forgets by itself.
delete from mailbox_ready
where session_id = :address and id in (select value from json_each(:ids)) and not exists (
    select 1 from task_deliveries d
    where d.id = mailbox_ready.id and d.status = 'pending'
);

-- name: mailbox_clear_ready :none
-- As mailbox_clear_taken, for everything of one address before an id.
-- only: sqlite; as mailbox_clear_taken.
delete from mailbox_ready
where session_id = :address and id < :before and not exists (
    select 1 from task_deliveries d
    where d.id = mailbox_ready.id and d.status = 'pending'
);

-- name: mailbox_left :one int
-- How many rows the ready list has for one address before an id, as far as :limit.
-- only: sqlite; as mailbox_clear_taken.
select count(*) from (select 1 from mailbox_ready where session_id = :address and id < :before limit :limit);

-- name: mailbox_renew :one LeasedDelivery
-- Let a lease end :lease_us microseconds from now; no row when it was lost.
update task_deliveries set due_at = cast(unixepoch('subsec') * 1000000 as integer) + :lease_us
where id = :id and status = 'leased' and lease_token = :token
returning *;

-- name: mailbox_ack :many int
-- Finish one leased delivery; returns its id, nothing when the lease was lost.
update task_deliveries set status = 'delivered', due_at = null, last_error = null,
    delivered_at = strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
where id = :id and status = 'leased' and lease_token = :token
returning id;

-- name: mailbox_ack_many :many int
-- Finish one of many leased deliveries; returns its id, nothing when the lease was lost.
-- differs: run once for each row, in one transaction.
update task_deliveries set status = 'delivered', due_at = null, last_error = null,
    delivered_at = strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
where id = :id and status = 'leased' and lease_token = :token
returning id;

-- name: mailbox_release :one Delivery
-- Give a leased delivery back, to be handed out again after :delay_us microseconds; dead when it has had all its attempts. No row
-- when the lease was lost.
update task_deliveries set
    status = case when attempts >= coalesce(max_attempts, :max_attempts) then 'dead'
        when :delay_us > 0 then 'waiting' else 'pending' end,
    due_at = case when attempts < coalesce(max_attempts, :max_attempts) and :delay_us > 0 then cast(unixepoch('subsec') * 1000000 as integer) + :delay_us end,
    dead_at = case when attempts >= coalesce(max_attempts, :max_attempts) then cast(unixepoch('subsec') * 1000000 as integer) end,
    last_error = coalesce(:error, last_error,
        case when attempts >= coalesce(max_attempts, :max_attempts) then 'released' end)
where id = :id and status = 'leased' and lease_token = :token
returning *;

-- name: mailbox_sweep :many text
-- Give back up to :limit deliveries of one address whose lease or delay has ended: to be handed out again, or dead when a lease
-- has used up the last attempt. Returns the new status of each. What another program finished meanwhile stays finished: it knows
-- nothing of due_at, so the row is found here once.
-- plan: task_deliveries_due
update task_deliveries set
    status = case when status = 'leased' and attempts >= coalesce(max_attempts, :max_attempts) then 'dead'
        when status in ('leased', 'waiting') then 'pending' else status end,
    dead_at = case when status = 'leased' and attempts >= coalesce(max_attempts, :max_attempts) then cast(unixepoch('subsec') * 1000000 as integer) else dead_at end,
    last_error = case when status = 'leased' then coalesce(last_error, 'lease expired') else last_error end,
    due_at = null
where id in (
    select id from task_deliveries where session_id = :address and due_at <= cast(unixepoch('subsec') * 1000000 as integer) order by due_at limit :limit
)
returning status;

-- name: mailbox_ready :many text, int
-- Which of the addresses have a delivery to hand out, 0, or will have one: microseconds from now. Others have no row.
-- differs: lists come as JSON text.
select * from (
    select g.value, case
        when exists (
            select 1 from mailbox_ready r cross join task_deliveries d on d.id = r.id
            where r.session_id = g.value and d.status = 'pending') then 0
        else (select max(0, min(due_at) - cast(unixepoch('subsec') * 1000000 as integer)) from task_deliveries
            where session_id = g.value and due_at is not null and status in ('leased', 'waiting'))
        end as due
    from json_each(:topics) g
)
where due is not null;

-- name: mailbox_pending :many Delivery
-- Deliveries of one address to be handed out, in the order of arrival.
select d.* from mailbox_ready r cross join task_deliveries d on d.id = r.id
where r.session_id = :address and d.status = 'pending'
order by r.id limit :limit;

-- name: mailbox_dead :many Delivery
-- Deliveries of one address that are given up, in the order of arrival.
-- plan: task_deliveries_dead
select * from task_deliveries where session_id = :address and status = 'dead' and dead_at is not null
order by id limit :limit;

-- name: mailbox_revive :many text
-- Hand a dead delivery out again, with all its attempts; returns its address, nothing when it is not dead.
update task_deliveries set status = 'pending', attempts = 0, dead_at = null, due_at = null
where id = :id and status = 'dead'
returning session_id;

-- name: mailbox_mark :many int
-- Stamp deliveries as delivered, whoever holds them; returns the ids of those that were not yet.
-- differs: lists come as JSON text.
update task_deliveries set status = 'delivered', due_at = null, dead_at = null,
    delivered_at = (select strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'))
where id in (select value from json_each(:ids)) and status <> 'delivered'
returning id;

-- name: mailbox_purge :many int
-- Delete up to :limit deliveries after an id that were delivered before a moment; returns their ids.
delete from task_deliveries
where id in (
    select id from task_deliveries
    where id > :after_id and status = 'delivered' and delivered_at < :before
    order by id
    limit :limit
)
returning id;

-- The mailbox: reading it, and what needs no clock.

-- name: mailbox_get :one Delivery
-- One delivery by id.
select * from main.task_deliveries where id = :id;

-- name: mailbox_find_key :one Delivery
-- The delivery of one address that holds a key.
-- plan: task_deliveries_key
select * from main.task_deliveries where session_id = :address and dedupe_key = :key;

-- name: mailbox_free_key :none
-- Take a key from a delivery that is finished, so that it can be used again.
update main.task_deliveries set dedupe_key = null
where session_id = :address and dedupe_key = :key and status in ('delivered', 'dead');

-- name: mailbox_count :many text, int
-- How many deliveries of one address stand in each status.
select status, count(*) from main.task_deliveries where session_id = :address group by status;

-- name: mailbox_last :one int
-- The newest delivery's id; 0 when there is none.
select coalesce(max(id), 0) from main.task_deliveries;

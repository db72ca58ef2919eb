-- The mailbox: leases, delays and attempts on task_deliveries, and what finds the next row to hand out.
-- Rows of other programs get the defaults and can be claimed.

alter table main.task_deliveries
    -- leases and claims so far; past max_attempts (null: the setting of whoever leases) an unfinished row is dead
    add column attempts integer not null default 0,
    add column max_attempts integer,
    -- end of a lease, or of a delay
    add column due_at timestamptz,
    -- grows with every lease of the row: who holds an older one has lost it
    add column lease_token bigint not null default 0,
    add column lease_worker text,
    add column last_error text,
    add column dedupe_key text,
    add column dead_at timestamptz,
    -- the order of arrival. Only the partial indexes below have it, so that no plan for "the first few" can walk the
    -- primary key through all history (137 ms a claim after 200,000 rows)
    add column pos bigint not null generated always as (id) stored;

create index task_deliveries_ready on main.task_deliveries (session_id, pos) where status = 'pending';
-- a search for the urgent ones must not walk the others
create index task_deliveries_high on main.task_deliveries (session_id, priority, pos)
where status = 'pending' and priority <> 'low';
-- not by their status: every claim would compare it for each of them
create index task_deliveries_due on main.task_deliveries (session_id, due_at) where due_at is not null;
create index task_deliveries_dead on main.task_deliveries (session_id, pos) where dead_at is not null;
create unique index task_deliveries_key on main.task_deliveries (session_id, dedupe_key) where dedupe_key is not null;

-- Every claim had to write to these two as well (a fifth of its time). Nothing looks a delivery up by its task; what is asked of
-- a mailbox concerns rows that are not finished, which the indexes above find, but for the count of those that are.
drop index if exists main.ix_task_deliveries_task_id;
drop index if exists main.ix_task_deliveries_session_id;

-- rows here change once or twice and are done: clear their old versions away early, and leave each page room for new ones
alter table main.task_deliveries set (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000
);

-- the highest task-N is found at once, whoever made it
create index tasks_number on main.tasks (cast(substr(task_id, 6) as bigint)) where task_id ~ '^task-[0-9]{1,15}$';

-- The mailbox: leases, delays and attempts on task_deliveries, and what finds the next row to hand out.
-- Rows of other programs get the defaults and can be claimed.

-- leases and claims so far; past max_attempts (null: the setting of whoever leases) an unfinished row is dead
alter table task_deliveries add column attempts integer not null default 0;
alter table task_deliveries add column max_attempts integer;
-- end of a lease, or of a delay; microseconds since 1970
alter table task_deliveries add column due_at integer;
-- grows with every lease of the row: who holds an older one has lost it
alter table task_deliveries add column lease_token integer not null default 0;
alter table task_deliveries add column lease_worker text;
alter table task_deliveries add column last_error text;
alter table task_deliveries add column dedupe_key text;
-- set while the row is dead; an index on the status itself would cost every claim a look
alter table task_deliveries add column dead_at integer;

create index task_deliveries_due on task_deliveries (session_id, due_at) where due_at is not null;
create index task_deliveries_dead on task_deliveries (session_id, id) where dead_at is not null;
create unique index task_deliveries_key on task_deliveries (session_id, dedupe_key) where dedupe_key is not null;

-- Every pending row stands here, and some that were pending until a moment ago: a claim changes only the row it takes and
-- writes one page instead of two; what is no longer pending is passed over, and cleared away every few dozen claims.
create table mailbox_ready (
    session_id text not null,
    id integer not null,
    priority text not null,
    primary key (session_id, id)
) without rowid;
create index mailbox_ready_priority on mailbox_ready (session_id, priority, id) where priority <> 'low';
insert into mailbox_ready (session_id, id, priority)
select session_id, id, priority from task_deliveries where status = 'pending';

-- not `or replace`: the statement that fires a trigger decides over such a clause, an upsert's own words stand
create trigger mailbox_ready_insert after insert on task_deliveries when new.status = 'pending' begin
    insert into mailbox_ready (session_id, id, priority) values (new.session_id, new.id, new.priority)
    on conflict (session_id, id) do update set priority = excluded.priority;
end;
-- Whatever puts a row back sets due_at too. A trigger on the status would run at every claim and cost it a tenth.
create trigger mailbox_ready_update after update of due_at, session_id, priority on task_deliveries
when new.status = 'pending' begin
    delete from mailbox_ready where session_id = old.session_id and id = old.id and old.session_id <> new.session_id;
    insert into mailbox_ready (session_id, id, priority) values (new.session_id, new.id, new.priority)
    on conflict (session_id, id) do update set priority = excluded.priority;
end;
create trigger mailbox_ready_delete after delete on task_deliveries begin
    delete from mailbox_ready where session_id = old.session_id and id = old.id;
end;

-- the highest task-N is found at once, whoever made it
create index tasks_number on tasks (cast(substr(task_id, 6) as integer))
where task_id glob 'task-[0-9]*' and not substr(task_id, 6) glob '*[^0-9]*' and length(task_id) <= 20;

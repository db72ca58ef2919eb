-- Tasks: what must know the clock, or which row came first.

-- name: task_add :one Task
-- Register a running task; no row when the id is taken.
-- differs: the clock is written differently.
insert into main.tasks (task_id, kind, owner_session, tool_call_id, sub_session, prompt, model, priority, status, created_at)
values (:task_id, :kind, :owner_session, :tool_call_id, :sub_session, :prompt, :model, :priority, 'running',
    to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
on conflict (task_id) do nothing
returning *;

-- name: task_add_next :one Task
-- Register a running task under the number after the highest task-N; no row when another took it first.
-- plan: tasks_number
insert into main.tasks (task_id, kind, owner_session, tool_call_id, sub_session, prompt, model, priority, status, created_at)
select 'task-' || (coalesce(max(cast(substr(task_id, 6) as bigint)), 0) + 1), :kind, :owner_session, :tool_call_id, :sub_session, :prompt, :model,
    :priority, 'running', to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
from main.tasks
where task_id ~ '^task-[0-9]{1,15}$'
on conflict (task_id) do nothing
returning *;

-- name: task_cancel :many text
-- End a running task without a result; returns its id, nothing when it has ended or is unknown.
update main.tasks set status = 'cancelled', finished_at = to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
where task_id = :task_id and status = 'running'
returning task_id;

-- name: task_list :many Task
-- Tasks in the order they were launched, perhaps of one status only.
select * from main.tasks
where cast(:status as text) is null or status = :status
order by created_at collate "C", task_id
limit :limit;

-- name: task_list_owner :many Task
-- As task_list, of one owner.
-- plan: ix_tasks_owner_session
select * from main.tasks
where owner_session = :owner_session and (cast(:status as text) is null or status = :status)
order by created_at collate "C", task_id
limit :limit;

-- name: task_by_sub :one Task
-- The newest task that a session works on.
-- plan: ix_tasks_sub_session
select * from main.tasks where sub_session = :sub_session order by created_at collate "C" desc, task_id desc limit 1;

-- name: task_finish :one text, text, text
-- End a running task and, when :deliver is 1, put its mail into the owner's mailbox, in one step: of any number of callers one
-- gets a row (owner, task, priority), and there is one delivery.
with done as (
    update main.tasks set status = :status, result = :result, finished_at = to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
    where task_id = :task_id and status = 'running'
    returning owner_session, task_id, priority
),
mail as (
    insert into main.task_deliveries (session_id, task_id, priority, content, status, created_at, max_attempts)
    select owner_session, task_id, priority, :content, 'pending', to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'), :max_attempts
    from done
    where cast(:deliver as integer) = 1
)
select owner_session, task_id, priority from done;

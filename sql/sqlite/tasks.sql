-- Tasks: what must know the clock, or which row came first.

-- name: task_add :one Task
-- Register a running task; no row when the id is taken.
-- differs: SQLite's clock counts milliseconds.
insert into tasks (task_id, kind, owner_session, tool_call_id, sub_session, prompt, model, priority, status, created_at)
values (:task_id, :kind, :owner_session, :tool_call_id, :sub_session, :prompt, :model, :priority, 'running',
    strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'))
on conflict (task_id) do nothing
returning *;

-- name: task_add_next :one Task
-- Register a running task under the number after the highest task-N; no row when another took it first.
-- plan: tasks_number
insert into tasks (task_id, kind, owner_session, tool_call_id, sub_session, prompt, model, priority, status, created_at)
select 'task-' || (coalesce(max(cast(substr(task_id, 6) as integer)), 0) + 1), :kind, :owner_session, :tool_call_id, :sub_session, :prompt, :model,
    :priority, 'running', strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
from tasks
where task_id glob 'task-[0-9]*' and not substr(task_id, 6) glob '*[^0-9]*' and length(task_id) <= 20
on conflict (task_id) do nothing
returning *;

-- name: task_cancel :many text
-- End a running task without a result; returns its id, nothing when it has ended or is unknown.
update tasks set status = 'cancelled', finished_at = strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
where task_id = :task_id and status = 'running'
returning task_id;

-- name: task_list :many Task
-- Tasks in the order they were launched, perhaps of one status only.
select * from tasks
where cast(:status as text) is null or status = :status
order by created_at, rowid
limit :limit;

-- name: task_list_owner :many Task
-- As task_list, of one owner.
-- plan: ix_tasks_owner_session
select * from tasks
where owner_session = :owner_session and (cast(:status as text) is null or status = :status)
order by created_at, rowid
limit :limit;

-- name: task_by_sub :one Task
-- The newest task that a session works on.
-- plan: ix_tasks_sub_session
select * from tasks where sub_session = :sub_session order by created_at desc, rowid desc limit 1;

-- name: task_finish :one text, text, text
-- End a running task: of any number of callers one gets a row (owner, task, priority).
-- differs: a CTE may not hold an update here, so the mail is a second statement of the same transaction.
update tasks set status = :status, result = :result, finished_at = strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')
where task_id = :task_id and status = 'running'
returning owner_session, task_id, priority;

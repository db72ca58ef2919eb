-- Tasks: work that one session handed to another. A task ends once; its result is mail to the session that owns it.

-- name: task_get :one Task
-- One task by id.
select * from main.tasks where task_id = :task_id;

-- name: task_set_sub :many text
-- Name the session that works on a task; returns the task's id.
update main.tasks set sub_session = :sub_session where task_id = :task_id returning task_id;

-- name: task_reopen :many text
-- A task that ended is running again; returns its id, nothing when it is running or unknown.
update main.tasks set status = 'running', finished_at = null
where task_id = :task_id and status <> 'running'
returning task_id;

-- name: task_count :one int
-- How many tasks there are.
select count(*) from main.tasks;

-- name: task_count_owner :one int
-- How many tasks one session owns.
-- plan: ix_tasks_owner_session
select count(*) from main.tasks where owner_session = :owner_session;

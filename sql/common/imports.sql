-- Imports: how far other programs' histories were read, and which messages came of them.

-- name: import_source_get :one ImportSource
-- How far a file was read.
select * from main.import_sources where path = :path;

-- name: import_session_get :one ImportedSession
-- Where a session came from.
select * from main.import_sessions where session_id = :session_id;

-- name: import_session_put :none
-- Note where a session comes from. What is empty does not replace what is known; the first file stays the session's.
insert into main.import_sessions as s (session_id, format, path, title, git_branch, parent)
values (:session_id, :format, :path, :title, :git_branch, :parent)
on conflict (session_id) do update set
    title = case when excluded.title = '' then s.title else excluded.title end,
    git_branch = case when excluded.git_branch = '' then s.git_branch else excluded.git_branch end,
    parent = case when excluded.parent = '' then s.parent else excluded.parent end;

-- name: import_agent_new :many text
-- Make the agent row of an imported agent; its id, or no row when the id is taken.
insert into main.agents (agent_id, session_id, agent_idx, fork_idx, cwd, system_prompt, tool_definitions, request_params,
    model_identifier, status, created_at)
values (:agent_id, :session_id, :agent_idx, 1, :cwd, '', '[]', '{}', :model, 'imported', :created_at)
on conflict (agent_id) do nothing
returning agent_id;

-- name: import_agent_add :one int
-- Note which agent of ours one of the source is; its number.
insert into main.import_agents (session_id, name, agent_id) values (:session_id, :name, :agent_id) returning id;

-- name: import_agent_seen :none
-- The model and the folder an agent was seen with last; "" leaves what is there.
update main.agents set
    model_identifier = case when :model = '' then model_identifier else :model end,
    cwd = case when :cwd = '' then cwd else :cwd end
where agent_id = :agent_id
    and ((:model <> '' and model_identifier <> :model) or (:cwd <> '' and cwd <> :cwd));

-- name: import_key_put :none
-- Remember a message by one of its keys; a repeat notes that it has grown.
insert into main.import_keys (agent, key, message_id, parts) values (:agent, :key, :message_id, :parts)
on conflict (agent, key) do update set message_id = excluded.message_id, parts = excluded.parts;

-- name: import_count_begin :none
-- From here on this transaction counts the messages it adds itself.
insert into main.import_counting (one) values (1);

-- name: import_count_end :none
-- The transaction has counted them.
delete from main.import_counting;

-- name: import_is_empty :one int
-- 1 when the store has no messages.
select case when exists (select 1 from main.messages) then 0 else 1 end;

-- name: import_fork_put :none
-- The anchor of a fork that was imported without one.
update main.agents set forked_at = :forked_at where agent_id = :agent_id and forked_at is null;

-- name: import_task_put :many text
-- Take over a task; its id, or no row when the id is taken.
insert into main.tasks (task_id, kind, owner_session, tool_call_id, sub_session, prompt, model, priority, status, result,
    created_at, finished_at)
values (:task_id, :kind, :owner_session, :tool_call_id, :sub_session, :prompt, :model, :priority, :status, :result,
    :created_at, :finished_at)
on conflict (task_id) do nothing
returning task_id;

-- name: import_delivery_put :many int
-- Take over a piece of mail; its id.
insert into main.task_deliveries (session_id, task_id, priority, content, status, created_at, delivered_at)
values (:session_id, :task_id, :priority, :content, :status, :created_at, :delivered_at)
returning id;

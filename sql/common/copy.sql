-- Copying a store into another, of any dialect. Rows travel in one neutral form: JSON as text, times of our own tables as
-- microseconds since 1970. Each pair of statements reads a page by key and writes one row; a repeat changes nothing that is equal.

-- name: copy_prompts :many text, text, text, text
-- A page of prompts.
select id, name, template, created_at from main.prompts where id > :after order by id limit :limit;

-- name: copy_prompts_put :none
-- One prompt.
insert into main.prompts (id, name, template, created_at) values (:id, :name, :template, :created_at)
on conflict (id) do nothing;

-- name: copy_titles :many text, text
-- A page of sessions' titles.
select session_id, title from main.session_summaries
where session_id > :after and title is not null order by session_id limit :limit;

-- name: copy_titles_put :none
-- One session's title.
update main.session_summaries set title = :title where session_id = :session_id;

-- name: copy_messages_last :one int
-- The newest message there is: messages come in the order of their ids, a piece a transaction.
select coalesce(max(id), 0) from main.messages;

-- name: copy_message_ids :many int
-- Which messages there are after an id and up to another, oldest first.
select id from main.messages where id > :after and id <= :upto order by id limit :limit;

-- name: copy_image_keys :many text
-- A page of the images that messages name.
select distinct key from main.image_refs where key > :after order by key limit :limit;

-- name: copy_branches :many int, int, int
-- A page of tapes' branches.
select branch, parent, shared from main.tape_branches where branch > :after order by branch limit :limit;

-- name: copy_branches_put :none
-- One branch; a branch never changes.
insert into main.tape_branches (branch, parent, shared) values (:branch, :parent, :shared) on conflict (branch) do nothing;

-- name: copy_import_sessions :many text, text, text, text, text, text
-- A page of what is known of imported sessions.
select session_id, format, path, title, git_branch, parent from main.import_sessions
where session_id > :after order by session_id limit :limit;

-- name: copy_import_sessions_put :none
-- What is known of one imported session.
insert into main.import_sessions (session_id, format, path, title, git_branch, parent)
values (:session_id, :format, :path, :title, :git_branch, :parent)
on conflict (session_id) do update set format = excluded.format, path = excluded.path, title = excluded.title,
    git_branch = excluded.git_branch, parent = excluded.parent;

-- name: copy_import_keys :many int, int, int, int
-- A page of the keys by which imported messages are known.
select agent, key, message_id, parts from main.import_keys
where agent > :after_agent or (agent = :after_agent and key > :after_key)
order by agent, key limit :limit;

-- name: copy_import_keys_put :none
-- One such key.
insert into main.import_keys (agent, key, message_id, parts) values (:agent, :key, :message_id, :parts)
on conflict (agent, key) do update set message_id = excluded.message_id, parts = excluded.parts;

-- name: copy_tasks :many text, text, text, text, text, text, text, text, text, text, text, text
-- A page of tasks.
select task_id, kind, owner_session, tool_call_id, sub_session, prompt, model, priority, status, result, created_at,
    finished_at
from main.tasks where task_id > :after order by task_id limit :limit;

-- name: copy_tasks_put :none
-- One row of tasks.
insert into main.tasks (task_id, kind, owner_session, tool_call_id, sub_session, prompt, model, priority, status,
    result, created_at, finished_at)
values (:task_id, :kind, :owner_session, :tool_call_id, :sub_session, :prompt, :model, :priority, :status, :result,
    :created_at, :finished_at)
on conflict (task_id) do update set
    kind = excluded.kind, owner_session = excluded.owner_session, tool_call_id = excluded.tool_call_id, sub_session =
    excluded.sub_session, prompt = excluded.prompt, model = excluded.model, priority = excluded.priority, status =
    excluded.status, result = excluded.result, created_at = excluded.created_at, finished_at = excluded.finished_at;

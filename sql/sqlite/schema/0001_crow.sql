-- The five tables of the crow file format (v5), with its names, columns and indexes, so that an existing crow.db opens as it
-- is and crow-cli reads what this step makes. An existing file keeps its own tables.

create table if not exists prompts (
    id text not null,
    name text not null,
    template text not null,
    created_at text not null,
    primary key (id)
);

create table if not exists agents (
    agent_id text not null,
    session_id text not null,
    agent_idx integer not null,
    fork_idx integer not null,
    forked_at text,
    cwd text not null,
    prompt_id text,
    prompt_args json,
    system_prompt text not null,
    tool_definitions json not null,
    mcp_servers json,
    request_params json not null,
    model_identifier text not null,
    status text not null,
    created_at text not null,
    primary key (agent_id)
);
create index if not exists ix_agents_session_id on agents (session_id);

-- autoincrement: an id is never given out twice, so a follower cannot miss a row that took a deleted one's number
create table if not exists messages (
    id integer primary key autoincrement not null,
    agent_id text not null,
    fork_idx integer not null,
    created_at text not null,
    data json not null,
    role text not null,
    prompt_tokens integer,
    completion_tokens integer,
    total_tokens integer
);
create index if not exists ix_messages_agent_id on messages (agent_id);

create table if not exists tasks (
    task_id text not null,
    kind text not null,
    owner_session text not null,
    tool_call_id text,
    sub_session text,
    prompt text not null,
    model text,
    priority text not null,
    status text not null,
    result text,
    created_at text not null,
    finished_at text,
    primary key (task_id)
);
create index if not exists ix_tasks_owner_session on tasks (owner_session);
create index if not exists ix_tasks_sub_session on tasks (sub_session);

create table if not exists task_deliveries (
    id integer primary key autoincrement not null,
    session_id text not null,
    task_id text not null,
    priority text not null,
    content text not null,
    status text not null,
    created_at text not null,
    delivered_at text
);
create index if not exists ix_task_deliveries_session_id on task_deliveries (session_id);
create index if not exists ix_task_deliveries_task_id on task_deliveries (task_id);

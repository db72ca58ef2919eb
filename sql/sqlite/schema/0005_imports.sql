-- What was imported from other programs' histories: how far each file was read, which sessions and agents came of it, and by
-- which keys their messages are known, so that a message comes in once, whatever file brings it and however often.

-- offset_bytes, lines, state: where reading goes on. fingerprint: of the bytes before the offset, and of files read with this
-- one; when it differs the file is read from its start.
create table import_sources (
    path text not null primary key,
    format text not null,
    session_id text not null,
    size_bytes integer not null,
    modified_us integer not null,
    offset_bytes integer not null,
    lines integer not null,
    state text not null,
    fingerprint text not null,
    imported_at text not null
) without rowid;
create index import_sources_session on import_sources (session_id);

create table import_sessions (
    session_id text not null primary key,
    format text not null,
    path text not null,
    title text not null,
    git_branch text not null,
    parent text not null
) without rowid;

-- name: as the source has it, 'main' for the session's own agent
create table import_agents (
    id integer primary key autoincrement not null,
    session_id text not null,
    name text not null,
    agent_id text not null,
    constraint import_agents_name unique (session_id, name),
    constraint import_agents_agent unique (agent_id)
);

-- key: 64 bits of what tells a message apart within its agent. parts: how much of it there was; more replaces it
create table import_keys (
    agent integer not null,
    key integer not null,
    message_id integer not null,
    parts integer not null,
    primary key (agent, key)
) without rowid;

-- a deleted session leaves nothing here; importing its file again brings it back
create trigger import_agents_gone after delete on agents begin
    delete from import_keys where agent in (select id from import_agents where agent_id = old.agent_id);
    delete from import_agents where agent_id = old.agent_id;
    delete from import_sources where session_id = old.session_id;
    delete from import_sessions where session_id = old.session_id;
end;

-- While a transaction has a row here it counts the messages it adds itself, a session at once; counting row by row costs as much
-- again as inserting. Nobody else sees the row: the transaction takes it away before it ends.
create table import_counting (one integer not null);
drop trigger messages_summary_insert;
create trigger messages_summary_insert after insert on messages
when new.indexed = 0 and not exists (select 1 from import_counting) begin
    -- the other trigger may run after this one
    insert into stray_agents (agent_id)
    select new.agent_id where not exists (select 1 from agents where agent_id = new.agent_id)
    on conflict (agent_id) do nothing;
    insert into session_summaries (session_id, all_activity)
    select session_id, '' from stray_agents where agent_id = new.agent_id
    on conflict (session_id) do nothing;
    update session_summaries set
        all_messages = all_messages + 1,
        all_activity = case when all_messages = 0 then new.created_at else max(all_activity, new.created_at) end,
        trunk_messages = trunk_messages + (a.fork_idx = 1),
        trunk_activity = case when a.fork_idx <> 1 then trunk_activity
            when trunk_messages = 0 then new.created_at else max(trunk_activity, new.created_at) end,
        first_messages = first_messages + (a.fork_idx = 1 and a.agent_idx = 1)
    from (select session_id as owner, fork_idx, agent_idx from session_agents where agent_id = new.agent_id) a
    where session_id = a.owner;
end;

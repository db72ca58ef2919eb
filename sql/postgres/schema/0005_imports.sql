-- What was imported from other programs' histories: how far each file was read, which sessions and agents came of it, and by
-- which keys their messages are known, so that a message comes in once, whatever file brings it and however often.

-- offset_bytes, lines, state: where reading goes on. fingerprint: of the bytes before the offset, and of files read with this
-- one; when it differs the file is read from its start.
create table main.import_sources (
    path text collate "C" not null,
    format text not null,
    session_id text not null,
    size_bytes bigint not null,
    modified_us bigint not null,
    offset_bytes bigint not null,
    lines bigint not null,
    state text not null,
    fingerprint text not null,
    imported_at timestamptz not null,
    constraint import_sources_pkey primary key (path)
);
create index import_sources_session on main.import_sources (session_id);

create table main.import_sessions (
    session_id text not null,
    format text not null,
    path text not null,
    title text not null,
    git_branch text not null,
    parent text not null,
    constraint import_sessions_pkey primary key (session_id)
);

-- name: as the source has it, 'main' for the session's own agent
create table main.import_agents (
    id bigint generated always as identity,
    session_id text not null,
    name text not null,
    agent_id text not null,
    constraint import_agents_pkey primary key (id),
    constraint import_agents_name unique (session_id, name),
    constraint import_agents_agent unique (agent_id)
);

-- key: 64 bits of what tells a message apart within its agent. parts: how much of it there was; more replaces it
create table main.import_keys (
    agent bigint not null,
    key bigint not null,
    message_id bigint not null,
    parts integer not null,
    constraint import_keys_pkey primary key (agent, key)
);

-- a deleted session leaves nothing here; importing its file again brings it back
create function main.crowmem_import_gone() returns trigger language plpgsql as $$
begin
    delete from main.import_keys where agent in (
        select i.id from main.import_agents i join gone on gone.agent_id = i.agent_id);
    delete from main.import_agents where agent_id in (select agent_id from gone);
    delete from main.import_sources where session_id in (select session_id from gone);
    delete from main.import_sessions where session_id in (select session_id from gone);
    return null;
end $$;
create trigger import_agents_gone after delete on main.agents
    referencing old table as gone for each statement execute function main.crowmem_import_gone();

-- While a transaction has a row here it counts the messages it adds itself, a session at once; counting row by row costs as much
-- again as inserting. Nobody else sees the row: the transaction takes it away before it ends.
create table main.import_counting (one integer not null);
create or replace function main.crowmem_messages_summary() returns trigger language plpgsql as $$
declare
    place record;
    trunk integer;
    first integer;
begin
    if exists (select 1 from main.import_counting) then
        return null;
    end if;
    select a.session_id, a.agent_idx, a.fork_idx into place from main.agents a where a.agent_id = new.agent_id;
    if not found then
        place := main.crowmem_place(new.agent_id);
    end if;
    trunk := (place.fork_idx = 1)::int;
    first := (place.fork_idx = 1 and place.agent_idx = 1)::int;
    -- one statement, which waits for whoever deletes the session: its row is made again then, and the agent's is gone
    insert into main.session_summaries as s
        (session_id, all_activity, all_messages, trunk_activity, trunk_messages, first_messages, stray)
    values (place.session_id, new.created_at, 1, case when trunk = 1 then new.created_at else '' end, trunk, first, new.agent_id)
    on conflict (session_id) do update set
        all_messages = s.all_messages + 1,
        all_activity = case when s.all_messages = 0 then new.created_at else greatest(s.all_activity, new.created_at) end,
        trunk_messages = s.trunk_messages + trunk,
        trunk_activity = case when trunk = 0 then s.trunk_activity
            when s.trunk_messages = 0 then new.created_at else greatest(s.trunk_activity, new.created_at) end,
        first_messages = s.first_messages + first,
        stray = main.crowmem_without_row(new.agent_id);
    return null;
end $$;

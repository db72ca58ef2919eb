-- What crowmem adds to the crow tables: additive columns, settings, and one summary row a session, kept true for any writer.

create table main.crowmem_settings (
    name text not null primary key,
    value text not null
);
insert into main.crowmem_settings (name, value) values ('store_id', replace(gen_random_uuid()::text, '-', ''));

-- indexed: 0 until the message is in the search index and counted; rows of other writers stay 0 until they are caught up.
-- injected: 1 for text the user never wrote (wrappers, compaction summaries), kept but left out of searches by default.
alter table main.messages
    add column indexed smallint not null default 0,
    add column injected smallint not null default 0;
-- the agent a fork was made from; null: the trunk. Its own rows up to forked_at are shared too
alter table main.agents add column forked_from text;
create index messages_foreign on main.messages (id) where indexed = 0;
create index agents_newest on main.agents (session_id, fork_idx, agent_idx);

-- Whose session an agent without a row is: read from its id as crowmem.ids reads it; an id of no such form is its own session's
-- first agent.
create function main.crowmem_place(agent_id text, out session_id text, out agent_idx integer, out fork_idx integer)
language sql immutable parallel safe as $$
    select case when formed then part[1] else $1 end,
        case when formed then cast(cast(part[2] as bigint) as integer) else 1 end,
        case when formed then cast(cast(part[3] as bigint) as integer) else 1 end
    from (
        select part, cast(part[2] as bigint) <= 2147483647 and cast(part[3] as bigint) <= 2147483647 as formed
        from regexp_match($1, '^(.+)-([0-9]{1,10})-([0-9]{1,10})$') as m (part)
    ) read
$$;

-- Agents that have messages and no row: one whose session was deleted while it went on, or one whose messages came before it.
create table main.stray_agents (
    agent_id text not null,
    session_id text not null,
    agent_idx integer not null,
    fork_idx integer not null,
    constraint stray_agents_pkey primary key (agent_id)
);
create index stray_agents_session on main.stray_agents (session_id);
insert into main.stray_agents (agent_id, session_id, agent_idx, fork_idx)
select m.agent_id, p.session_id, p.agent_idx, p.fork_idx
from (
    select distinct agent_id from main.messages
    where not exists (select 1 from main.agents a where a.agent_id = messages.agent_id)
) m cross join lateral main.crowmem_place(m.agent_id) p;

-- Every agent of a session, those without a row among them: these were never made, so created_at is null.
create view main.session_agents as
select session_id, agent_id, agent_idx, fork_idx, created_at from main.agents
union all
select session_id, agent_id, agent_idx, fork_idx, null from main.stray_agents;

-- all_ counts every fork, trunk_ fork 1 only. first_messages counts those of agent 1 on the trunk: the second gives the title.
-- A session has agents or messages; one that has neither is none.
-- newest_agent: the agent whose row came last, while it is there: an add needs no look for it, which would cost a twelfth of it.
-- stray: whoever adds messages names their agent here when it makes the row, or finds that the agent has none.
-- fillfactor: a summary is updated with each message, in place while its page has room
create table main.session_summaries (
    session_id text collate "C" not null primary key,
    all_activity text collate "C" not null,
    all_messages bigint not null default 0,
    all_agents bigint not null default 0,
    trunk_activity text collate "C" not null default '',
    trunk_messages bigint not null default 0,
    trunk_agents bigint not null default 0,
    first_messages bigint not null default 0,
    model_identifier text not null default '',
    cwd text not null default '',
    title text,
    newest_agent text,
    stray text
) with (fillfactor = 70);
create index session_summaries_all on main.session_summaries (all_activity desc, session_id);
create index session_summaries_trunk on main.session_summaries (trunk_activity desc, session_id)
where trunk_agents > 0 or trunk_messages > 0;
-- a hash: an index row ends at 2,704 bytes, a directory's name need not
create index session_summaries_cwd on main.session_summaries (hashtextextended(cwd, 0), trunk_activity desc)
where trunk_agents > 0 or trunk_messages > 0;

-- What the summaries should say, counted.
create view main.session_facts as
select a.session_id,
    coalesce(max(m.last), max(a.created_at collate "C"), '') as all_activity,
    cast(sum(m.messages) as bigint) as all_messages,
    count(a.created_at) as all_agents,
    coalesce(max(m.last) filter (where a.fork_idx = 1), max(a.created_at collate "C") filter (where a.fork_idx = 1), '')
        as trunk_activity,
    cast(coalesce(sum(m.messages) filter (where a.fork_idx = 1), 0) as bigint) as trunk_messages,
    count(a.created_at) filter (where a.fork_idx = 1) as trunk_agents,
    cast(coalesce(sum(m.messages) filter (where a.fork_idx = 1 and a.agent_idx = 1), 0) as bigint) as first_messages,
    coalesce((select n.model_identifier from main.agents n where n.session_id = a.session_id
        order by n.fork_idx = 1 desc, n.agent_idx desc, n.fork_idx limit 1), '') as model_identifier,
    coalesce((select n.cwd from main.agents n where n.session_id = a.session_id
        order by n.fork_idx = 1 desc, n.agent_idx desc, n.fork_idx limit 1), '') as cwd
from main.session_agents a cross join lateral (
    select count(*) as messages, max(m.created_at collate "C") as last from main.messages m where m.agent_id = a.agent_id
) m
group by a.session_id;

insert into main.session_summaries
    (session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages,
     model_identifier, cwd)
select session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages,
    model_identifier, cwd
from main.session_facts;

-- Count a session again; the title it has stays. Whoever adds a message holds the summary until it commits: what is counted
-- here is either seen or will count itself.
create function main.crowmem_session_mend(wanted text) returns void language plpgsql as $$
begin
    loop  -- another may delete the row between the two
        insert into main.session_summaries (session_id, all_activity) values (wanted, '') on conflict (session_id) do nothing;
        perform 1 from main.session_summaries where session_id = wanted for update;
        exit when found;
    end loop;
    update main.session_summaries s set
        all_activity = f.all_activity, all_messages = f.all_messages, all_agents = f.all_agents,
        trunk_activity = f.trunk_activity, trunk_messages = f.trunk_messages, trunk_agents = f.trunk_agents,
        first_messages = f.first_messages, model_identifier = f.model_identifier, cwd = f.cwd, newest_agent = null
    from main.session_facts f
    where s.session_id = wanted and f.session_id = wanted;
    delete from main.session_summaries where session_id = wanted
        and not exists (select 1 from main.session_agents a where a.session_id = wanted);
end $$;

create function main.crowmem_agents_summary() returns trigger language plpgsql as $$
declare
    agent main.agents;
    stray main.stray_agents;
begin
    if tg_op = 'INSERT' then
        agent := new;
        -- one statement: another may delete the row between two
        insert into main.session_summaries as s (session_id, all_activity, all_agents, trunk_activity, trunk_agents, newest_agent)
        values (new.session_id, new.created_at, 1, case when new.fork_idx = 1 then new.created_at else '' end,
            (new.fork_idx = 1)::int, new.agent_id)
        on conflict (session_id) do update set
            all_agents = s.all_agents + 1,
            all_activity = case when s.all_messages = 0 then greatest(s.all_activity, new.created_at) else s.all_activity end,
            trunk_agents = s.trunk_agents + excluded.trunk_agents,
            trunk_activity = case when new.fork_idx = 1 and s.trunk_messages = 0
                then greatest(s.trunk_activity, new.created_at) else s.trunk_activity end,
            newest_agent = new.agent_id;
        delete from main.stray_agents where agent_id = new.agent_id returning * into stray;
    elsif tg_op = 'DELETE' then
        agent := old;
        delete from main.session_summaries where session_id = old.session_id and all_agents <= 1 and all_messages <= 0;
        update main.session_summaries set
            all_agents = all_agents - 1,
            all_activity = case when all_messages > 0 then all_activity else coalesce(
                (select max(a.created_at collate "C") from main.agents a where a.session_id = old.session_id), all_activity) end,
            trunk_agents = trunk_agents - (old.fork_idx = 1)::int,
            trunk_activity = case when trunk_messages > 0 then trunk_activity else coalesce(
                (select max(a.created_at collate "C") from main.agents a
                where a.session_id = old.session_id and a.fork_idx = 1), '') end,
            newest_agent = nullif(newest_agent, old.agent_id)
        where session_id = old.session_id;
        -- after the summary, which whoever adds a message holds: its message is seen here, or it sees that the row is gone
        if exists (select 1 from main.messages where agent_id = old.agent_id) then
            insert into main.stray_agents (agent_id, session_id, agent_idx, fork_idx)
            select old.agent_id, p.session_id, p.agent_idx, p.fork_idx from main.crowmem_place(old.agent_id) p
            on conflict (agent_id) do nothing;
            select * into stray from main.stray_agents where agent_id = old.agent_id;
        end if;
    else
        agent := new;
    end if;
    -- without the row its messages count where its id says, which is the row's place but for odd ids
    if (stray.session_id, stray.agent_idx, stray.fork_idx) <> (agent.session_id, agent.agent_idx, agent.fork_idx) then
        perform main.crowmem_session_mend(agent.session_id);
        perform main.crowmem_session_mend(stray.session_id);
    else
        update main.session_summaries s set model_identifier = coalesce(a.model_identifier, ''), cwd = coalesce(a.cwd, '')
        from (select 1) one left join lateral (
            select model_identifier, cwd from main.agents
            where session_id = agent.session_id
            order by fork_idx = 1 desc, agent_idx desc, fork_idx limit 1
        ) a on true
        where s.session_id = agent.session_id;
    end if;
    return null;
end $$;
create trigger agents_summary_change after insert or delete on main.agents
    for each row execute function main.crowmem_agents_summary();
create trigger agents_summary_update after update of model_identifier, cwd on main.agents
    for each row execute function main.crowmem_agents_summary();

-- rows that crowmem writes count themselves in the same statement; only other writers' rows need the trigger
create function main.crowmem_messages_summary() returns trigger language plpgsql as $$
declare
    place record;
    trunk integer;
    first integer;
begin
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
create trigger messages_summary_insert after insert on main.messages
    for each row when (new.indexed = 0) execute function main.crowmem_messages_summary();

-- The agent itself when it has no row, else null.
create function main.crowmem_without_row(wanted text) returns text language plpgsql as $$
begin
    if exists (select 1 from main.agents where agent_id = wanted) then
        return null;
    end if;
    return wanted;
end $$;

-- Noted from here, since a trigger on messages would cost an add a fifth more (89 to 108 us). It runs at the statement's end, when
-- the summary is held: a row of agents that was deleted until then is seen to be gone.
create function main.crowmem_stray() returns trigger language plpgsql as $$
begin
    insert into main.stray_agents (agent_id, session_id, agent_idx, fork_idx)
    select new.stray, p.session_id, p.agent_idx, p.fork_idx from main.crowmem_place(new.stray) p
    where main.crowmem_without_row(new.stray) is not null
    on conflict (agent_id) do nothing;
    return null;
end $$;
create trigger session_summaries_stray after insert or update of stray on main.session_summaries
    for each row when (new.stray is not null) execute function main.crowmem_stray();

-- The newest message's stamp is the session's last activity: when it goes, the next newest is looked for.
create function main.crowmem_messages_removed() returns trigger language plpgsql as $$
declare
    lost record;
    kept main.session_summaries;
begin
    for lost in
        select coalesce(a.session_id, p.session_id) as session_id, sum(g.n) as n, max(g.last) as last,
            coalesce(sum(g.n) filter (where coalesce(a.fork_idx, p.fork_idx) = 1), 0) as trunk,
            max(g.last) filter (where coalesce(a.fork_idx, p.fork_idx) = 1) as trunk_last,
            coalesce(sum(g.n) filter (where coalesce(a.fork_idx, p.fork_idx) = 1 and coalesce(a.agent_idx, p.agent_idx) = 1), 0)
                as first
        from (select agent_id, count(*) as n, max(created_at collate "C") as last from gone group by agent_id) g
        left join main.agents a using (agent_id)
        cross join lateral main.crowmem_place(g.agent_id) p
        group by 1
        order by 1
    loop
        update main.session_summaries set
            all_messages = all_messages - lost.n,
            trunk_messages = trunk_messages - lost.trunk,
            first_messages = first_messages - lost.first
        where session_id = lost.session_id
        returning * into kept;
        if not found then
            continue;
        end if;
        delete from main.stray_agents s
        where s.session_id = lost.session_id and s.agent_id in (select agent_id from gone)
            and not exists (select 1 from main.messages m where m.agent_id = s.agent_id);
        if kept.all_messages <= 0 and kept.all_agents <= 0 then
            delete from main.session_summaries where session_id = lost.session_id;
        elsif lost.last >= kept.all_activity or lost.trunk_last >= kept.trunk_activity then
            perform main.crowmem_session_mend(lost.session_id);
        end if;
    end loop;
    return null;
end $$;
create trigger messages_summary_delete after delete on main.messages
    referencing old table as gone for each statement execute function main.crowmem_messages_removed();

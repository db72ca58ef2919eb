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

-- all_ counts every fork, trunk_ fork 1 only. first_messages counts those of agent 1 on the trunk: the second gives the title.
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
    title text
) with (fillfactor = 70);
create index session_summaries_all on main.session_summaries (all_activity desc, session_id) where all_agents > 0;
create index session_summaries_trunk on main.session_summaries (trunk_activity desc, session_id) where trunk_agents > 0;
create index session_summaries_cwd on main.session_summaries (cwd, trunk_activity desc, session_id) where trunk_agents > 0;

insert into main.session_summaries
    (session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages,
     model_identifier, cwd)
select a.session_id,
    coalesce(max(m.last collate "C"), max(a.created_at collate "C")),
    coalesce(sum(m.n), 0),
    count(*),
    coalesce(max(m.last collate "C") filter (where a.fork_idx = 1), max(a.created_at collate "C") filter (where a.fork_idx = 1), ''),
    coalesce(sum(m.n) filter (where a.fork_idx = 1), 0),
    count(*) filter (where a.fork_idx = 1),
    coalesce(sum(m.n) filter (where a.fork_idx = 1 and a.agent_idx = 1), 0),
    (array_agg(a.model_identifier order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx))[1],
    (array_agg(a.cwd order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx))[1]
from main.agents a
left join (
    select agent_id, count(*) as n, max(created_at collate "C") as last from main.messages group by agent_id
) m using (agent_id)
group by a.session_id;

create function main.crowmem_agents_summary() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into main.session_summaries (session_id, all_activity, trunk_activity)
        values (new.session_id, new.created_at, case when new.fork_idx = 1 then new.created_at else '' end)
        on conflict (session_id) do nothing;
        update main.session_summaries set
            all_agents = all_agents + 1,
            all_activity = case when all_messages = 0 then greatest(all_activity, new.created_at) else all_activity end,
            trunk_agents = trunk_agents + (new.fork_idx = 1)::int,
            trunk_activity = case when new.fork_idx = 1 and trunk_messages = 0
                then greatest(trunk_activity, new.created_at) else trunk_activity end
        where session_id = new.session_id;
    elsif tg_op = 'DELETE' then
        delete from main.session_summaries where session_id = old.session_id and all_agents <= 1;
        update main.session_summaries set
            all_agents = all_agents - 1,
            trunk_agents = trunk_agents - (old.fork_idx = 1)::int
        where session_id = old.session_id;
    end if;
    update main.session_summaries s set model_identifier = a.model_identifier, cwd = a.cwd
    from (
        select model_identifier, cwd from main.agents
        where session_id = coalesce(new.session_id, old.session_id)
        order by fork_idx = 1 desc, agent_idx desc, fork_idx limit 1
    ) a
    where s.session_id = coalesce(new.session_id, old.session_id);
    return null;
end $$;
create trigger agents_summary_change after insert or delete on main.agents
    for each row execute function main.crowmem_agents_summary();
create trigger agents_summary_update after update of model_identifier, cwd on main.agents
    for each row execute function main.crowmem_agents_summary();

-- rows that crowmem writes count themselves in the same statement; only other writers' rows need the trigger
create function main.crowmem_messages_summary() returns trigger language plpgsql as $$
begin
    update main.session_summaries set
        all_messages = all_messages + 1,
        all_activity = case when all_messages = 0 then new.created_at else greatest(all_activity, new.created_at) end,
        trunk_messages = trunk_messages + (a.fork_idx = 1)::int,
        trunk_activity = case when a.fork_idx <> 1 then trunk_activity
            when trunk_messages = 0 then new.created_at else greatest(trunk_activity, new.created_at) end,
        first_messages = first_messages + (a.fork_idx = 1 and a.agent_idx = 1)::int
    from main.agents a
    where a.agent_id = new.agent_id and session_summaries.session_id = a.session_id;
    return null;
end $$;
create trigger messages_summary_insert after insert on main.messages
    for each row when (new.indexed = 0) execute function main.crowmem_messages_summary();

create function main.crowmem_messages_removed() returns trigger language plpgsql as $$
begin
    update main.session_summaries s set
        all_messages = all_messages - g.n,
        trunk_messages = trunk_messages - g.trunk,
        first_messages = first_messages - g.first
    from (
        select a.session_id, count(*) as n, count(*) filter (where a.fork_idx = 1) as trunk,
            count(*) filter (where a.fork_idx = 1 and a.agent_idx = 1) as first
        from gone join main.agents a using (agent_id)
        group by a.session_id
    ) g
    where s.session_id = g.session_id;
    return null;
end $$;
create trigger messages_summary_delete after delete on main.messages
    referencing old table as gone for each statement execute function main.crowmem_messages_removed();

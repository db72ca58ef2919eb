-- What crowmem adds to the crow tables: additive columns, settings, and one summary row a session, kept true for any writer.

create table crowmem_settings (
    name text not null primary key,
    value text not null
);
insert into crowmem_settings (name, value) values ('store_id', lower(hex(randomblob(16))));

-- 0 until the message is in the search index and counted; rows of other writers stay 0 until they are caught up
alter table messages add column indexed integer not null default 0;
-- 1: text the user never wrote (wrappers, compaction summaries), kept but left out of searches by default
alter table messages add column injected integer not null default 0;
-- the agent a fork was made from; null: the trunk. Its own rows up to forked_at are shared too
alter table agents add column forked_from text;
create index messages_foreign on messages (id) where indexed = 0;
create index agents_newest on agents (session_id, fork_idx, agent_idx);

-- all_ counts every fork, trunk_ fork 1 only. first_messages counts those of agent 1 on the trunk: the second gives the title.
create table session_summaries (
    session_id text not null primary key,
    all_activity text not null,
    all_messages integer not null default 0,
    all_agents integer not null default 0,
    trunk_activity text not null default '',
    trunk_messages integer not null default 0,
    trunk_agents integer not null default 0,
    first_messages integer not null default 0,
    model_identifier text not null default '',
    cwd text not null default '',
    title text
) without rowid;
create index session_summaries_all on session_summaries (all_activity desc, session_id) where all_agents > 0;
create index session_summaries_trunk on session_summaries (trunk_activity desc, session_id) where trunk_agents > 0;
create index session_summaries_cwd on session_summaries (cwd, trunk_activity desc, session_id) where trunk_agents > 0;

insert into session_summaries
    (session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages)
select a.session_id,
    coalesce(max(m.last), max(a.created_at)),
    coalesce(sum(m.n), 0),
    count(*),
    coalesce(max(m.last) filter (where a.fork_idx = 1), max(a.created_at) filter (where a.fork_idx = 1), ''),
    coalesce(sum(m.n) filter (where a.fork_idx = 1), 0),
    count(*) filter (where a.fork_idx = 1),
    coalesce(sum(m.n) filter (where a.fork_idx = 1 and a.agent_idx = 1), 0)
from agents a
left join (select agent_id, count(*) as n, max(created_at) as last from messages group by agent_id) m using (agent_id)
group by a.session_id;
update session_summaries set (model_identifier, cwd) = (
    select a.model_identifier, a.cwd from agents a where a.session_id = session_summaries.session_id
    order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx limit 1
);

create trigger agents_summary_insert after insert on agents begin
    insert into session_summaries (session_id, all_activity, trunk_activity)
    values (new.session_id, new.created_at, case when new.fork_idx = 1 then new.created_at else '' end)
    on conflict (session_id) do nothing;
    update session_summaries set
        all_agents = all_agents + 1,
        all_activity = case when all_messages = 0 then max(all_activity, new.created_at) else all_activity end,
        trunk_agents = trunk_agents + (new.fork_idx = 1),
        trunk_activity = case when new.fork_idx = 1 and trunk_messages = 0
            then max(trunk_activity, new.created_at) else trunk_activity end,
        (model_identifier, cwd) = (
            select a.model_identifier, a.cwd from agents a where a.session_id = new.session_id
            order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx limit 1)
    where session_id = new.session_id;
end;

create trigger agents_summary_update after update of model_identifier, cwd on agents begin
    update session_summaries set (model_identifier, cwd) = (
        select a.model_identifier, a.cwd from agents a where a.session_id = new.session_id
        order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx limit 1)
    where session_id = new.session_id;
end;

create trigger agents_summary_delete after delete on agents begin
    delete from session_summaries where session_id = old.session_id and all_agents <= 1;
    update session_summaries set
        all_agents = all_agents - 1,
        trunk_agents = trunk_agents - (old.fork_idx = 1),
        (model_identifier, cwd) = (
            select a.model_identifier, a.cwd from agents a where a.session_id = old.session_id
            order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx limit 1)
    where session_id = old.session_id;
end;

-- rows that crowmem writes count themselves in the same statement; only other writers' rows need the trigger
create trigger messages_summary_insert after insert on messages when new.indexed = 0 begin
    update session_summaries set
        all_messages = all_messages + 1,
        all_activity = case when all_messages = 0 then new.created_at else max(all_activity, new.created_at) end,
        trunk_messages = trunk_messages + (a.fork_idx = 1),
        trunk_activity = case when a.fork_idx <> 1 then trunk_activity
            when trunk_messages = 0 then new.created_at else max(trunk_activity, new.created_at) end,
        first_messages = first_messages + (a.fork_idx = 1 and a.agent_idx = 1)
    from (select session_id as owner, fork_idx, agent_idx from agents where agent_id = new.agent_id) a
    where session_id = a.owner;
end;

create trigger messages_summary_delete after delete on messages begin
    update session_summaries set
        all_messages = all_messages - 1,
        trunk_messages = trunk_messages - (a.fork_idx = 1),
        first_messages = first_messages - (a.fork_idx = 1 and a.agent_idx = 1)
    from (select session_id as owner, fork_idx, agent_idx from agents where agent_id = old.agent_id) a
    where session_id = a.owner;
end;

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

-- Agents that have messages and no row: one whose session was deleted while it went on, or one whose messages came before it.
-- Whose session they are is read from their ids as crowmem.ids reads them; an id of no such form is its own session's first agent.
create table stray_agents (
    agent_id text not null primary key,
    before_fork text generated always as (rtrim(agent_id, '0123456789')),
    before_agent text generated always as (rtrim(substr(before_fork, 1, length(before_fork) - 1), '0123456789')),
    fork_digits text generated always as (substr(agent_id, length(before_fork) + 1)),
    agent_digits text generated always as (substr(before_fork, length(before_agent) + 1, length(before_fork) - length(before_agent) - 1)),
    formed integer generated always as (
        substr(before_fork, -1) = '-' and substr(before_agent, -1) = '-' and length(before_agent) > 1
        and length(fork_digits) between 1 and 10 and cast(fork_digits as integer) <= 2147483647
        and length(agent_digits) between 1 and 10 and cast(agent_digits as integer) <= 2147483647),
    session_id text not null generated always as (
        case when formed then substr(before_agent, 1, length(before_agent) - 1) else agent_id end) stored,
    agent_idx integer not null generated always as (case when formed then cast(agent_digits as integer) else 1 end) stored,
    fork_idx integer not null generated always as (case when formed then cast(fork_digits as integer) else 1 end) stored
) without rowid;
create index stray_agents_session on stray_agents (session_id);
insert into stray_agents (agent_id)
select distinct agent_id from messages where agent_id not in (select agent_id from agents);

-- Every agent of a session, those without a row among them: these were never made, so created_at is null.
create view session_agents as
select session_id, agent_id, agent_idx, fork_idx, created_at from agents
union all
select session_id, agent_id, agent_idx, fork_idx, null from stray_agents;

-- all_ counts every fork, trunk_ fork 1 only. first_messages counts those of agent 1 on the trunk: the second gives the title.
-- A session has agents or messages; one that has neither is none.
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
-- A session whose trunk was active last, as most are, stands in one index for both lists, with and without forks; the others stand
-- in one each. So an add moves one entry and not two (a page of some 8 us less to flush).
create index session_summaries_even on session_summaries (trunk_activity desc, session_id)
where trunk_activity = all_activity and (trunk_agents > 0 or trunk_messages > 0);
create index session_summaries_trunk on session_summaries (trunk_activity desc, session_id)
where trunk_activity <> all_activity and (trunk_agents > 0 or trunk_messages > 0);
create index session_summaries_all on session_summaries (all_activity desc, session_id)
where trunk_activity <> all_activity or (trunk_agents <= 0 and trunk_messages <= 0);
create index session_summaries_cwd on session_summaries (cwd, trunk_activity desc, session_id)
where trunk_agents > 0 or trunk_messages > 0;

-- What the summaries should say, counted.
create view session_facts as
select a.session_id,
    coalesce(max(a.last), max(a.created_at), '') as all_activity,
    sum(a.messages) as all_messages,
    count(a.created_at) as all_agents,
    coalesce(max(a.last) filter (where a.fork_idx = 1), max(a.created_at) filter (where a.fork_idx = 1), '') as trunk_activity,
    coalesce(sum(a.messages) filter (where a.fork_idx = 1), 0) as trunk_messages,
    count(a.created_at) filter (where a.fork_idx = 1) as trunk_agents,
    coalesce(sum(a.messages) filter (where a.fork_idx = 1 and a.agent_idx = 1), 0) as first_messages,
    coalesce((select n.model_identifier from agents n where n.session_id = a.session_id
        order by n.fork_idx = 1 desc, n.agent_idx desc, n.fork_idx limit 1), '') as model_identifier,
    coalesce((select n.cwd from agents n where n.session_id = a.session_id
        order by n.fork_idx = 1 desc, n.agent_idx desc, n.fork_idx limit 1), '') as cwd
from (
    select s.session_id, s.agent_idx, s.fork_idx, s.created_at,
        (select count(*) from messages m where m.agent_id = s.agent_id) as messages,
        (select max(m.created_at) from messages m where m.agent_id = s.agent_id) as last
    from session_agents s
) a
group by a.session_id;

insert into session_summaries
    (session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages,
     model_identifier, cwd)
select session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages,
    model_identifier, cwd
from session_facts;

-- `insert into session_mend (session_id)` counts a session again, arrived being an agent that has a row now; the title stays.
create view session_mend as select session_id, '' as arrived from session_summaries where false;
create trigger session_mend_insert instead of insert on session_mend begin
    delete from stray_agents where agent_id = new.arrived;
    delete from session_summaries where session_id = new.session_id
        and not exists (select 1 from session_agents where session_id = new.session_id);
    insert into session_summaries
        (session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages,
         model_identifier, cwd)
    select session_id, all_activity, all_messages, all_agents, trunk_activity, trunk_messages, trunk_agents, first_messages,
        model_identifier, cwd
    from session_facts where session_id = new.session_id
    on conflict (session_id) do update set
        all_activity = excluded.all_activity, all_messages = excluded.all_messages, all_agents = excluded.all_agents,
        trunk_activity = excluded.trunk_activity, trunk_messages = excluded.trunk_messages,
        trunk_agents = excluded.trunk_agents, first_messages = excluded.first_messages,
        model_identifier = excluded.model_identifier, cwd = excluded.cwd;
end;

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
    -- messages that came before the row were counted where their id says, which is the row's place but for odd ids
    insert into session_mend (session_id, arrived)
    select case side.here when 1 then new.session_id else s.session_id end, new.agent_id
    from stray_agents s, (select 1 as here union all select 0) side
    where s.agent_id = new.agent_id
        and (s.session_id <> new.session_id or s.agent_idx <> new.agent_idx or s.fork_idx <> new.fork_idx);
    delete from stray_agents where agent_id = new.agent_id;
end;

create trigger agents_summary_update after update of model_identifier, cwd on agents begin
    update session_summaries set (model_identifier, cwd) = (
        select a.model_identifier, a.cwd from agents a where a.session_id = new.session_id
        order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx limit 1)
    where session_id = new.session_id;
end;

create trigger agents_summary_delete after delete on agents begin
    insert into stray_agents (agent_id)
    select old.agent_id where exists (select 1 from messages where agent_id = old.agent_id)
    on conflict (agent_id) do nothing;
    delete from session_summaries where session_id = old.session_id and all_agents <= 1 and all_messages <= 0;
    update session_summaries set
        all_agents = all_agents - 1,
        all_activity = case when all_messages > 0 then all_activity else coalesce(
            (select max(a.created_at) from agents a where a.session_id = old.session_id), all_activity) end,
        trunk_agents = trunk_agents - (old.fork_idx = 1),
        trunk_activity = case when trunk_messages > 0 then trunk_activity else coalesce(
            (select max(a.created_at) from agents a where a.session_id = old.session_id and a.fork_idx = 1), '') end,
        model_identifier = coalesce((select a.model_identifier from agents a where a.session_id = old.session_id
            order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx limit 1), ''),
        cwd = coalesce((select a.cwd from agents a where a.session_id = old.session_id
            order by a.fork_idx = 1 desc, a.agent_idx desc, a.fork_idx limit 1), '')
    where session_id = old.session_id;
    insert into session_mend (session_id)
    select case side.here when 1 then old.session_id else s.session_id end
    from stray_agents s, (select 1 as here union all select 0) side
    where s.agent_id = old.agent_id
        and (s.session_id <> old.session_id or s.agent_idx <> old.agent_idx or s.fork_idx <> old.fork_idx);
end;

create trigger messages_stray after insert on messages
when not exists (select 1 from agents where agent_id = new.agent_id) begin
    insert into stray_agents (agent_id) values (new.agent_id) on conflict (agent_id) do nothing;
end;

-- rows that crowmem writes count themselves in the same statement; only other writers' rows need the trigger
create trigger messages_summary_insert after insert on messages when new.indexed = 0 begin
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

-- The newest message's stamp is the session's last activity: when it goes, the next newest is looked for, but not while there is
-- another of the same time. A session that is deleted as a whole has lost its summary before its messages.
create trigger messages_summary_delete after delete on messages
when exists (select 1 from agents a join session_summaries s on s.session_id = a.session_id where a.agent_id = old.agent_id)
    or exists (select 1 from stray_agents where agent_id = old.agent_id) begin
    update session_summaries set
        all_messages = all_messages - 1,
        trunk_messages = trunk_messages - (a.fork_idx = 1),
        first_messages = first_messages - (a.fork_idx = 1 and a.agent_idx = 1)
    from (select session_id as owner, fork_idx, agent_idx from session_agents where agent_id = old.agent_id) a
    where session_id = a.owner;
    insert into session_mend (session_id)
    select a.session_id from session_agents a join session_summaries s on s.session_id = a.session_id
    where a.agent_id = old.agent_id
        and old.created_at >= case when a.fork_idx = 1 then s.trunk_activity else s.all_activity end
        and not exists (
            select 1 from session_agents b join messages m on m.agent_id = b.agent_id
            where b.session_id = a.session_id and (b.fork_idx = 1 or a.fork_idx <> 1) and m.created_at >= old.created_at);
    delete from session_summaries where all_messages <= 0 and all_agents <= 0
        and session_id in (select session_id from stray_agents where agent_id = old.agent_id);
    delete from stray_agents where agent_id = old.agent_id
        and not exists (select 1 from messages where agent_id = old.agent_id);
end;

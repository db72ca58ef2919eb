-- Sessions: how a summary is made true again.

-- name: session_mend :none
-- Count a session again; the title it has stays.
-- differs: a function does it, which triggers call, too.
select main.crowmem_session_mend(:session_id);

-- name: session_stray_note :none
-- Note that an agent has messages and no row, unless it has one.
-- differs: a function reads the id.
insert into main.stray_agents (agent_id, session_id, agent_idx, fork_idx)
select cast(:agent_id as text), p.session_id, p.agent_idx, p.fork_idx from main.crowmem_place(:agent_id) p
where not exists (select 1 from main.agents where agent_id = :agent_id)
on conflict (agent_id) do nothing;

-- name: session_list_trunk :many SessionInfo
-- One page of sessions by their trunk's last activity, newest first; forks do not count.
-- :activity and :after are the last line of the page before; for the first page, a text after every other, and ''.
-- differs: one index holds the trunks' order.
-- plan: session_summaries_trunk
select session_id, trunk_activity as last_activity, trunk_messages as message_count, trunk_agents as agent_count,
    model_identifier, cwd, title
from main.session_summaries
where (trunk_agents > 0 or trunk_messages > 0)
    and trunk_activity <= :activity and (trunk_activity < :activity or session_id > :after)
order by trunk_activity desc, session_id
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: session_list_all :many SessionInfo
-- As session_list_trunk with every fork counted.
-- differs: one index holds their order.
-- plan: session_summaries_all
select session_id, all_activity as last_activity, all_messages as message_count, all_agents as agent_count,
    model_identifier, cwd, title
from main.session_summaries
where all_activity <= :activity and (all_activity < :activity or session_id > :after)
order by all_activity desc, session_id
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: session_list_cwd :many SessionInfo
-- As session_list_trunk, of one working directory.
-- differs: the index holds a hash of the directory, which may be longer than an index row.
-- plan: session_summaries_cwd
select session_id, case when :forks = 1 then all_activity else trunk_activity end as last_activity,
    case when :forks = 1 then all_messages else trunk_messages end as message_count,
    case when :forks = 1 then all_agents else trunk_agents end as agent_count, model_identifier, cwd, title
from main.session_summaries
where (trunk_agents > 0 or trunk_messages > 0) and cwd = :cwd
    and hashtextextended(cwd, 0) = hashtextextended(cast(:cwd as text), 0)
    and trunk_activity <= :activity and (trunk_activity < :activity or session_id > :after)
order by trunk_activity desc, session_id
limit (select cast(:limit as bigint)) offset (select cast(:offset as bigint));

-- name: session_unnamed :many text, text
-- Of some sessions those without a title whose second message another program wrote, with that message, which is to name them:
-- it is not indexed yet, or it would have given its title then.
-- differs: a list comes as an array.
-- plan: ix_messages_agent_id
select s.session_id, cast(m.data as text)
from main.session_summaries s
join main.session_agents a on a.session_id = s.session_id and a.agent_idx = 1 and a.fork_idx = 1
join main.messages m on m.id = (
    select n.id from main.messages n where n.agent_id = a.agent_id order by n.id limit 1 offset 1)
where s.session_id = any(:session_ids) and s.title is null and s.first_messages > 1 and m.indexed = 0
order by m.id;

-- name: session_hold :none
-- Keep others from adding to a session until this transaction ends, and wait for those who are adding now: whoever adds a message
-- or an agent changes this row. It is made when there is none: a row that somebody else deletes meanwhile keeps nobody off.
-- only: postgres; on SQLite one writes at a time.
insert into main.session_summaries as s (session_id, all_activity) values (:session_id, '')
on conflict (session_id) do update set all_activity = s.all_activity;

-- Sessions: how a summary is made true again.

-- name: session_mend :none
-- Count a session again; the title it has stays.
-- differs: the view's trigger does it, which other triggers use, too.
insert into session_mend (session_id) values (:session_id);

-- name: session_stray_note :none
-- Note that an agent has messages and no row, unless it has one.
-- differs: the table's columns read the id.
insert into stray_agents (agent_id) select :agent_id where not exists (select 1 from agents where agent_id = :agent_id)
on conflict (agent_id) do nothing;

-- name: session_list_trunk :many SessionInfo
-- One page of sessions by their trunk's last activity, newest first; forks do not count.
-- :activity and :after are the last line of the page before; for the first page, a text after every other, and ''.
-- differs: two indexes hold the trunks' order, one of them for sessions whose forks were active later; they are read in turn.
-- plan: session_summaries_even
select session_id, trunk_activity as last_activity, trunk_messages as message_count, trunk_agents as agent_count,
    model_identifier, cwd, title
from session_summaries
where trunk_activity = all_activity and (trunk_agents > 0 or trunk_messages > 0)
    and trunk_activity <= :activity and (trunk_activity < :activity or session_id > :after)
union all
select session_id, trunk_activity, trunk_messages, trunk_agents, model_identifier, cwd, title
from session_summaries
where trunk_activity <> all_activity and (trunk_agents > 0 or trunk_messages > 0)
    and trunk_activity <= :activity and (trunk_activity < :activity or session_id > :after)
order by last_activity desc, session_id
limit :limit offset :offset;

-- name: session_list_all :many SessionInfo
-- As session_list_trunk with every fork counted.
-- differs: two indexes hold the order, one of them for sessions whose forks were active last; they are read in turn.
-- plan: session_summaries_all
select session_id, trunk_activity as last_activity, all_messages as message_count, all_agents as agent_count,
    model_identifier, cwd, title
from session_summaries
where trunk_activity = all_activity and (trunk_agents > 0 or trunk_messages > 0)
    and trunk_activity <= :activity and (trunk_activity < :activity or session_id > :after)
union all
select session_id, all_activity, all_messages, all_agents, model_identifier, cwd, title
from session_summaries
where (trunk_activity <> all_activity or (trunk_agents <= 0 and trunk_messages <= 0))
    and all_activity <= :activity and (all_activity < :activity or session_id > :after)
order by last_activity desc, session_id
limit :limit offset :offset;

-- name: session_list_cwd :many SessionInfo
-- As session_list_trunk, of one working directory.
-- differs: the index holds the directory itself.
-- plan: session_summaries_cwd
select session_id, case when :forks = 1 then all_activity else trunk_activity end as last_activity,
    case when :forks = 1 then all_messages else trunk_messages end as message_count,
    case when :forks = 1 then all_agents else trunk_agents end as agent_count, model_identifier, cwd, title
from session_summaries
where (trunk_agents > 0 or trunk_messages > 0) and cwd = :cwd
    and trunk_activity <= :activity and (trunk_activity < :activity or session_id > :after)
order by trunk_activity desc, session_id
limit :limit offset :offset;

-- name: session_unnamed :many text, text
-- Of some sessions those without a title whose second message another program wrote, with that message, which is to name them:
-- it is not indexed yet, or it would have given its title then.
-- differs: a list comes as a JSON array.
-- plan: ix_messages_agent_id
select s.session_id, m.data
from session_summaries s
join session_agents a on a.session_id = s.session_id and a.agent_idx = 1 and a.fork_idx = 1
join messages m on m.id = (
    select n.id from messages n where n.agent_id = a.agent_id order by n.id limit 1 offset 1)
where s.session_id in (select value from json_each(:session_ids)) and s.title is null and s.first_messages > 1 and m.indexed = 0
order by m.id;

-- The store as a whole.

-- name: store_rows :many text, int
-- Row counts by table.
select 'agents', count(*) from main.agents
union all select 'messages', count(*) from main.messages
union all select 'prompts', count(*) from main.prompts
union all select 'tasks', count(*) from main.tasks
union all select 'task_deliveries', count(*) from main.task_deliveries;

-- name: store_index :one int, int, int
-- Index rows; messages not indexed yet; messages with more words than the index takes.
-- differs: rows are counted by us.
select coalesce((select sum(docs)::bigint from main.search_stats), 0),
    (select count(*) from main.messages where indexed = 0),
    (select count(*) from main.messages where indexed = 2);

-- name: store_old_snapshots :many int, int, text
-- The oldest transaction of this database that keeps dead rows alive, when it began more than :older_s seconds ago: its process, its
-- age in seconds, its application. A role without pg_read_all_stats sees its own transactions only.
-- only: postgres; SQLite's readers hold nothing between calls.
select pid, cast(extract(epoch from clock_timestamp() - xact_start) as bigint), application_name from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
    and (backend_xmin is not null or backend_xid is not null)
    and xact_start <= clock_timestamp() - cast(:older_s as bigint) * interval '1 second'
order by xact_start
limit 1;

-- name: store_problems :many text
-- What is wrong, as far as a quick look tells.
-- differs: an index whose building failed is not used.
select 'index ' || c.relname || ' is invalid, as after a failed build: '
    || case when c.relname ~ '_cc(new|old)[0-9]*$' then 'drop index' else 'reindex index concurrently' end
    || format(' %I.%I', 'main', c.relname)
from pg_index i join pg_class c on c.oid = i.indexrelid
where not i.indisvalid and c.relnamespace = (select oid from pg_namespace where nspname = 'main');

-- name: store_problems_deep :many text
-- What is wrong, after reading everything.
-- differs: reading every message finds a damaged page.
select 'messages: ' || count(*) || ' rows without text' from main.messages where length(cast(data as text)) = 0
having count(*) > 0;

-- name: store_objects :many text
-- The names of all indexes and triggers.
-- differs: where a database keeps them.
select c.relname::text from pg_class c where c.relkind = 'i'
    and c.relnamespace = (select oid from pg_namespace where nspname = 'main')
union all
select t.tgname::text from pg_trigger t join pg_class c on c.oid = t.tgrelid where not t.tgisinternal
    and t.tgenabled <> 'D' and c.relnamespace = (select oid from pg_namespace where nspname = 'main');

-- name: store_references :many text
-- Rows that name others which are not there.
-- differs: where an entry stands.
select 'agents: ' || count(*) || ' name a prompt that is not there, the first is ' || min(agent_id)
from main.agents a where prompt_id is not null and not exists (select 1 from main.prompts p where p.id = a.prompt_id)
having count(*) > 0
union all
select 'tapes: ' || count(*) || ' branches lack entries, the first is ' || min(branch) from (
    select branch from main.tape_entries group by branch having max(position) - min(position) + 1 <> count(*)) broken
having count(*) > 0;

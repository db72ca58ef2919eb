-- The store as a whole.

-- name: store_rows :many text, int
-- Row counts by table.
select 'agents', count(*) from agents
union all select 'messages', count(*) from messages
union all select 'prompts', count(*) from prompts
union all select 'tasks', count(*) from tasks
union all select 'task_deliveries', count(*) from task_deliveries;

-- name: store_index :one int, int, int
-- Index rows; messages not indexed yet; messages with more words than the index takes.
-- differs: FTS5's own count of rows.
select (select count(*) from message_index_docsize),
    (select count(*) from messages where indexed = 0),
    (select count(*) from messages where indexed = 2);

-- name: store_problems :many text
-- What is wrong, as far as a quick look tells.
-- differs: SQLite checks its own pages.
-- A row of the search index is read first: FTS5 checks the pieces it knew of when this connection last read it, and calls one
-- that another connection has merged away since then corrupt (SQLite 3.54).
select 'quick_check: ' || quick_check
from (select count(*) from (select rowid from message_index limit 1)) cross join pragma_quick_check
where quick_check <> 'ok';

-- name: store_problems_deep :many text
-- What is wrong, after reading everything.
-- differs: SQLite checks its own pages.
select 'integrity_check: ' || integrity_check
from (select count(*) from (select rowid from message_index limit 1)) cross join pragma_integrity_check
where integrity_check <> 'ok';

-- name: store_backup :none
-- A consistent copy into an empty file.
-- only: sqlite; PostgreSQL has pg_dump.
vacuum into :path;

-- name: store_objects :many text
-- The names of all indexes and triggers.
-- differs: where a database keeps them.
select name from sqlite_schema where type in ('index', 'trigger');

-- name: store_references :many text
-- Rows that name others which are not there.
-- differs: where an entry stands.
select 'agents: ' || count(*) || ' name a prompt that is not there, the first is ' || min(agent_id)
from agents a where prompt_id is not null and not exists (select 1 from prompts p where p.id = a.prompt_id)
having count(*) > 0
union all
select 'tapes: ' || count(*) || ' branches lack entries, the first is ' || min(branch) from (
    select id >> 32 as branch from tape_entries group by id >> 32 having max(id) - min(id) + 1 <> count(*))
having count(*) > 0;

-- Schema steps: what is there, what was applied, and the record of it.

-- name: step_columns :many text, text
-- Table and column of every table that tells which kind of store this is.
select c.relname::text, a.attname::text
from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = (select oid from pg_namespace where nspname = 'main') and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
    and c.relname in ('agents', 'messages', 'prompts', 'crowmem_steps');

-- name: step_tables :one int
-- How many tables there are at all; none means a new store.
select count(*) from pg_class where relnamespace = (select oid from pg_namespace where nspname = 'main') and relkind in ('r', 'p');

-- name: step_lock :one int
-- Take the lock under which steps are applied, until the transaction ends: whoever looks first has it before looking.
select 1 from pg_advisory_xact_lock(hashtextextended('crowmem schema ' || cast(:name as text), 0));

-- name: step_encoding :one text
-- The encoding of the database, which must be UTF-8.
select case getdatabaseencoding() when 'UTF8' then 'UTF-8' else getdatabaseencoding() end;

-- Schema steps: what is there, what was applied, and the record of it.

-- name: step_columns :many text, text
-- Table and column of every table that tells which kind of store this is.
select t.name, c.name
from sqlite_schema t, pragma_table_info(t.name) c
where t.type = 'table' and t.name in ('agents', 'messages', 'prompts', 'crowmem_steps');

-- name: step_tables :one int
-- How many tables there are at all; none means a new store.
select count(*) from sqlite_schema where type = 'table' and name not like 'sqlite_%';

-- name: step_lock :one int
-- Take the lock under which steps are applied, until the transaction ends.
-- differs: the transaction itself is the lock, `begin immediate` took it.
select 1;

-- name: step_encoding :one text
-- The encoding of the database, which must be UTF-8.
select encoding from pragma_encoding;

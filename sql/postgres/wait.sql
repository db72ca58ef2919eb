-- Wake-ups between processes. They are hints: a lost one costs a second, never a row.

-- name: wait_listen :none
-- Be told of topics that other processes announce.
-- only: postgres; SQLite's files are watched.
listen crowmem;

-- name: wait_notify :many text
-- Announce topics, in a transaction of its own after the one that they are about: a notification inside it takes a lock that all
-- committers share (a third of the inserts a second of 16 writers, measured).
-- only: postgres; as wait_listen.
select pg_notify('crowmem', topic)::text from unnest(cast(:topics as text[])) as given (topic);

-- Sessions: what only several writers at once need.

-- name: session_hold :none
-- Keep others from adding to a session until this transaction ends; waits for those who are adding now.
-- only: postgres; SQLite has one writer at a time. Whoever adds a message or an agent updates this row.
select from main.session_summaries where session_id = :session_id for update;

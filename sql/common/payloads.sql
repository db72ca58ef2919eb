-- Payloads: one JSON object a session.

-- name: payload_load :one text
-- The payload of a session.
select cast(payload as text) from main.session_payloads where session_id = :session_id;

-- name: payload_get :one Payload
-- The payload of a session, with its version.
select * from main.session_payloads where session_id = :session_id;

-- name: payload_list :many text
-- One page of the sessions that have a payload, sorted by their bytes.
select session_id from main.session_payloads order by session_id limit :limit offset :offset;

-- name: payload_count :one int
-- How many sessions have a payload.
select count(*) from main.session_payloads;

-- name: payload_delete :many text
-- Delete the payload of a session.
delete from main.session_payloads where session_id = :session_id returning session_id;

-- Images: which messages name which, and the collector's promise to writers.

-- name: image_messages :many int
-- Messages that name an image, oldest first, after an id.
-- plan: image_refs_pkey
select message_id from main.image_refs where key = :key and message_id > :after_id order by message_id limit :limit;

-- name: image_keys :many text
-- One page of the images that messages name, sorted, after a key.
select distinct key from main.image_refs where key > :after order by key limit :limit;

-- name: image_refs_count :one int, int
-- How many images are named, and how often.
select count(distinct key), count(*) from main.image_refs;

-- Images: which messages name which, and the collector's promise to writers.

-- name: image_hold :one int
-- Keep collectors from condemning images until the transaction ends.
-- differs: transactions run beside each other here. A lock of the transaction: nothing outlives it behind a pooler.
select 1 from (select pg_advisory_xact_lock_shared(hashtextextended('crowmem images ' || 'main', 0))) l;

-- name: image_hold_all :one int
-- 1: no transaction that names images is open besides this one, and none begins until it ends. 0: one is.
-- differs: never waits, since writers that come after a waiter would wait behind it.
select cast(pg_try_advisory_xact_lock(hashtextextended('crowmem images ' || 'main', 0)) as integer);

-- name: image_condemn :many text
-- Condemn those of some images that no message names and nobody else has condemned; they may be removed for :hold_us
-- microseconds from now. One that is condemned for ten times as long was so before the clock was set back.
-- differs: the clock; lists come as arrays; rows are locked in the order of their keys, as image_gone locks them.
insert into main.images_condemned as c (key, until)
select k.key, clock_timestamp() + cast(:hold_us as bigint) * interval '1 microsecond'
from unnest(cast(:keys as text[])) as k (key)
where not exists (select from main.image_refs r where r.key = k.key collate "C")
order by k.key collate "C"
on conflict (key) do update set until = excluded.until, gone_at = null, times = c.times + 1
where c.gone_at is not null or c.until < clock_timestamp()
    or c.until > clock_timestamp() + 10 * cast(:hold_us as bigint) * interval '1 microsecond'
returning key;

-- name: image_condemned :many text, int, int
-- Those of some images that are condemned or were of late: how often, and whether their removal may go on (1).
-- differs: the clock; lists come as arrays.
select key, times, cast(gone_at is null and until >= clock_timestamp() as integer)
from main.images_condemned
where key = any(cast(:keys as text[]));

-- name: image_gone :none
-- A collector is done with some condemned images: they are removed, or stay.
-- differs: the clock; lists come as arrays; rows are locked in the order of their keys, as image_condemn locks them.
with held as materialized (
    select key from main.images_condemned where key = any(cast(:keys as text[])) order by key for update
)
update main.images_condemned c set gone_at = clock_timestamp() from held where c.key = held.key;

-- name: image_condemned_drop :none
-- Forget what was removed more than :age_us microseconds ago: no write takes that long.
-- differs: the clock; a row that another collector has at the moment is left to the next run.
delete from main.images_condemned
where key = any(array(
    select key from main.images_condemned
    where coalesce(gone_at, until) < clock_timestamp() - cast(:age_us as bigint) * interval '1 microsecond'
    for update skip locked
));

-- name: image_message_get :one text
-- The text of a message that is about to be changed.
-- differs: the row is locked.
select cast(data as text) from main.messages where id = :id for update;

-- name: image_message_put :none
-- Change a message's text; triggers see to its references and its index entry.
-- differs: the data column is json.
update main.messages set data = cast(cast(:data as text) as json) where id = :id;

-- name: image_refs_lacking :one int, int
-- How many messages name an image without a note of it, and the first of them.
-- differs: how images are found in a message.
select count(*), min(m.id)
from main.messages m
where position('"image_ref"' in m.data::text) > 0 and exists (
    select 1 from regexp_matches(m.data::text, '"([0-9a-f]{64}\.(?:png|jpg|gif|webp))"', 'g') as found (part)
    where not exists (select 1 from main.image_refs r where r.key = found.part[1] and r.message_id = m.id));

-- name: image_refs_mend :none
-- Note again which images messages name.
-- differs: how they are found in a message.
insert into main.image_refs (key, message_id)
select distinct found.part[1], m.id
from main.messages m, regexp_matches(m.data::text, '"([0-9a-f]{64}\.(?:png|jpg|gif|webp))"', 'g') as found (part)
where position('"image_ref"' in m.data::text) > 0
on conflict do nothing;

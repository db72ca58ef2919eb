-- Images: which messages name which, and the collector's promise to writers.

-- name: image_hold :one int
-- Keep collectors from condemning images until the transaction ends.
-- differs: the transaction is the only writer.
select 1;

-- name: image_hold_all :one int
-- 1: no transaction that names images is open besides this one, and none begins until it ends. 0: one is.
-- differs: the transaction is the only writer.
select 1;

-- name: image_condemn :many text
-- Condemn those of some images that no message names and nobody else has condemned; they may be removed for :hold_us
-- microseconds from now. One that is condemned for ten times as long was so before the clock was set back.
-- differs: the clock; lists come as JSON arrays.
insert into images_condemned (key, until)
select value, cast(unixepoch('subsec') * 1000000 as integer) + :hold_us from json_each(:keys)
where not exists (select 1 from image_refs where key = value)
on conflict (key) do update set until = excluded.until, gone_at = null, times = times + 1
where gone_at is not null or until < cast(unixepoch('subsec') * 1000000 as integer)
    or until > cast(unixepoch('subsec') * 1000000 as integer) + 10 * :hold_us
returning key;

-- name: image_condemned :many text, int, int
-- Those of some images that are condemned or were of late: how often, and whether their removal may go on (1).
-- differs: the clock; lists come as JSON arrays.
select key, times, gone_at is null and until >= cast(unixepoch('subsec') * 1000000 as integer)
from images_condemned
where key in (select value from json_each(:keys));

-- name: image_gone :none
-- A collector is done with some condemned images: they are removed, or stay.
-- differs: the clock; lists come as JSON arrays.
update images_condemned set gone_at = cast(unixepoch('subsec') * 1000000 as integer)
where key in (select value from json_each(:keys));

-- name: image_condemned_drop :none
-- Forget what was removed more than :age_us microseconds ago: no write takes that long.
-- differs: the clock.
delete from images_condemned where coalesce(gone_at, until) < cast(unixepoch('subsec') * 1000000 as integer) - :age_us;

-- name: image_message_get :one text
-- The text of a message that is about to be changed.
-- differs: the transaction is the only writer.
select data from messages where id = :id;

-- name: image_message_put :none
-- Change a message's text; triggers see to its references and its index entry.
update messages set data = :data where id = :id;

-- name: image_refs_lacking :one int, int
-- How many messages name an image without a note of it, and the first of them.
-- differs: how images are found in a message.
select count(*), min(m.id)
from messages m
where m.data glob '*"image_ref"*' and exists (
    select 1 from json_tree(case when json_valid(m.data) then m.data else '[]' end) j
    where j.type = 'text' and length(j.atom) between 68 and 69 and substr(j.atom, 65) in ('.png', '.jpg', '.gif', '.webp')
        and not substr(j.atom, 1, 64) glob '*[^0-9a-f]*'
        and not exists (select 1 from image_refs r where r.key = j.atom and r.message_id = m.id));

-- name: image_refs_mend :none
-- Note again which images messages name.
-- differs: how they are found in a message.
insert or ignore into image_refs (key, message_id)
select j.atom, m.id from messages m, json_tree(case when json_valid(m.data) then m.data else '[]' end) j
where m.data glob '*"image_ref"*' and j.type = 'text' and length(j.atom) between 68 and 69
    and substr(j.atom, 65) in ('.png', '.jpg', '.gif', '.webp') and not substr(j.atom, 1, 64) glob '*[^0-9a-f]*';

-- Which images messages name, and which are being removed. The images themselves are in a folder or a bucket.

-- Kept by triggers, so that it is true for whoever writes messages, and in the same transaction. A key anywhere in a message
-- that has references counts: one too many keeps an image, one too few would lose it.
create table main.image_refs (
    key text collate "C" not null,
    message_id bigint not null,
    constraint image_refs_pkey primary key (key, message_id)
);
create index image_refs_message on main.image_refs (message_id, key);

-- Images that nothing named when a collector looked. Until then it may remove them; gone_at says that it is done; times, how
-- often that was so. A writer that put such an image meanwhile puts it again.
create table main.images_condemned (
    key text collate "C" not null,
    until timestamptz not null,
    gone_at timestamptz,
    times bigint not null default 1,
    constraint images_condemned_pkey primary key (key)
);

-- Found in the text, not by reading it as JSON: a key has no character that JSON escapes, and functions for jsonb fail on a NUL.
create function main.crowmem_image_refs() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        delete from main.image_refs where message_id = old.id;
    end if;
    if position('"image_ref"' in new.data::text) > 0 then
        insert into main.image_refs (key, message_id)
        select distinct found.part[1], new.id
        from regexp_matches(new.data::text, '"([0-9a-f]{64}\.(?:png|jpg|gif|webp))"', 'g') as found (part)
        on conflict do nothing;
    end if;
    return null;
end $$;
create trigger image_refs_insert after insert on main.messages
    for each row when (position('"image_ref"' in new.data::text) > 0) execute function main.crowmem_image_refs();
create trigger image_refs_update after update of data on main.messages
    for each row when (position('"image_ref"' in new.data::text) > 0 or position('"image_ref"' in old.data::text) > 0)
    execute function main.crowmem_image_refs();

create function main.crowmem_image_refs_gone() returns trigger language plpgsql as $$
begin
    delete from main.image_refs r using gone where r.message_id = gone.id;
    return null;
end $$;
create trigger image_refs_delete after delete on main.messages
    referencing old table as gone for each statement execute function main.crowmem_image_refs_gone();

insert into main.image_refs (key, message_id)
select distinct found.part[1], m.id
from main.messages m, regexp_matches(m.data::text, '"([0-9a-f]{64}\.(?:png|jpg|gif|webp))"', 'g') as found (part)
where position('"image_ref"' in m.data::text) > 0;

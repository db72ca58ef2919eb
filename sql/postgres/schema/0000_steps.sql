-- The record of schema steps. `create schema if not exists` would ask for a right that an existing schema does not need.
do $$ begin
    if not exists (select from pg_namespace where nspname = 'main') then
        create schema main;
    end if;
end $$;

create table main.crowmem_steps (
    name text not null primary key,
    checksum text not null,
    applied_at text not null
);

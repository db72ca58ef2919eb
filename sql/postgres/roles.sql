-- Two roles for a store on PostgreSQL: crowmem_reader reads, crowmem_writer also writes; neither can change or drop a table.
-- Run by the store's owner, after the store was made (`crowmem roles | psql ...`); a repeat changes nothing.
-- Give them to people and programs with `grant crowmem_reader to ...`. A reader opens the store with read_only; a writer needs no
-- right to apply schema steps, so the owner opens the store once after each upgrade of crowmem.
do $$ begin
    if not exists (select from pg_roles where rolname = 'crowmem_reader') then
        create role crowmem_reader nologin;
    end if;
    if not exists (select from pg_roles where rolname = 'crowmem_writer') then
        create role crowmem_writer nologin;
    end if;
end $$;
grant crowmem_reader to crowmem_writer;

grant usage on schema main to crowmem_reader;
grant select on all tables in schema main to crowmem_reader;
grant insert, update, delete on all tables in schema main to crowmem_writer;
grant usage, select on all sequences in schema main to crowmem_writer;
revoke insert, update, delete on main.crowmem_steps from crowmem_writer;

alter default privileges in schema main grant select on tables to crowmem_reader;
alter default privileges in schema main grant insert, update, delete on tables to crowmem_writer;
alter default privileges in schema main grant usage, select on sequences to crowmem_writer;

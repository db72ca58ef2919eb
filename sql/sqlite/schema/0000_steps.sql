-- The record of schema steps.
create table crowmem_steps (
    name text not null primary key,
    checksum text not null,
    applied_at text not null
);

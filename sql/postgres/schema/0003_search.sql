-- The search index. A message of usual size is one row of it. tsv is made by crowmem from tokens, the text's with their places
-- and then the scope words without; len counts both, but for the bucket's word, as FTS5 counts its two columns.
-- Kept in the row and uncompressed (external, toast_tuple_target): ts_rank runs 3 to 5 times faster at the same total size.
create table main.message_index (
    message_id bigint not null,
    doc smallint not null,
    len integer not null,
    tsv tsvector not null,
    constraint message_index_pkey primary key (message_id, doc)
) with (toast_tuple_target = 8160);
alter table main.message_index alter column tsv set storage external, alter column tsv set statistics 300;
-- a small pending list: the worst stall of an insert falls from 154 to 21 ms; without any, bulk inserts run at half the rate
create index message_index_words on main.message_index using gin (tsv) with (gin_pending_list_limit = 512);

-- indexed: 1 whole, 2 only in part (the message has more words than its rows may hold)
create index messages_partly on main.messages (id) where indexed = 2;

-- How many index rows there are and how long in sum, spread over slots (pg_backend_pid() % 64) so that no row is hot.
create table main.search_stats (
    slot integer not null,
    docs bigint not null,
    toks bigint not null,
    constraint search_stats_pkey primary key (slot)
) with (fillfactor = 50);

-- In how many index rows each common word stands, counted over all messages up to search_counted; see docs/search.md.
create table main.search_words (
    word text collate "C" not null,
    docs bigint not null,
    constraint search_words_pkey primary key (word)
);

-- Messages that are deleted, by any program, and not yet taken out of the index.
create table main.message_index_gone (
    id bigint not null,
    constraint message_index_gone_pkey primary key (id)
);
create function main.crowmem_messages_gone() returns trigger language plpgsql as $$
begin
    insert into main.message_index_gone (id) select id from gone on conflict do nothing;
    return null;
end $$;
create trigger messages_gone after delete on main.messages
    referencing old table as gone for each statement execute function main.crowmem_messages_gone();

-- another program's change of what is indexed: index the row again
create function main.crowmem_messages_changed() returns trigger language plpgsql as $$
begin
    new.indexed := 0;
    return new;
end $$;
create trigger messages_changed before update of agent_id, created_at, data, role on main.messages
    for each row when (old.indexed <> 0) execute function main.crowmem_messages_changed();

-- One word's share of FTS5's bm25(), k1 = 1.2 inside the weight. ts_rank of a single lexeme is 0.1/1.64493406685 times the sum
-- of 1/j^2 for j = 1..tf; the parenthesis turns it back into tf, exactly for tf = 0 to 256. "text" is one word, quoted.
create function main.crowmem_score(tsv tsvector, word tsquery, weight float8, norm float8) returns float8
language sql immutable parallel safe as $$
    select weight / (1 + norm / nullif(round(0.6079271018540267 / (1 - 10 * ts_rank(tsv, word)::float8) - 0.5), 0))
$$;

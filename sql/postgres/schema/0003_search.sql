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
-- gin_pending_list_limit is set by whoever writes, not here. The add that fills the list merges it, and after a checkpoint each page
-- touched goes into the log whole: at a million messages such an add takes 12 ms with 64 kB, the first ones after a checkpoint 28 (128
-- kB: 19 and 48, the usual 4 MB: hundreds), and all adds together 5 % longer than with 128. With 4 MB a bulk message of 2 KB costs
-- 270 us instead of 370; without any list bulk runs at half the rate.
create index message_index_words on main.message_index using gin (tsv);

-- indexed: 1 whole, 2 only in part (the message has more words than its rows may hold)
create index messages_partly on main.messages (id) where indexed = 2;

-- How many index rows there are and how long in sum, spread over slots by process, so that no row is hot.
create table main.search_stats (
    slot integer not null,
    docs bigint not null,
    toks bigint not null,
    constraint search_stats_pkey primary key (slot)
) with (fillfactor = 50);

-- In how many of the index rows up to a message each common word stands; counted by maintenance.
create table main.search_words (
    word text collate "C" not null,
    docs bigint not null,
    constraint search_words_pkey primary key (word)
);
create table main.search_counted (
    one boolean not null default true,
    upto bigint not null,
    docs bigint not null,
    constraint search_counted_pkey primary key (one),
    constraint search_counted_one check (one)
);
insert into main.search_counted (upto, docs) values (0, 0);

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

-- One word's share of FTS5's bm25(); k1 = 1.2 is in the weight, and in the norm. ts_rank of a single lexeme is
-- 0.1/1.64493406685 times the sum of 1/j^2 for j = 1..tf; turned back, that gives tf, exactly for tf = 0 to 256. A prefix can
-- match several lexemes: ts_rank_cd gives 0.1 for each place, at several times the price. Written to be inlined.
create function main.crowmem_share(tsv tsvector, word tsquery, prefix boolean, weight float8, norm float8) returns float8
language sql immutable parallel safe as $$
    select weight / (1 + norm / nullif(
        case when prefix then round(10 * ts_rank_cd(tsv, word)::float8)
            else round(0.6079271018540267 / (1 - 10 * ts_rank(tsv, word)::float8) - 0.5) end, 0))
$$;

-- The best index rows for an expression. A term's slot that is not used folds to nothing when the plan is made; terms past
-- the eighth take the slower way. work_mem keeps bitmaps exact; compiling and helpers cost more than they bring; reading all
-- rows is never right, since each must be fetched whole to be looked at, which the planner does not know.
create function main.crowmem_rank(
    expression text, must text, terms text[], counts bigint[], most bigint,
    filtered boolean, after text, before text, of_agents text[], of_folder text, of_model text
) returns table (message_id bigint, score float8)
language plpgsql stable
set work_mem = '64MB' set jit = off set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_custom_plan
set enable_seqscan = off
as $$
declare
    wanted tsquery := case when must is null then expression::tsquery else expression::tsquery && must::tsquery end;
    word tsquery[] := terms::tsquery[];
    prefix boolean[] := array(select t like '%*' from unnest(terms) with ordinality as u (t, place) order by place);
    weight float8[];
    n float8;
    slope float8;
begin
    select sum(docs), 0.9 * sum(docs) / nullif(sum(toks), 0) into n, slope from main.search_stats;
    weight := array(
        select 2.2 * case when c * 2 >= n then 1e-6 else ln((n - c + 0.5) / (c + 0.5)) end
        from unnest(counts) with ordinality as u (c, place) order by place);
    return query
        select c.message_id, -(
            coalesce(main.crowmem_share(c.tsv, word[1], prefix[1], weight[1], c.norm), 0)
            + coalesce(main.crowmem_share(c.tsv, word[2], prefix[2], weight[2], c.norm), 0)
            + coalesce(main.crowmem_share(c.tsv, word[3], prefix[3], weight[3], c.norm), 0)
            + coalesce(main.crowmem_share(c.tsv, word[4], prefix[4], weight[4], c.norm), 0)
            + coalesce(main.crowmem_share(c.tsv, word[5], prefix[5], weight[5], c.norm), 0)
            + coalesce(main.crowmem_share(c.tsv, word[6], prefix[6], weight[6], c.norm), 0)
            + coalesce(main.crowmem_share(c.tsv, word[7], prefix[7], weight[7], c.norm), 0)
            + coalesce(main.crowmem_share(c.tsv, word[8], prefix[8], weight[8], c.norm), 0)
            + case when cardinality(word) <= 8 then 0 else (
                select coalesce(sum(main.crowmem_share(c.tsv, more.word, more.prefix, more.weight, c.norm)), 0)
                from unnest(word[9:], prefix[9:], weight[9:]) as more (word, prefix, weight)) end)
        from (
            select i.message_id, i.tsv, 0.3 + slope * i.len as norm
            from main.message_index i
            where i.tsv @@ wanted
                and not exists (select 1 from main.message_index_gone g where g.id = i.message_id)
                and (not filtered or exists (
                    select 1 from main.messages m
                    where m.id = i.message_id
                        and (after is null or m.created_at collate "C" > after)
                        and (before is null or m.created_at collate "C" < before)
                        and (of_agents is null or m.agent_id = any(of_agents))
                        and ((of_folder is null and of_model is null) or exists (
                            select 1 from main.agents a
                            where a.agent_id = m.agent_id
                                and (of_folder is null or a.cwd = of_folder)
                                and (of_model is null or a.model_identifier = of_model)))))
            offset 0
        ) c
        order by 2, 1 desc
        limit most;
end $$;

-- In how many index rows each term stands; see search_counts. Words that maintenance counted are known; when it is a while
-- ago and rows are many, they are scaled to the rows there are now. Without it, words that ANALYZE found among many rows are
-- as common as its sample says. All others are counted: they are rare, or the rows are few.
create function main.crowmem_counts(terms text[], most bigint) returns table (place bigint, number bigint)
language plpgsql stable
set work_mem = '64MB' set jit = off set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_custom_plan
set enable_seqscan = off
as $$
declare
    n float8 := coalesce((select sum(docs) from main.search_stats), 0);
    counted float8 := (select docs from main.search_counted);
    listed boolean := counted = n or (n > 20000 and counted * 2 > n);
    sampled text[];
    shares real[];
begin
    if n > 20000 and not listed then
        select s.most_common_elems::text::text[], s.most_common_elem_freqs into sampled, shares
        from pg_class t join pg_namespace p on p.oid = t.relnamespace
        join pg_stats s on s.schemaname = p.nspname and s.tablename = t.relname
        where t.oid = 'main.message_index'::regclass and s.attname = 'tsv';
    end if;
    return query
        select -2::bigint, (exists (select 1 from main.messages where indexed = 0)
            or exists (select 1 from main.message_index_gone))::int::bigint
        union all
        select -1::bigint, (select max(message_id) from main.message_index)
        union all
        select 0::bigint, n::bigint
        union all
        select t.place, coalesce(
            (select round(w.docs * n / counted)::bigint from main.search_words w
                where listed and w.word = trim(t.term, '''') collate "C"),
            round(n * shares[array_position(sampled, trim(t.term, ''''))])::bigint,
            (select count(*) from (
                select 1 from main.message_index i where i.tsv @@ t.term::tsquery limit most) matching))
        from unnest(terms) with ordinality as t (term, place);
end $$;

-- Merge what bulk writers left in the list, so that no single add has to. Whoever may write may do it, but only the index's owner
-- may call what does it.
create function main.crowmem_merge_list() returns bigint
language sql security definer set search_path = pg_catalog
as $$ select gin_clean_pending_list('main.message_index_words'::regclass) $$;

-- Count the words of the next messages, so many at most: search_words then holds every word that stood in one of 500 rows of
-- some call, with its number of rows among all that were counted. Returns the rows counted, 0 at the end.
create function main.crowmem_count_words(most bigint) returns bigint
language plpgsql
set work_mem = '64MB' set jit = off
as $$
declare
    start bigint;
    finish bigint;
    fresh bigint;
begin
    select upto into start from main.search_counted for update;
    select max(id), count(*) into finish, fresh from (
        select i.message_id as id from main.message_index i where i.message_id > start order by i.message_id limit most) next;
    if finish is null then
        return 0;
    end if;
    -- a message's last rows may be past the limit
    select count(*) into fresh from main.message_index where message_id > start and message_id <= finish;
    with found as materialized (
        select word collate "C" as word, ndoc from ts_stat(
            'select tsv from main.message_index where message_id > ' || start || ' and message_id <= ' || finish)
        where not word like U&'\E000b%'
    ), known as (
        update main.search_words w set docs = w.docs + f.ndoc from found f where f.word = w.word
    )
    insert into main.search_words (word, docs)
    select f.word, case when start = 0 then f.ndoc else (
        select count(*) from main.message_index i
        where i.tsv @@ quote_literal(f.word)::tsquery and i.message_id <= finish) end
    from found f
    where f.ndoc * 500 >= greatest(fresh, 10000)
        and not exists (select 1 from main.search_words w where w.word = f.word);
    update main.search_counted set upto = finish, docs = docs + fresh;
    return fresh;
end $$;

-- the lexer's number; an index made by another is made again
insert into main.crowmem_settings (name, value) values ('lexer', '1');

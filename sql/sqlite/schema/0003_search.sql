-- The search index. A message of usual size is one row of it; rowid = message id << 6 | number of the row within the message.
-- Contentless: the text itself stays in messages alone. contentless_delete needs SQLite 3.43; an older one opens the file and
-- reads every table but this.
-- scope is the second column: first it costs a third more (630 against 463 MB at a million messages).
create virtual table message_index using fts5(text, scope, content = '', contentless_delete = 1);
-- Merging twelve pieces at once, where FTS5 by itself takes four: a million messages in hundreds go in a tenth faster than with
-- eight, searches are no slower. At the second number an insert merges a level at once, however long that takes: with both at 16
-- single inserts stalled (1.2 ms on average instead of 0.24).
insert into message_index (message_index, rank) values ('automerge', 12);
insert into message_index (message_index, rank) values ('crisismerge', 24);
-- One transaction gathers 16 MB of words in memory before it writes them, where FTS5 by itself takes 1 MB: in bulk a message of
-- 2 KB costs 26 us instead of 49, and fewer segments are left to search.
insert into message_index (message_index, rank) values ('hashsize', 16777216);

-- in how many rows each word stands, read from the index itself
create virtual table message_words using fts5vocab(message_index, row);

-- indexed: 1 whole, 2 only in part (the message has more words than its rows may hold)
create index messages_partly on messages (id) where indexed = 2;

-- Messages that are deleted, by any program, and not yet taken out of the index. The trigger on messages must not touch the
-- index itself: a program with an older SQLite may delete, too.
create table message_index_gone (id integer primary key);
create trigger messages_gone after delete on messages begin
    insert or ignore into message_index_gone (id) values (old.id);
end;
create trigger message_index_gone_applied after delete on message_index_gone begin
    delete from message_index where rowid between old.id << 6 and (old.id << 6) + 63;
    -- an id can be given out again where the table was made by a program that does not forbid it
    update messages set indexed = 0 where id = old.id;
end;

-- another program's change of what is indexed: index the row again
create trigger messages_changed after update of agent_id, created_at, data, role on messages when old.indexed <> 0 begin
    update messages set indexed = 0 where id = new.id;
end;

-- the lexer's number; an index made by another is made again
insert into crowmem_settings (name, value) values ('lexer', '1');

-- A message of one index row goes into three tables; through this view one statement does it, which costs an add a sixth less
-- than three in a transaction (200 B: 57 to 49 us).
create view message_intake as
select id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, indexed, injected,
    '' as text, '' as scope, '' as session_id, 1 as trunk, 1 as first, '' as title
from messages where false;
create trigger message_intake_insert instead of insert on message_intake begin
    insert into messages
        (id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens, indexed, injected)
    values (new.id, new.agent_id, new.fork_idx, new.created_at, new.data, new.role, new.prompt_tokens, new.completion_tokens,
        new.total_tokens, new.indexed, new.injected);
    -- replace: a table that another program made may give a deleted newest row's number out again
    insert or replace into message_index (rowid, text, scope) values (new.id << 6, new.text, new.scope);
    -- as session_add_messages; without an alias, which an older SQLite does not read in a trigger
    insert into session_summaries
        (session_id, all_activity, all_messages, trunk_activity, trunk_messages, first_messages)
    values (new.session_id, new.created_at, 1, case when new.trunk = 1 then new.created_at else '' end, new.trunk, new.first)
    on conflict (session_id) do update set
        all_activity = case when all_messages = 0 or all_activity < excluded.all_activity
            then excluded.all_activity else all_activity end,
        all_messages = all_messages + 1,
        trunk_activity = case when new.trunk = 1 and (trunk_messages = 0 or trunk_activity < excluded.trunk_activity)
            then excluded.trunk_activity else trunk_activity end,
        trunk_messages = trunk_messages + new.trunk,
        first_messages = first_messages + new.first,
        title = coalesce(title, case when new.first = 1 and first_messages = 1 then new.title end);
end;

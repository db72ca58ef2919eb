-- Tapes, their checkpoints, the payloads of sessions, and leases.

-- One row a tape, and the counter its entries are numbered by: an append locks this row alone, so numbers have no gaps.
-- branch: where its next entry goes; window_start: the number of its last handoff anchor, else 0; cuts: how often entries
-- were taken off its end. fillfactor: changed by every append, in place while its page has room.
create table main.tapes (
    tape_id text collate "C" not null,
    branch bigint not null,
    length bigint not null,
    window_start bigint not null default 0,
    cuts bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    constraint tapes_pkey primary key (tape_id)
) with (fillfactor = 40);
create index tapes_branch on main.tapes (branch);
create sequence main.tape_branch_ids;

-- A branch that begins with the first :shared entries of another; one without a row begins at 0. parent is always the
-- branch that itself holds the entry before, so the way up is never longer than the entries.
create table main.tape_branches (
    branch bigint not null,
    parent bigint not null,
    shared bigint not null,
    constraint tape_branches_pkey primary key (branch),
    constraint tape_branches_shared check (shared > 0)
);
create index tape_branches_parent on main.tape_branches (parent, shared);

-- draft_id: of the first entry that a draft saved, so that saving it again after a lost answer finds it.
-- json, never jsonb: the text comes back byte for byte.
create table main.tape_entries (
    branch bigint not null,
    position bigint not null,
    handoff boolean not null,
    draft_id text collate "C",
    entry json not null,
    constraint tape_entries_pkey primary key (branch, position)
);
create index tape_entries_handoff on main.tape_entries (branch, position) where handoff;
create unique index tape_entries_draft on main.tape_entries (draft_id) where draft_id is not null;

-- What a tape was when a checkpoint was restored over it: it stays readable.
create table main.tape_lines (
    line bigint generated always as identity,
    tape_id text collate "C" not null,
    branch bigint not null,
    length bigint not null,
    window_start bigint not null,
    left_at timestamptz not null default clock_timestamp(),
    constraint tape_lines_pkey primary key (line)
);
create index tape_lines_tape on main.tape_lines (tape_id, line);
create index tape_lines_branch on main.tape_lines (branch);

-- A place in a branch, never a copy of its entries.
create table main.checkpoints (
    number bigint generated always as identity,
    checkpoint_id text collate "C" not null,
    tape_id text collate "C" not null,
    branch bigint not null,
    session_id text collate "C",
    entry_count bigint not null,
    window_start bigint not null,
    created_at timestamptz not null,
    label text,
    plugin_states json not null,
    extra json not null,
    constraint checkpoints_pkey primary key (checkpoint_id)
);
create index checkpoints_tape on main.checkpoints (tape_id, created_at, number);
create index checkpoints_branch on main.checkpoints (branch);
create index checkpoints_session on main.checkpoints (session_id) where session_id is not null;

create table main.session_payloads (
    session_id text collate "C" not null,
    version bigint not null,
    updated_at timestamptz not null,
    payload json not null,
    constraint session_payloads_pkey primary key (session_id)
);

-- A row stays when its lease ends: the next holder's token must be larger. Tokens come from one sequence, so that they grow
-- even when a row was deleted with its session.
-- unique (name, token): a new token is thereby a new key, and waits for whoever holds `for key share`; a renewal does not.
create table main.leases (
    name text collate "C" not null,
    owner text not null,
    token bigint not null,
    expires_at timestamptz not null,
    constraint leases_pkey primary key (name),
    constraint leases_token unique (name, token)
) with (fillfactor = 40);
create sequence main.lease_tokens;

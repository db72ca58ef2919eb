"""Schema steps: everybody may start first, anybody may be killed, and what is not ours is left alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from data import shared_data

from crowmem import Memory
from crowmem.errors import NotFound, ReadOnly, SchemaMismatch, SchemaTooNew, SchemaTooOld
from crowmem.schema import steps

ROOT = Path(__file__).resolve().parents[1]


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Another Python on the same package."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


OPEN_AND_ADD = """
import sys
from crowmem import Memory
print("ready", flush=True)
sys.stdin.readline()
with Memory.open(sys.argv[1], busy_timeout_s=60) as memory:
    memory.messages.add(f"s{sys.argv[2]}-1-1", {"role": "user", "content": "hello"})
"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database with nothing in it."""
    return str(tmp_path / "new" / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_fresh")


def test_everybody_starts_first(empty: str) -> None:
    processes = [start(OPEN_AND_ADD, empty, str(number)) for number in range(24)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]
    for process in processes:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    for process in processes:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    with Memory.open(empty) as memory:
        assert memory.status().rows["messages"] == 24
        assert memory.status().schema_version == steps(memory.status().dialect)[-1][0][:4]


KILL_AFTER = """
import os, signal, sys
from crowmem import Memory
from crowmem.drivers import sqlite, postgres
left = int(sys.argv[2])

def counted(function):
    async def script(self, sql):
        import crowmem.drivers.sqlite as lite
        for statement in split(sql):
            await function(self, statement)
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    return script

def split(sql):
    import apsw
    piece = ""
    for line in sql.splitlines(keepends=True):
        piece += line
        if piece.count("$$") % 2 == 0 and apsw.complete(piece):
            yield piece
            piece = ""
    if piece.strip():
        yield piece

for kind in (sqlite.BlockingTransaction, postgres.BlockingTransaction):
    kind.script = counted(kind.script)
Memory.open(sys.argv[1]).close()
print(left)
"""


def test_killed_after_each_statement_the_next_start_succeeds(empty: str, tmp_path: Path, request: Any) -> None:
    """One store, killed after its first statement, then its second, and so on; each start goes on where the steps committed."""
    kills = 0
    for number in range(1, 200):
        target = empty
        if "sqlite" in request.node.name:
            target = str(tmp_path / f"{number}.db")
        else:
            with psycopg.connect(empty, autocommit=True) as admin:
                admin.execute("drop schema public cascade; create schema public")
        process = start(KILL_AFTER, target, str(number))
        _, errors = process.communicate()
        with Memory.open(target) as memory:
            memory.messages.add("s-1-1", {"role": "user", "content": "still here"})
            assert memory.check() == []
            assert memory.status().schema_version == steps(memory.status().dialect)[-1][0][:4]
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
        kills += 1
    assert kills > 20


def test_a_second_start_changes_nothing(empty: str) -> None:
    with Memory.open(empty) as memory:
        memory.messages.add("s-1-1", {"n": 1})
    with Memory.open(empty) as memory:
        assert memory.messages.load("s-1-1") == [{"n": 1}]


def forge(url: str, sql: str) -> None:
    """Change a store behind its back."""
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.encode())
    else:
        Path(url).parent.mkdir(exist_ok=True)
        connection = apsw.Connection(url)
        connection.execute(sql).fetchall()
        connection.close()


def fingerprint(url: str) -> Any:
    """All there is, to see that nothing changed."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            return connection.execute("select relname, relkind from pg_class order by 1, 2").fetchall()
    return hashlib.sha256(Path(url).read_bytes()).hexdigest()


V4 = """
create table agents (agent_id text primary key, session_id text not null, agent_idx integer not null, cwd text not null);
create table messages (id integer primary key, agent_id text not null, data text not null, role text not null);
"""


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        (V4, SchemaTooOld, "schema v4"),
        ("create table messages (id integer primary key, body text)", SchemaMismatch, "its table messages has no"),
        (
            "create table crowmem_steps (name text primary key, checksum text not null, applied_at text not null);"
            "insert into crowmem_steps values ('9999_future', 'x', 'now')",
            SchemaTooNew,
            "9999_future",
        ),
        (
            "create table crowmem_steps (name text primary key, checksum text not null, applied_at text not null);"
            "insert into crowmem_steps values ('0001_crow', 'x', 'now')",
            SchemaMismatch,
            r"another build: open it with that one, or.*crowmem import",
        ),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_not_ours_is_refused_before_the_first_write(
    empty: str, sql: str, error: type[Exception], words: str, read_only: bool
) -> None:
    forge(empty, sql)
    before = fingerprint(empty)
    with pytest.raises(error, match=words):
        Memory.open(empty, read_only=read_only)
    if not read_only or empty.startswith("postgresql"):
        assert fingerprint(empty) == before


def test_another_programs_sqlite_file_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "other.db")
    forge(path, "create table bookmarks (id integer primary key)")
    before = fingerprint(path)
    with pytest.raises(SchemaMismatch, match="belongs to another program"):
        Memory.open(path)
    assert fingerprint(path) == before


@pytest.mark.parametrize("content", [b"hello world, this is no database at all" * 50, b"\x00" * 5000])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(SchemaMismatch):
        Memory.open(path)
    assert path.read_bytes() == content


def test_a_database_of_another_encoding_is_refused(pg_fresh: str) -> None:
    with psycopg.connect(pg_fresh, autocommit=True) as admin:
        admin.execute(
            "create database crowmem_latin template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' locale_provider libc"
        )
    try:
        with pytest.raises(Exception, match="SQL_ASCII"):
            Memory.open(pg_fresh.replace(psycopg.conninfo.conninfo_to_dict(pg_fresh)["dbname"], "crowmem_latin"))  # type: ignore[type-var, arg-type]
    finally:
        with psycopg.connect(pg_fresh, autocommit=True) as admin:
            admin.execute("drop database crowmem_latin with (force)")


def test_read_only_needs_a_store_that_is_there_and_current(empty: str) -> None:
    with pytest.raises((NotFound, SchemaTooOld)):
        Memory.open(empty, read_only=True)
    Memory.open(empty).close()
    with Memory.open(empty, read_only=True) as reader:
        assert reader.sessions.list() == []
        with pytest.raises(ReadOnly):
            reader.messages.add("s-1-1", {"n": 1})
        with pytest.raises(ReadOnly), reader.transaction() as tx:
            tx.agents.create("s-1-1", "s")


def test_a_read_only_address_and_odd_names(tmp_path: Path) -> None:
    path = tmp_path / "we?ird #1 100%25.db"
    with Memory.open(path) as memory:
        memory.messages.add("s-1-1", {"n": 1})
    assert path.exists()
    from urllib.parse import quote

    with Memory.open(f"sqlite:///{quote(str(path))}?mode=ro") as reader:
        assert reader.messages.load("s-1-1") == [{"n": 1}]
        with pytest.raises(ReadOnly):
            reader.messages.add("s-1-1", {"n": 2})


@pytest.fixture
def crow_file(tmp_path: Path) -> Path:
    """crow-cli's own file, to be opened in place."""
    path = tmp_path / "crow.db"
    shutil.copyfile(shared_data("transcripts", "derived", "crow-db", "crow.db"), path)
    return path


def test_crow_clis_own_file_opens_in_place(crow_file: Path) -> None:
    with Memory.open(crow_file) as memory:
        assert {info.session_id: info.message_count for info in memory.sessions.list()} == {
            "coral-moth-of-bright-images": 2,
            "jade-lynx-of-many-words": 54,
            "slate-finch-of-kind-logs": 28,
            "amber-heron-of-bold-tasks": 12,
            "taupe-otter-of-quiet-tides": 32,
        }
        fork = memory.agents.get("slate-finch-of-kind-logs-1-2")
        trunk = memory.messages.load("slate-finch-of-kind-logs-1-1")
        view = memory.messages.load("slate-finch-of-kind-logs-1-2")
        assert fork.forked_at == "50"  # type: ignore[union-attr]
        shared = [m.data for m in memory.messages.query(agent_ids=["slate-finch-of-kind-logs-1-1"]) if m.id <= 50]
        assert view[: len(shared)] == shared
        assert len(view) > len(shared)
        assert len(trunk) > len(shared)


def test_an_older_sqlite_still_reads_every_table_but_the_index(crow_file: Path) -> None:
    with Memory.open(crow_file) as memory:
        memory.messages.add("slate-finch-of-kind-logs-1-1", {"role": "user", "content": "later"})
    connection = sqlite3.connect(crow_file)
    connection.execute("pragma writable_schema = off")
    names = [
        name
        for (name,) in connection.execute(
            "select name from sqlite_master where type = 'table' and name not like 'message_index%' and name <> 'message_words'"
        )
    ]
    for name in names:
        connection.execute(f'select count(*) from "{name}"').fetchall()  # names from the file itself
    assert {
        "agents",
        "messages",
        "tasks",
        "task_deliveries",
        "prompts",
        "goals",
        "session_tabs",
        "subtool_calls",
    } <= set(names)
    connection.close()
    shell = shutil.which("sqlite3")
    if shell and subprocess.run([shell, "--version"], capture_output=True, text=True, check=True).stdout < "3.43":
        asked = subprocess.run(
            [shell, str(crow_file), "select count(*) from messages; pragma integrity_check"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.stdout.split() == ["135", "ok"], asked.stderr


def test_rows_that_crow_cli_inserts_are_listed_and_loaded(crow_file: Path) -> None:
    with Memory.open(crow_file) as memory:
        connection = sqlite3.connect(crow_file)  # in this process no other handle of ours may close; a child does it
        connection.close()
        foreign = start(
            "import sqlite3, sys\n"
            "c = sqlite3.connect(sys.argv[1])\n"
            'c.execute("insert into agents (agent_id, session_id, agent_idx, fork_idx, cwd, system_prompt, tool_definitions, '
            "request_params, model_identifier, status, created_at) values ('foreign-1-1', 'foreign', 1, 1, '/f', '', '[]', '{}', 'm', "
            "'active', '2026-11-30T09:00:00+00:00')\")\n"
            "for n in range(3):\n"
            "    c.execute(\"insert into messages (agent_id, fork_idx, created_at, data, role) values ('foreign-1-1', 1, "
            '\'2026-11-30T09:00:01+00:00\', ?, \'user\')", (\'{"role": "user", "content": "zebra %d"}\' % n,))\n'
            "c.commit()\n",
            str(crow_file),
        )
        _, errors = foreign.communicate()
        assert (foreign.returncode, errors) == (0, "")
        assert [m["content"] for m in memory.messages.load("foreign-1-1")] == ["zebra 0", "zebra 1", "zebra 2"]
        info = memory.sessions.get("foreign")
        assert (info.message_count, info.cwd, info.model_identifier) == (3, "/f", "m")  # type: ignore[union-attr]


def test_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "crow.db"
    os.umask(0)
    try:
        with Memory.open(path) as memory:
            memory.messages.add("s-1-1", {"n": 1})
            assert {oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()} == {"0o600"}
    finally:
        os.umask(0o022)
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"
    assert oct(path.parent.parent.stat().st_mode & 0o777) == "0o700"


HOSTILE = [
    'we"ird', "tenant-1", "x; drop table agents; --", "Ünï", "it's", "50%s", "a$$b", "a$_$b", "a\\'b", "new\nline", "main", ":x",
]  # fmt: skip


@pytest.mark.parametrize("schema", HOSTILE)
def test_schemas_isolate_tenants_whatever_their_names(pg_fresh: str, schema: str) -> None:
    with Memory.open(pg_fresh, schema=schema) as one, Memory.open(pg_fresh) as public:
        one.agents.create("s-1-1", "s")
        one.messages.add("s-1-1", {"role": "user", "content": "mine"})
        assert public.sessions.list() == []
        assert [info.message_count for info in one.sessions.list()] == [1]
        fork = one.agents.fork("s-1-1")
        assert one.messages.load(fork.agent_id) == one.messages.load("s-1-1")
        assert one.messages.follow(0)[0].data["content"] == "mine"
        assert [hit.id for hit in one.search.messages("mine")] == [1]
        assert one.search.reindex() == 1
        one.search.optimize()
        assert one.check(deep=True) == []
        assert one.sessions.delete("s") is not None

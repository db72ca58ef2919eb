"""The store as a whole: status, check, backup, closing, and what a driver owes its callers."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from pictures import openai_block, png
from test_search_index import foreign

from crowmem import Memory
from crowmem.drivers.sqlite_errors import translate
from crowmem.errors import (
    Busy,
    Closed,
    ConfigError,
    Conflict,
    CrowmemError,
    InvalidValue,
    NotFound,
    PoolExhausted,
    StoreCorrupt,
    Unavailable,
    Unsupported,
)

ROOT = Path(__file__).resolve().parents[1]


def test_status_counts_and_hides(memory: Any, backend: Any) -> None:
    memory.agents.create("s-1-1", "s")
    memory.messages.add_many("s-1-1", [{"role": "user", "content": "x"}] * 3)
    status = memory.status()
    assert (status.dialect, status.durability, status.rows["messages"], status.rows["agents"]) == (
        backend.dialect,
        "full",
        3,
        1,
    )
    assert (status.search["documents"], status.search["lagging"], status.search["partly"]) == (3, 0, 0)
    assert status.journal == ("wal" if backend.dialect == "sqlite" else "")
    assert bool(status.pool) == (backend.dialect == "postgres")
    assert memory.check() == []
    assert memory.check(deep=True) == []


BREAKS = {
    "a count": ["update session_summaries set all_messages = 99 where session_id = 's'"],
    "the last activity": ["update session_summaries set trunk_activity = '2099' where session_id = 's'"],
    "a model": ["update session_summaries set model_identifier = 'other' where session_id = 's'"],
    "no line": ["delete from session_summaries where session_id = 's'"],
    "a line of nothing": ["insert into session_summaries (session_id, all_activity) values ('none', '2026')"],
    "a note of nothing": ["insert into stray_agents {none} on conflict do nothing"],
    "no note": ["delete from stray_agents"],
    "another agent": ["update messages set agent_id = 'new-1-1' where agent_id = 's-1-1'"],
    "another session": ["update agents set session_id = 'moved'"],
}


@pytest.mark.parametrize("what", BREAKS)
def test_check_sees_a_wrong_line_of_the_sessions_and_reindex_mends_it(backend: Any, memory: Any, what: str) -> None:
    memory.agents.create("s-1-1", "s")
    memory.messages.add_many("s-1-1", [{"role": "user", "content": "x"}, {"content": "the title"}])
    memory.messages.add("stray-1-1", {"content": "y"})
    before = memory.sessions.list()
    none = {"sqlite": "(agent_id) values ('none-1-1')", "postgres": "values ('none-1-1', 'none', 1, 1)"}[
        backend.dialect
    ]
    foreign(backend, *(statement.format(none=none) for statement in BREAKS[what]))
    memory.search.messages("x")
    problems = memory.check(deep=True)
    assert problems
    assert all(problem.startswith(("sessions: 1 ", "sessions: 2 ")) for problem in problems)
    memory.search.reindex()
    assert memory.check(deep=True) == []
    if not what.startswith("another"):
        assert memory.sessions.list() == before
    for session in memory.sessions.list():
        assert memory.sessions.delete(session.session_id) is not None
    assert memory.status().rows["messages"] == 0
    assert memory.check(deep=True) == []


LOST = {
    "an index": (["drop index ix_messages_agent_id"], "index ix_messages_agent_id is missing; "),
    "a trigger": (["drop trigger image_refs_insert{on}"], "trigger image_refs_insert is missing; "),
    "a prompt": (["delete from prompts"], "agents: 1 name a prompt that is not there, the first is s-1-1"),
    "an entry": (["delete from tape_entries where {second}"], "tapes: 1 branches lack entries, the first is 1"),
    "a note of an image": (["delete from image_refs"], "images: 1 messages name one whose use is not noted"),
}


@pytest.mark.parametrize("what", LOST)
def test_check_names_what_was_lost(backend: Any, memory: Any, what: str) -> None:
    memory.agents.create("s-1-1", "s", prompt_id=memory.prompts.intern("You are {name}."))
    memory.messages.add("s-1-1", {"role": "user", "content": [openai_block(png())]})
    memory.tapes.append("t", [{"id": str(n), "kind": "message", "payload": {}} for n in range(3)])
    assert memory.check(deep=True) == []
    sqlite = backend.dialect == "sqlite"
    spelling = {
        "on": "" if sqlite else " on messages",
        "second": "id = (select min(id) + 1 from tape_entries)" if sqlite else "position = 1 + (select min(position) from tape_entries)",
    }  # fmt: skip
    sql, problem = LOST[what]
    foreign(backend, *(one.format(**spelling) for one in sql))
    found = memory.check(deep=True)
    assert [text[: len(problem)] for text in found] == [problem]
    assert (memory.check() == []) == (what not in ("an index", "a trigger"))
    if what == "a note of an image":
        memory.search.reindex()
        assert memory.check(deep=True) == []
        assert memory.images.collect(grace_s=0) == 0


def test_check_says_how_a_failed_index_is_mended(pg_fresh: str) -> None:
    with Memory.open(pg_fresh, schema="te'am") as memory, psycopg.connect(pg_fresh, autocommit=True) as other:
        for number in (1, 2):
            memory.agents.create(f"s-{number}-1", "s")
        with pytest.raises(psycopg.errors.UniqueViolation):
            other.execute("""create unique index concurrently "Mine" on "te'am".agents (session_id)""")
        [problem] = memory.check()
        told, _, cure = problem.partition(": ")
        assert told == "index Mine is invalid, as after a failed build"
        memory.sessions.delete("s")
        other.execute(cure)
        assert memory.check() == []


DAMAGE = {
    "no JSON": "update messages set data = '{\"a\":' where id = 2",
    "no text": "update messages set data = x'' where id = 2",
    "other bytes": "update messages set data = cast(x'7b2261223a22f7b1227d' as text) where id = 2",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_check_names_a_message_that_cannot_be_read_and_readers_get_a_typed_error(tmp_path: Path, what: str) -> None:
    with Memory.open(tmp_path / "crow.db") as memory:
        memory.messages.add_many("s-1-1", [{"role": "assistant", "content": f"word{n}"} for n in range(3)])
        memory.messages.add_many("other-1-1", [{"n": n} for n in range(300)])
    driver = apsw.Connection(str(tmp_path / "crow.db"))
    driver.execute(DAMAGE[what])
    driver.close()
    with Memory.open(tmp_path / "crow.db") as memory:
        [problem] = memory.check(deep=True)
        assert problem.startswith("messages: 1 cannot be read, the first is 2;")
        for read in (memory.messages.load, lambda _: memory.messages.query()):
            with pytest.raises(StoreCorrupt, match="check --deep"):
                read("s-1-1")
            if what == "no text":
                break  # whose record has no value
        assert len(memory.messages.load("other-1-1")) == 300
        memory.sessions.delete("s")
        assert memory.check(deep=True) == []


def test_other_damaged_text_is_a_typed_error(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "crow.db") as memory:
        memory.agents.create("s-1-1", "s", system_prompt="x")
        memory.payloads.save("s", {"n": 1})
        memory.tapes.append("t", [{"id": "1", "kind": "message", "payload": {}}])
    driver = apsw.Connection(str(tmp_path / "crow.db"))
    driver.execute("update agents set system_prompt = cast(x'f7b1' as text)")
    driver.execute("update session_payloads set payload = '{'; update tape_entries set entry = '{'")
    driver.close()
    with Memory.open(tmp_path / "crow.db") as memory:
        for read in (
            memory.agents.list,
            lambda: memory.payloads.load("s"),
            lambda: memory.payloads.get("s"),
            lambda: memory.tapes.load("t"),
        ):
            with pytest.raises(StoreCorrupt):
                read()


def test_use_after_close(memory: Any) -> None:
    memory.close()
    memory.close()
    with pytest.raises(Closed):
        memory.messages.load("s-1-1")
    with pytest.raises(Closed):
        memory.messages.add("s-1-1", {"n": 1})
    with pytest.raises(Closed), memory.transaction():
        pass


def test_a_transaction_is_of_no_use_after_its_block(memory: Any) -> None:
    with memory.transaction() as tx:
        tx.messages.add("s-1-1", {"n": 1})
    with pytest.raises(Closed):
        tx.messages.load("s-1-1")
    with pytest.raises(Closed):
        tx.messages.add("s-1-1", {"n": 2})


def test_no_password_is_shown(tmp_path: Path) -> None:
    url = "postgresql://user:s3cret%40pw@127.0.0.1:1/none?password=hunter2"
    with pytest.raises(Unavailable) as caught:
        Memory.open(url)
    shown = f"{caught.value} {caught.value!r}"
    assert "s3cret" not in shown
    assert "hunter2" not in shown
    assert "127.0.0.1" in shown


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"url": "mysql://x"}, ConfigError),
        ({"url": ""}, ConfigError),
        ({"url": 5}, ConfigError),
        ({"url": "half\udc80.db"}, ConfigError),
        ({"durability": "some"}, InvalidValue),
        ({"pool_size": 0}, InvalidValue),
        ({"busy_timeout_s": -1}, InvalidValue),
        ({"busy_timeout_s": float("nan")}, InvalidValue),
        ({"schema": ""}, InvalidValue),
        ({"max_attempts": 0}, InvalidValue),
        ({"config": "/nowhere/config.yaml"}, ConfigError),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Memory.open(arguments.pop("url", tmp_path / "x.db"), **arguments)
    assert list(tmp_path.glob("*.db")) == []


def test_the_default_store_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory.open() as memory:
        assert memory.status().where == str(tmp_path / "home" / ".agents" / "crow" / "crow.db")
    monkeypatch.setenv("CROW_DB_URI", f"sqlite:///{tmp_path}/env.db")
    with Memory.open() as memory:
        assert memory.status().where == str(tmp_path / "env.db")
    with Memory.open("~/mine.db") as memory:
        assert memory.status().where == str(tmp_path / "home" / "mine.db")


def test_a_database_in_memory(tmp_path: Path) -> None:
    with Memory.open(":memory:") as one, Memory.open(":memory:") as two:
        one.messages.add("s-1-1", {"n": 1})
        with one.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 2})
            assert len(tx.messages.load("s-1-1")) == 2
        assert one.messages.load("s-1-1") == [{"n": 1}, {"n": 2}]
        assert two.messages.load("s-1-1") == []


def test_a_database_in_memory_serves_many_threads() -> None:
    with Memory.open(":memory:") as memory:
        threads = [
            threading.Thread(target=lambda n=number: [memory.messages.add(f"s{n}-1-1", {"n": i}) for i in range(20)])  # type: ignore[misc]
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert memory.status().rows["messages"] == 160


def test_backup_is_a_private_and_complete_copy(backend: Any, tmp_path: Path) -> None:
    memory = backend.open()
    memory.messages.add("s-1-1", {"n": 1})
    target = tmp_path / "copies" / "it's a copy.db"
    if backend.dialect == "postgres":
        with pytest.raises(Unsupported, match="pg_dump"):
            memory.backup(target)
        return
    with pytest.raises(NotFound, match=r"it's a copy\.db: there is no such file or folder"):
        memory.backup(target)
    assert not target.parent.exists()
    target.parent.mkdir()
    with pytest.raises(NotFound, match=r"x\.db"):
        memory.backup(f"{backend.url}/x.db")
    memory.backup(target)
    assert oct(target.stat().st_mode & 0o777) == "0o600"
    with Memory.open(target) as copy:
        assert copy.messages.load("s-1-1") == [{"n": 1}]
        assert copy.check(deep=True) == []
    with pytest.raises(Conflict, match="exists"):
        memory.backup(target)


BACKUP = """
import sys
from crowmem import Memory
with Memory.open(sys.argv[1], read_only=True) as memory:
    print("ready", flush=True)
    memory.backup(sys.argv[2])
"""


def test_a_backup_killed_on_its_way_is_no_store(tmp_path: Path) -> None:
    source, target = tmp_path / "source.db", tmp_path / "copies" / "copy.db"
    target.parent.mkdir()
    with Memory.open(source) as memory:
        memory.messages.add_many("s-1-1", [{"n": "x" * 100_000} for _ in range(200)])
        process = subprocess.Popen(
            [sys.executable, "-c", BACKUP, str(source), str(target)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        while not list(target.parent.iterdir()) and process.poll() is None:
            continue
        process.kill()
        process.communicate()
        if target.exists():  # it was faster than we
            assert Memory.open(target, read_only=True).status().rows["messages"] == 200
            target.unlink()
        memory.backup(target)  # what it left is in nobody's way
    with Memory.open(target, read_only=True) as copy:
        assert copy.status().rows["messages"] == 200


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "source.db") as memory:
        (tmp_path / "copies").mkdir()
        (tmp_path / "copies" / "link.db").symlink_to("nowhere")
        with pytest.raises(Conflict, match="exists"):
            memory.backup(tmp_path / "copies" / "link.db")
        with memory.transaction() as inner, pytest.raises(CrowmemError):
            inner.backup(tmp_path / "copies" / "inside.db")
        assert [path.name for path in (tmp_path / "copies").iterdir()] == ["link.db"]


def test_the_outer_handle_inside_a_transaction_of_the_same_thread(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "x.db", busy_timeout_s=60) as memory:
        with memory.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 1})
            assert memory.messages.load("s-1-1") == []  # a reader sees what is committed
            with pytest.raises(Busy, match="use the Memory that transaction"):
                memory.messages.add("s-1-1", {"n": 2})
        assert memory.messages.load("s-1-1") == [{"n": 1}]


def test_a_lock_that_lasts_longer_than_the_timeout_is_one_busy_error(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Memory.open(path) as holder, Memory.open(path, busy_timeout_s=0.2) as waiter:
        entered, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with holder.transaction() as tx:
                tx.messages.add("s-1-1", {"n": 1})
                entered.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait()
        with pytest.raises(Busy, match=r"x\.db.*0\.2 s"):
            waiter.messages.add("s-1-1", {"n": 2})
        leave.set()
        thread.join()
        waiter.messages.add("s-1-1", {"n": 3})
        assert waiter.messages.load("s-1-1") == [{"n": 1}, {"n": 3}]


def test_a_pool_that_is_used_up_says_so(pg_clean: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowmem.drivers import postgres

    monkeypatch.setitem(postgres.POOL, "timeout", 0.2)
    with Memory.open(pg_clean, pool_size=1) as memory, memory.transaction() as tx:
        tx.messages.add("s-1-1", {"n": 1})
        with pytest.raises(PoolExhausted, match="pool_size"):
            memory.messages.load("s-1-1")


def test_a_reader_that_pauses_does_not_hold_the_log(tmp_path: Path) -> None:
    """Rows are handed out complete, so no statement of ours stays open however long the caller takes."""
    path = tmp_path / "x.db"
    with Memory.open(path, durability="normal") as reader, Memory.open(path, durability="normal") as writer:
        writer.messages.add_many("s-1-1", [{"n": number} for number in range(100)])
        held = iter(reader.messages.load("s-1-1"))
        assert next(held) == {"n": 0}
        for number in range(3000):
            writer.messages.add("s-1-1", {"n": number})
        assert reader.status().log_bytes < 8_000_000
    assert not Path(f"{path}-wal").exists()


def test_nothing_of_ours_opens_the_live_file_by_other_means(tmp_path: Path) -> None:
    """Closing any descriptor of the file would drop every lock this process has on it."""
    path = tmp_path / "x.db"
    with Memory.open(path) as memory, memory.transaction() as tx:
        tx.messages.add("s-1-1", {"n": 1})
        locks = _locks(path)
        assert locks
        with Memory.open(path, read_only=True) as reader:
            reader.status()
            reader.check(deep=True)
        memory.status()
        gc.collect()
        assert _locks(path) >= locks


def _locks(path: Path) -> int:
    """How many POSIX locks this process has on a store's files, from the kernel's list."""
    inodes = {str(file.stat().st_ino) for file in path.parent.glob(path.name + "*")}
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return sum(1 for line in lines if f" {os.getpid()} " in line and line.split()[5].rpartition(":")[2] in inodes)


def test_many_threads_on_a_small_pool_lose_nothing(backend: Any) -> None:
    memory = backend.blocking(pool_size=4, busy_timeout_s=60)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(10):
                memory.messages.add(f"s{number}-1-1", {"n": step})
        except BaseException as error:  # kept for the assertion
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert memory.status().rows["messages"] == 320
    for number in range(32):
        assert memory.messages.load(f"s{number}-1-1") == [{"n": step} for step in range(10)]


def test_a_server_that_ends_the_connection_is_noticed_before_use(backend: Any) -> None:
    if backend.dialect != "postgres":
        pytest.skip("SQLite has no server")
    import psycopg

    memory = backend.open()
    memory.messages.add("s-1-1", {"n": 1})
    with psycopg.connect(backend.url, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
        )
    deadline = time.monotonic() + 30
    while True:
        try:
            memory.messages.add("s-1-1", {"n": 2})
            break
        except Unavailable:
            assert time.monotonic() < deadline
    assert memory.messages.load("s-1-1") == [{"n": 1}, {"n": 2}]


def test_many_connections_that_ended_cost_the_next_call_no_pause(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart the pool found one dead connection after the other, and slept 1, 2, 4, 8, 16 seconds between them."""
    if backend.dialect != "postgres":
        pytest.skip("SQLite has no server")
    import psycopg
    from psycopg_pool.base import AttemptWithBackoff

    memory = backend.open(pool_size=8)
    with contextlib.ExitStack() as held:
        for _ in range(5):
            held.enter_context(memory.transaction()).mailbox.count("a")
    others = "from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
    with psycopg.connect(backend.url, autocommit=True) as admin:
        assert len(admin.execute(f"select pg_terminate_backend(pid) {others}".encode()).fetchall()) >= 5
        while admin.execute(f"select 1 {others}".encode()).fetchall():
            time.sleep(0.001)
    pauses: list[float] = []
    pause = AttemptWithBackoff.update_delay
    monkeypatch.setattr(
        AttemptWithBackoff, "update_delay", lambda attempt, now: (pauses.append(now), pause(attempt, now))[1]
    )
    assert memory.mailbox.count("a")["pending"] == 0
    assert pauses == []


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_who_waits_for_a_server_that_is_away_is_served_when_it_is_back(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool gave up after 3 s and tried again for the next caller only: who waited failed after 30."""
    import asyncio

    import pg_server

    from crowmem import AsyncMemory
    from crowmem.drivers import postgres

    monkeypatch.setattr(postgres, "POOL", {"reconnect_timeout": 0.01, "timeout": 20.0})

    def blocking(server: pg_server.OwnServer) -> int:
        with Memory.open(server.url()) as memory, ThreadPoolExecutor(1) as threads:
            memory.mailbox.send("a", "x")
            server.stop()
            waiting = threads.submit(memory.mailbox.count, "a")
            while memory._driver._pool.get_stats().get("connections_errors", 0) < 2:
                time.sleep(0.01)
            server.start()
            return waiting.result()["pending"]

    async def awaited(server: pg_server.OwnServer) -> int:
        async with AsyncMemory.open(server.url()) as memory:
            await memory.mailbox.send("a", "x")
            server.stop()
            waiting = asyncio.create_task(memory.mailbox.count("a"))
            while memory._driver._pool.get_stats().get("connections_errors", 0) < 2:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.start)
            return (await waiting)["pending"]

    with pg_server.running() as server:
        assert (blocking(server) if colour == "sync" else asyncio.run(awaited(server))) == 1


def test_status_warns_of_an_old_snapshot(pg_fresh, monkeypatch, capsys):
    import psycopg

    from crowmem.cli import main
    from crowmem.repositories import store

    with Memory.open(pg_fresh) as memory, psycopg.connect(pg_fresh, application_name="a report") as other:
        other.execute("select 1")  # a transaction that read nothing since holds nothing back
        monkeypatch.setattr(store, "OLD_S", 0)
        assert memory.status().warnings == []
        other.rollback()
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select count(*) from messages")
        [warning] = memory.status().warnings
        assert "a report" in warning
        assert f"process {other.info.backend_pid} " in warning
        assert main(["--db", pg_fresh, "status"]) == 0
        assert "a report" in capsys.readouterr().out
        monkeypatch.setattr(store, "OLD_S", 60)
        assert memory.status().warnings == []


def test_a_file_whose_log_cannot_be_opened_is_told_with_the_reason() -> None:
    error = apsw.exception_for(apsw.SQLITE_CANTOPEN)  # a read-only file system needs root to be made
    assert "its folder must be writable" in str(translate(error, None, "crow.db"))
    assert "its folder" not in str(translate(apsw.exception_for(apsw.SQLITE_IOERR), None, "crow.db"))

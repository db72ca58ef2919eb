"""Locks on sessions: one holder at a time, however it ends, and the same on both databases."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tcp_proxy import Wire
from test_fork import in_child
from test_leases import until, waiting

from crowmem import AsyncMemory, Memory
from crowmem.errors import Conflict, InvalidValue, LeaseLost, LockTimeout, ReadOnly, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "x.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


def free(memory: Any, session_id: str) -> bool:
    """Whether a session can be locked at once."""
    try:
        with memory.sessions.lock(session_id, timeout_s=0):
            return True
    except LockTimeout:
        return False


@contextlib.contextmanager
def process(url: str, body: str) -> Iterator[subprocess.Popen[str]]:
    """Another program that locks session ``s`` and then runs some lines; it has said "held" when this returns."""
    code = (
        "import os, signal, sys, time\nimport crowmem.locks\nfrom crowmem import Memory\ncrowmem.locks.LEASE_S = 1.0\n"
        "with Memory.open(sys.argv[1]) as memory, memory.sessions.lock('s') as lock:\n"
        f"    print('held', flush=True)\n    {body}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, url], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()


def test_one_holder_at_a_time(memory: Any, backend: Any) -> None:
    other = backend.blocking()
    with memory.sessions.lock("s") as lock:
        assert lock.session_id == "s"
        assert not lock.must_stop
        lock.check()
        assert not free(other, "s")
        assert free(other, "t")
        with (
            pytest.raises(LockTimeout, match=r"session 's' was not free within 0\.05 s"),
            other.sessions.lock("s", timeout_s=0.05),
        ):
            pass
    assert free(other, "s")
    assert free(memory, "s")
    assert lock.must_stop
    with pytest.raises(LeaseLost):
        lock.check()


def test_an_error_in_the_block_frees_the_session(memory: Any) -> None:
    with pytest.raises(ZeroDivisionError), memory.sessions.lock("s"):
        raise ZeroDivisionError
    assert free(memory, "s")


def test_waiting_for_oneself_is_refused(url: str) -> None:
    with Memory.open(url) as memory, Memory.open(url) as other:
        lock = memory.sessions.lock("s")
        with lock, memory.sessions.lock("t"):
            for again in (lock, memory.sessions.lock("s"), other.sessions.lock("s")):
                with pytest.raises(Conflict, match="already held here"), again:
                    pass
            with pytest.raises(LockTimeout), memory.sessions.lock("s", timeout_s=0.05):
                pass
            lock.check()
        with lock:
            assert not free_in_thread(memory, "s")
        assert free(memory, "s")


def free_in_thread(memory: Any, session_id: str) -> bool:
    """As `free`, asked by another thread."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(free(memory, session_id)))
    thread.start()
    thread.join()
    return found[0]


def test_a_task_that_waits_for_itself_is_refused(url: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(url) as memory, memory.sessions.lock("s"):
            with pytest.raises(Conflict):
                async with memory.sessions.lock("s"):
                    pass

    asyncio.run(main())


def test_threads_take_turns(url: str) -> None:
    with Memory.open(url, pool_size=2) as memory:
        inside: list[int] = []
        most: list[int] = []

        def work(number: int) -> None:
            for _ in range(3):
                with memory.sessions.lock("s"):
                    inside.append(number)
                    most.append(len(inside))
                    memory.tapes.append("t", [{"n": number}])
                    inside.remove(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == [1] * 18
        assert memory.tapes.length("t") == 18


def test_tasks_take_turns(url: str) -> None:
    async def main() -> None:
        inside = 0
        async with AsyncMemory.open(url) as memory:

            async def work(number: int) -> None:
                nonlocal inside
                async with memory.sessions.lock("s") as lock:
                    inside += 1
                    await memory.tapes.append("t", [{"n": number}])
                    assert inside == 1
                    assert not lock.must_stop
                    inside -= 1

            await asyncio.gather(*[work(number) for number in range(8)])
            assert await memory.tapes.length("t") == 8

    asyncio.run(main())


def test_processes_take_turns(url: str) -> None:
    """A counter that is read, and written by another statement, loses nothing under the lock."""
    code = (
        "import sys\nfrom crowmem import Memory\n"
        "with Memory.open(sys.argv[1], busy_timeout_s=60) as memory:\n"
        "    for _ in range(10):\n"
        "        with memory.sessions.lock('s'):\n"
        "            n = (memory.payloads.load('s') or {'n': 0})['n']\n"
        "            memory.payloads.save('s', {'n': n + 1})\n"
    )
    with Memory.open(url) as memory:
        children = [subprocess.Popen([sys.executable, "-c", code, url], cwd=ROOT) for _ in range(4)]
        assert [child.wait() for child in children] == [0] * 4
        assert memory.payloads.load("s") == {"n": 40}


def test_a_waiter_is_let_in_when_the_holder_leaves(url: str) -> None:
    with Memory.open(url) as memory, process(url, "sys.stdin.readline()") as child:
        assert not free(memory, "s")
        entered = threading.Event()

        def wait() -> None:
            with memory.sessions.lock("s"):
                entered.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not entered.wait(0.1)
        child.communicate("go\n")
        thread.join()
        assert entered.is_set()
        assert child.returncode == 0


def test_a_holder_that_is_killed_lets_go(url: str) -> None:
    with Memory.open(url) as memory, process(url, "os.kill(os.getpid(), signal.SIGKILL)") as child:
        child.wait()
        with memory.sessions.lock("s", timeout_s=5):
            pass


def test_a_holder_that_is_killed_lets_go_while_its_child_lives(pg_clean: str) -> None:
    """The child has a copy of the connection, and would keep the lock for as long as it lives."""
    body = "child = os.fork(); os.kill(os.getpid(), signal.SIGKILL) if child else time.sleep(1000)"
    with Memory.open(pg_clean) as memory, process(pg_clean, body) as child:
        child.wait()
        with memory.sessions.lock("s", timeout_s=5):
            pass
        assert child.stdout is not None
        assert not select.select([child.stdout], [], [], 0)[0], "the grandchild still holds the pipe: it lives"
        kill_readers_of(child)


def kill_readers_of(child: subprocess.Popen[str]) -> None:
    """End the processes that hold a pipe's other end."""
    assert child.stdout is not None
    pipe = f"pipe:[{os.fstat(child.stdout.fileno()).st_ino}]"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if any(str(link.readlink()) == pipe for link in (entry / "fd").iterdir()):
                    os.kill(int(entry.name), signal.SIGKILL)


def test_a_forked_child_holds_nothing_and_frees_nothing(url: str) -> None:
    with Memory.open(url) as memory:
        lock = memory.sessions.lock("s")
        with lock:

            def work() -> None:
                assert lock.must_stop
                with pytest.raises(LeaseLost):
                    lock.check()
                lock.__exit__(None, None, None)
                assert not free(memory, "s")

            assert in_child(work) == 0
            assert not lock.must_stop
            assert not free_in_thread(memory, "s")
        assert free(memory, "s")


def test_a_lost_connection_raises_in_the_holder(pg_clean: str, pg_base: Any) -> None:
    database = str(conninfo_to_dict(pg_clean)["dbname"])
    with ExitStack() as stack:
        wire = stack.enter_context(Wire(pg_base.address))
        memory = stack.enter_context(Memory.open(pg_base.url(database, host=wire.host, port=wire.port)))
        other = stack.enter_context(Memory.open(pg_clean))
        with pytest.raises(LeaseLost, match="lost on the way"), memory.sessions.lock("s") as lock:
            assert not lock.must_stop
            wire.cut("reset")
            until(lambda: lock.must_stop)
            with pytest.raises(LeaseLost):
                lock.check()
            wire.heal()
            with other.sessions.lock("s", timeout_s=5):
                pass
        with pytest.raises(ZeroDivisionError), memory.sessions.lock("s"):
            wire.cut("reset")
            raise ZeroDivisionError


def test_a_task_learns_that_the_server_ended_its_connection(pg_clean: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(pg_clean) as memory:
            with pytest.raises(LeaseLost):
                async with memory.sessions.lock("s") as lock:
                    end_connections(pg_clean)
                    while not lock.must_stop:
                        await asyncio.sleep(0.01)

    asyncio.run(main())


def end_connections(url: str) -> None:
    """End every session that holds an advisory lock, as an administrator would."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_locks"
            " where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"
        )


def test_a_word_from_the_server_is_no_loss(pg_clean: str) -> None:
    """Notices and changed settings make the connection readable; the lock is still held."""
    with Memory.open(pg_clean) as memory, memory.sessions.lock("s") as lock:
        own = lock._way._own  # type: ignore[attr-defined]
        with psycopg.connect(pg_clean, autocommit=True) as admin:
            admin.execute("alter role current_user set timezone = 'UTC'")
            admin.execute("select pg_reload_conf()")
        own._connection.execute("listen there")
        with psycopg.connect(pg_clean, autocommit=True) as admin:
            admin.execute("notify there")
        until(lambda: bool(select.select([own._connection.fileno()], [], [], 0.01)[0]))
        assert not lock.must_stop
        lock.check()


def test_a_holder_on_sqlite_learns_that_its_lease_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowmem.locks.LEASE_S", 0.5)
    url = str(tmp_path / "x.db")
    with Memory.open(url) as memory, Memory.open(url) as other:
        other._store.now_us = 2**52  # far ahead: every lease has ended
        with pytest.raises(LeaseLost), memory.sessions.lock("s") as lock:
            taken = threading.Thread(target=lambda: free(other, "s"))
            taken.start()
            taken.join()
            until(lambda: lock.must_stop)


def test_the_same_session_in_two_schemas_is_two_sessions(pg_fresh: str) -> None:
    with Memory.open(pg_fresh, schema="one") as one, Memory.open(pg_fresh, schema="two") as two, one.sessions.lock("s"):
        assert not free_in_thread(one, "s")
        assert free(two, "s")


def test_behind_a_pooler_and_beside_it_the_lock_is_the_same(pg_clean: str) -> None:
    """Without prepared statements the lock is one of a transaction: a pooler keeps one server session for it."""
    with Memory.open(pg_clean) as direct, Memory.open(pg_clean, prepare=False) as pooled:
        with direct.sessions.lock("s"):
            assert not free_in_thread(pooled, "s")
        with pooled.sessions.lock("s") as lock:
            assert not free_in_thread(direct, "s")
            assert not lock.must_stop
            with pytest.raises(LockTimeout), pooled_thread_lock(pooled):
                pass
        assert free(direct, "s")
        assert free(pooled, "s")


@contextlib.contextmanager
def pooled_thread_lock(memory: Memory) -> Iterator[None]:
    """Try the lock from another thread for a moment, and raise here what it raised."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with memory.sessions.lock("s", timeout_s=0.05):
                pass
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    yield


def test_many_holders_leave_the_pool_alone(pg_clean: str) -> None:
    with Memory.open(pg_clean, pool_size=4) as memory, ExitStack() as held:
        locks = [held.enter_context(memory.sessions.lock(f"s{number}")) for number in range(50)]
        threads = [threading.Thread(target=memory.tapes.append, args=("t", [{"n": number}])) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert memory.tapes.length("t") == 8
        assert not any(lock.must_stop for lock in locks)


def test_exactly_its_lock_is_given_back(pg_clean: str) -> None:
    with Memory.open(pg_clean) as memory:
        with memory.sessions.lock("a"):
            with memory.sessions.lock("b"):
                pass
            assert not free_in_thread(memory, "a")
        assert free(memory, "a")


def test_who_came_first_gets_it_first(pg_clean: str) -> None:
    with Memory.open(pg_clean) as memory:
        order: list[int] = []

        def wait(number: int) -> None:
            with memory.sessions.lock("s"):
                order.append(number)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
        with memory.sessions.lock("s"):
            for number, thread in enumerate(threads):
                thread.start()
                until(lambda count=number + 1: waiters(pg_clean) == count)
        for thread in threads:
            thread.join()
        assert order == [0, 1, 2, 3]


def waiters(url: str) -> int:
    with psycopg.connect(url) as connection:
        [[count]] = connection.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            " and database = (select oid from pg_database where datname = current_database())"
        ).fetchall()
        return int(count)


def test_a_cancelled_task_stops_waiting(pg_clean: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(pg_clean) as memory:

            async def wait() -> None:
                async with memory.sessions.lock("s"):
                    raise AssertionError("the lock was never free")

            async with memory.sessions.lock("s") as lock:
                waiter = asyncio.create_task(wait())
                await asyncio.to_thread(until, lambda: waiting(pg_clean))
                waiter.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiter
                await asyncio.to_thread(until, lambda: waiters(pg_clean) == 0)
                lock.check()
            async with memory.sessions.lock("s", timeout_s=0):
                pass

    asyncio.run(main())


def test_places_where_nothing_can_be_locked(memory: Any, backend: Any) -> None:
    with memory.transaction() as tx, pytest.raises(Unsupported, match="outside"):
        tx.sessions.lock("s")
    with pytest.raises(ReadOnly, match="read_only"):
        backend.open(read_only=True).sessions.lock("s")


@pytest.mark.parametrize("bad", ["", "a\0b", "x\ud83d", "x" * 2601, None])
def test_bad_names_are_refused(memory: Any, bad: Any) -> None:
    with pytest.raises(InvalidValue, match="session_id"):
        memory.sessions.lock(bad)


@pytest.mark.parametrize("bad", [-1, float("nan"), "1", True])
def test_bad_timeouts_are_refused(memory: Any, bad: Any) -> None:
    with pytest.raises(InvalidValue, match="timeout_s"):
        memory.sessions.lock("s", timeout_s=bad)


def test_any_name_that_is_text_will_do(memory: Any) -> None:
    names = ["../x", "'; drop table leases; --", "ä/🤖", " ", "%", "x" * 2500]
    with ExitStack() as held:
        for name in names:
            held.enter_context(memory.sessions.lock(name))
    assert all(free(memory, name) for name in names)

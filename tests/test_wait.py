"""Waiting for mail: woken at once by whoever sends, cheap for a thousand at a time, and never for good."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from crowmem import AsyncMemory, Memory
from crowmem.drivers import sqlite_wait, waiters

ROOT = Path(__file__).resolve().parents[1]
LONG_S = 30.0  # far more than any wake-up takes; who sleeps it out has not been woken


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


def until(condition):
    """Wait for something that another thread or process is about to do."""
    deadline = time.monotonic() + LONG_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


def sleepers(memory, count=1):
    """Until so many waiters of a store sleep."""
    share = memory._driver.changes if memory._driver.dialect == "sqlite" else memory._driver.listener
    until(lambda: sum(map(len, share.watcher._waiters.values())) >= count)


def test_looking_does_not_wait(memory):
    assert memory.mailbox.wait("a", timeout_s=0) is False
    memory.mailbox.send("a", "x")
    assert memory.mailbox.wait("a", timeout_s=0) is True
    assert memory.mailbox.wait("a", timeout_s=LONG_S) is True
    assert memory.mailbox.wait("b", timeout_s=0.01) is False


def test_a_sender_of_the_same_process_wakes_the_waiter(url):
    with Memory.open(url) as memory, ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        memory.mailbox.send("b", "elsewhere")
        memory.mailbox.send("a", "x")
        assert waiting.result() is True
        assert time.monotonic() - began < LONG_S


@pytest.mark.parametrize("how", ["send", "send_many", "finish", "release", "revive", "transaction"])
def test_whatever_makes_mail_ready_announces_it(url, how):
    with Memory.open(url, max_attempts=1) as here, Memory.open(url, max_attempts=2) as there:
        here.tasks.launch("t", "a")
        there.mailbox.send("a", "1")
        [held] = there.mailbox.lease("a", "w")
        dead = here.mailbox.send("a", "2")
        here.mailbox.release(here.mailbox.lease("a", "w")[0])
        announced = []
        share = there._driver.changes if there._driver.dialect == "sqlite" else there._driver.listener
        share.announce = announced.append

        def in_transaction():
            with there.transaction() as tx:
                tx.mailbox.send("a", "x")
                tx.mailbox.send_many("a", ["y"] * 1000)
                assert announced == []

        {
            "send": lambda: there.mailbox.send("a", "x"),
            "send_many": lambda: there.mailbox.send_many("a", ["x"] * 1000),
            "finish": lambda: there.tasks.finish("t"),
            "release": lambda: there.mailbox.release(held),
            "revive": lambda: there.mailbox.revive(dead.id),
            "transaction": in_transaction,
        }[how]()
        assert announced == ["a"]


def test_what_is_not_ready_is_not_announced(url):
    with Memory.open(url, max_attempts=1) as memory:
        memory.tasks.launch("t", "a")
        announced = []
        share = memory._driver.changes if memory._driver.dialect == "sqlite" else memory._driver.listener
        share.announce = announced.append
        memory.mailbox.send("a", "later", delay_s=50)
        memory.tasks.cancel("t")
        memory.tasks.finish("t")
        with pytest.raises(LookupError), memory.transaction() as tx:
            tx.mailbox.send("a", "x")
            raise LookupError
        assert announced == []


def test_a_sender_in_another_process_wakes_the_waiter(url):
    script = "import sys; from crowmem import Memory; Memory.open(sys.argv[1]).mailbox.send('a', 'x')"
    with Memory.open(url) as memory, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        subprocess.run([sys.executable, "-c", script, url], check=True, cwd=ROOT)
        assert waiting.result() is True
        assert [row.content for row in memory.mailbox.claim("a")] == ["x"]


def test_another_program_that_announces_nothing_is_heard(url):
    """A row of crow-cli is found within the second in which everybody looks."""
    insert = (
        "insert into task_deliveries (session_id, task_id, priority, content, status, created_at)"
        " values ('a', 't', 'low', 'c', 'pending', '2026')"
    )
    with Memory.open(url) as memory, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        if url.startswith("postgresql"):
            with psycopg.connect(url) as other:
                other.execute(insert)
        else:
            import apsw

            apsw.Connection(url).execute(insert)
        assert waiting.result() is True


def test_a_delay_or_a_lease_that_ends_wakes_the_waiter(memory):
    memory.mailbox.send("a", "later", delay_s=0.2)
    assert memory.mailbox.wait("a", timeout_s=LONG_S) is True
    assert len(memory.mailbox.lease("a", "w", lease_s=0.2)) == 1
    assert memory.mailbox.wait("a", timeout_s=LONG_S) is True
    assert [one.attempts for one in memory.mailbox.lease("a", "w")] == [2]


def test_the_time_is_up(memory):
    began = time.monotonic()
    assert memory.mailbox.wait("a", timeout_s=0.2) is False
    assert time.monotonic() - began >= 0.2


def test_a_thousand_threads_wait_on_one_thread_and_cost_nothing(url):
    with Memory.open(url) as memory:
        memory.mailbox.send("warm", "x")
        results = []
        threads = [
            threading.Thread(target=lambda n=n: results.append(memory.mailbox.wait(f"box{n}", timeout_s=LONG_S)))
            for n in range(1000)
        ]
        before = threading.active_count()
        for thread in threads:
            thread.start()
        sleepers(memory, 1000)
        assert threading.active_count() - before - 1000 <= 1
        looked = _look_counter(memory)
        cpu = resource.getrusage(resource.RUSAGE_SELF)
        until(lambda: looked() >= 3)  # three seconds of idling
        idle = resource.getrusage(resource.RUSAGE_SELF)
        spent_s = idle.ru_utime + idle.ru_stime - cpu.ru_utime - cpu.ru_stime
        assert spent_s < 1.5, f"{spent_s:.2f} s of processor time for three seconds of a thousand idle waiters"
        for number in range(1000):
            memory.mailbox.send(f"box{number}", "x")
        for thread in threads:
            thread.join()
        assert results == [True] * 1000


def _look_counter(memory):
    """How often the watcher asked since."""
    share = memory._driver.changes if memory._driver.dialect == "sqlite" else memory._driver.listener
    watcher, asked = share.watcher, []
    questions = watcher.questions

    def counted(*, everybody):
        if everybody:
            asked.append(1)
        return questions(everybody=everybody)

    watcher.questions = counted
    return lambda: len(asked)


def test_a_thousand_tasks_wait(url):
    async def run():
        async with AsyncMemory.open(url) as memory:
            waits = [asyncio.create_task(memory.mailbox.wait(f"box{n % 10}", timeout_s=LONG_S)) for n in range(1000)]
            share = memory._driver.changes if memory._driver.dialect == "sqlite" else memory._driver.listener
            while sum(map(len, share.watcher._waiters.values())) < 1000:
                await asyncio.sleep(0.01)
            for number in range(10):
                await memory.mailbox.send(f"box{number}", "x")
            assert await asyncio.gather(*waits) == [True] * 1000
            assert share.watcher.is_idle

    asyncio.run(run())


def test_a_cancelled_wait_leaves_nothing_behind(url):
    async def run():
        async with AsyncMemory.open(url) as memory:
            task = asyncio.create_task(memory.mailbox.wait("a", timeout_s=LONG_S))
            share = memory._driver.changes if memory._driver.dialect == "sqlite" else memory._driver.listener
            while share.watcher.is_idle:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert share.watcher.is_idle
            await memory.mailbox.send("a", "x")
            assert await memory.mailbox.wait("a", timeout_s=LONG_S) is True

    asyncio.run(run())


def test_closing_ends_the_watching_thread_and_wakes_who_waits(url):
    memory = Memory.open(url)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        thread = next(one for one in threading.enumerate() if one.name == "crowmem-watch")
        memory.close()
        thread.join(LONG_S)
        assert not thread.is_alive()
        assert "Closed" in type(waiting.exception()).__name__


def test_stores_of_one_database_share_one_thread_and_one_connection(url):
    with Memory.open(url) as one, Memory.open(url) as two, ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(store.mailbox.wait, "a", timeout_s=LONG_S) for store in (one, two)]
        sleepers(one, 2)
        assert sum(thread.name == "crowmem-watch" for thread in threading.enumerate()) == 1
        one.mailbox.send("a", "x")
        assert [wait.result() for wait in waits] == [True, True]


def test_a_watcher_that_nobody_needs_ends_and_starts_again(url, monkeypatch):
    for module in (waiters, sqlite_wait, sys.modules["crowmem.drivers.postgres_wait"]):
        monkeypatch.setattr(module, "LINGER_S", 0.05)
    with Memory.open(url) as memory:
        assert memory.mailbox.wait("a", timeout_s=0.1) is False
        until(lambda: not any(thread.name == "crowmem-watch" for thread in threading.enumerate()))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
            sleepers(memory)
            memory.mailbox.send("a", "x")
            assert waiting.result() is True


def test_a_forked_child_watches_for_itself(url):
    with Memory.open(url) as memory, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Memory.open(url) as own:
                    own.mailbox.send("b", "x")
                    code = 0 if memory.mailbox.wait("b", timeout_s=LONG_S) else 2
                    own.mailbox.send("a", "from the child")
            finally:
                os._exit(code)
        assert waiting.result() is True
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert [row.content for row in memory.mailbox.claim("a")] == ["from the child"]


# --- PostgreSQL: notifications ---


@pytest.fixture
def listener(pg_clean):
    with psycopg.connect(pg_clean, autocommit=True) as connection:
        connection.execute("listen crowmem")
        yield connection


def heard(listener, timeout=0.3):
    return [word.payload for word in listener.notifies(timeout=timeout)]


def test_a_thousand_rows_of_one_transaction_are_one_word(pg_clean, listener):
    with Memory.open(pg_clean) as memory:
        with memory.transaction() as tx:
            for number in range(1000):
                tx.mailbox.send("a", str(number))
        assert heard(listener) == ["a"]
        memory.mailbox.send_many("b", ["x"] * 1000)
        assert heard(listener) == ["b"]


def test_many_sends_are_few_words_and_the_last_is_told(pg_clean, listener):
    with Memory.open(pg_clean) as memory:
        began = time.monotonic()
        for number in range(200):
            memory.mailbox.send("a", str(number))
        took_s = time.monotonic() - began
        words = heard(listener, 0.5)
        assert 1 <= len(words) <= 2 + took_s / 0.05
    assert set(words) == {"a"}


def test_what_was_sent_last_is_told_before_the_store_closes(pg_clean, listener):
    with Memory.open(pg_clean) as memory:
        memory.mailbox.send('it\'s "a" {b} \\', "x")
        memory.mailbox.send("z", "x")
    assert sorted(heard(listener)) == ['it\'s "a" {b} \\', "z"]


def test_a_lost_listener_comes_back_and_nothing_is_missed(pg_clean):
    with Memory.open(pg_clean) as memory, ThreadPoolExecutor(1) as pool:
        for round_ in range(3):
            waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
            sleepers(memory)
            with psycopg.connect(pg_clean, autocommit=True) as other:
                until(
                    lambda: other.execute(
                        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                        " where pid <> pg_backend_pid() and datname = current_database()"
                        " and (query like '%listen crowmem%' or query like '%mailbox_ready%')"
                    ).fetchone()[0]
                )
                other.execute(  # nobody announces this one
                    "insert into task_deliveries (session_id, task_id, priority, content, status, created_at)"
                    f" values ('a', 't', 'low', '{round_}', 'pending', '2026')"
                )
            assert waiting.result() is True
            assert [row.content for row in memory.mailbox.claim("a")] == [str(round_)]


def test_without_listening_the_second_look_finds_it(pg_clean, monkeypatch):
    """Behind a pooler that shares sessions LISTEN is silent."""
    from crowmem.drivers import postgres_wait

    monkeypatch.setattr(postgres_wait._Line, "listen", lambda _line: None)
    with Memory.open(pg_clean, prepare=False) as memory, Memory.open(pg_clean) as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        other.mailbox.send("a", "x")
        assert waiting.result() is True


def test_a_listener_whose_server_is_silent_is_replaced(pg_clean, monkeypatch):
    """A connection that does not answer within a second is taken for lost; the waiters look for themselves meanwhile."""
    from crowmem.drivers import postgres_wait

    real, silent = postgres_wait._Line._result, []

    def hanging(line, limit):
        if len(silent) < 2:
            silent.append(line)
            raise TimeoutError
        return real(line, limit)

    monkeypatch.setattr(postgres_wait._Line, "_result", hanging)
    with Memory.open(pg_clean) as memory, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        until(lambda: len(silent) == 2)
        memory.mailbox.send("a", "x")
        assert waiting.result() is True


# --- SQLite: watching the file ---


def test_without_inotify_the_counter_is_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_wait, "_watch", lambda *_paths: None)
    url = str(tmp_path / "crow.db")
    with Memory.open(url) as memory, ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
            sleepers(memory)
            script = "import sys; from crowmem import Memory; Memory.open(sys.argv[1]).mailbox.send('a', 'x')"
            subprocess.run([sys.executable, "-c", script, url], check=True, cwd=ROOT)
            assert waiting.result() is True
            memory.mailbox.claim("a")


def test_a_private_database_in_memory_wakes_its_waiters():
    with Memory.open("sqlite://") as memory, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        memory.mailbox.send("a", "x")
        assert waiting.result() is True


def test_a_rollback_journal_is_watched_too(tmp_path):
    import apsw

    url = str(tmp_path / "crow.db")
    Memory.open(url).close()
    connection = apsw.Connection(url)
    connection.pragma("journal_mode", "delete")
    connection.close()
    with Memory.open(url) as memory, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(memory.mailbox.wait, "a", timeout_s=LONG_S)
        sleepers(memory)
        memory.mailbox.send("a", "x")
        assert waiting.result() is True

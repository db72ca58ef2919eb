"""Ctrl-C and cancelled tasks stop a statement that would run for ever, and leave the store fit for use."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crowmem import AsyncMemory, Memory
from crowmem.errors import Closed, InvalidValue, Unavailable
from crowmem.operation import drive
from crowmem.statement import Statement

ROOT = Path(__file__).resolve().parents[1]
ENDLESS = {
    "sqlite": "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
    "postgres": "select pg_sleep(100000)",
}


def endless(*, writes: bool) -> Statement:
    """A statement that never ends by itself."""
    where = dict.fromkeys(ENDLESS, "test:1")
    return Statement("endless", shape="one", result="int", params=(), texts=ENDLESS, where=where, writes=writes)


def endless_write(began: threading.Event, driver: Any) -> Statement:
    """One that SQLite cannot stop without ending its transaction; it says when it has begun."""

    def tell() -> int:
        began.set()
        return 1

    if driver.dialect == "sqlite":
        driver.connection.create_scalar_function("began", tell)
    lite = (
        "with recursive n (i) as (select 1 union all select i + 1 from n) "
        "insert into crowmem_settings (name, value) select 'x', 'y' from n where began() and i < 0"
    )
    stopped = endless(writes=True)
    stopped.texts = {**ENDLESS, "sqlite": lite}
    return stopped


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "x.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


@pytest.mark.parametrize("writes", [False, True])
def test_a_cancelled_task_stops_its_statement(url: str, writes: bool) -> None:
    async def main() -> None:
        async with AsyncMemory.open(url, pool_size=1) as memory:
            await memory.messages.add("s-1-1", {"n": 1})
            task = asyncio.create_task(memory._driver.run(endless(writes=writes), {}))
            await asyncio.to_thread(wait_until_it_runs, url)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await memory.messages.add("s-1-1", {"n": 2})  # neither the writer nor the pool's one connection is held
            assert await memory.messages.load("s-1-1") == [{"n": 1}, {"n": 2}]

    asyncio.run(main())


@pytest.mark.parametrize("writes", [False, True])
def test_a_task_that_is_cancelled_again_and_again_waits_until_its_statement_has_stopped(
    tmp_path: Path, writes: bool
) -> None:
    async def main() -> None:
        async with AsyncMemory.open(tmp_path / "x.db") as memory:
            task = asyncio.create_task(memory._driver.run(endless(writes=writes), {}))
            await asyncio.sleep(0)
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            assert task.cancelled()
            await memory._driver.offload(lambda: None)  # the thread that ran it is free
            assert not memory._driver.file._lent  # type: ignore[attr-defined]
            await memory.messages.add("s-1-1", {"n": 1})

    asyncio.run(main())


def test_a_task_cancelled_inside_a_transaction_rolls_back(url: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(url) as memory:
            begun = asyncio.Event()

            async def work() -> None:
                async with memory.transaction() as tx:
                    await tx.messages.add("s-1-1", {"n": 1})
                    begun.set()
                    await tx._driver.run(endless(writes=False), {})

            task = asyncio.create_task(work())
            await begun.wait()
            await asyncio.to_thread(wait_until_it_runs, url)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await memory.messages.add("s-1-1", {"n": 2})
            assert await memory.messages.load("s-1-1") == [{"n": 2}]

    asyncio.run(main())


def test_a_transaction_whose_statement_was_stopped_keeps_nothing(url: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(url) as memory:
            await memory.messages.add("s-1-1", {"n": 0})
            with pytest.raises(Unavailable):
                async with memory.transaction() as tx:
                    await tx.messages.add("s-1-1", {"n": 1})
                    began = threading.Event()
                    task = asyncio.create_task(tx._driver.run(endless_write(began, tx._driver), {}))
                    await asyncio.to_thread(
                        began.wait if tx._driver.dialect == "sqlite" else partial(wait_until_it_runs, url)
                    )
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    with pytest.raises(Unavailable):
                        await tx.messages.add("s-1-1", {"n": 2})
                    with pytest.raises(Unavailable):
                        async with tx.transaction() as inner:
                            await inner.messages.add("s-1-1", {"n": 3})
            await memory.messages.add("s-1-1", {"n": 4})
            assert await memory.messages.load("s-1-1") == [{"n": 0}, {"n": 4}]

    asyncio.run(main())


def test_a_transaction_that_goes_on_after_a_failure_of_the_server_is_no_commit(pg_clean: str) -> None:
    fails = Statement(
        "fails",
        shape="one",
        result="int",
        params=(),
        texts={"postgres": "select 1 / 0"},
        where={"postgres": "test:1"},
        writes=False,
    )
    with Memory.open(pg_clean) as memory:
        with pytest.raises(Unavailable, match="begin it again"), memory.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 1})
            with pytest.raises(InvalidValue):
                drive(tx._driver.run(fails, {}))
        with memory.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 2})
            with pytest.raises(InvalidValue), tx.transaction() as inner:
                drive(inner._driver.run(fails, {}))
        assert memory.messages.load("s-1-1") == [{"n": 2}]


def test_writers_that_wait_while_the_store_is_closed_are_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        memory = await AsyncMemory.open(tmp_path / "x.db")
        adding = [asyncio.create_task(memory.messages.add("s-1-1", {"n": number})) for number in range(20)]
        await asyncio.sleep(0)
        await asyncio.gather(memory.close(), memory.close())
        for outcome in await asyncio.gather(*adding, return_exceptions=True):
            assert isinstance(outcome, (int, Closed))

    asyncio.run(main())


def test_tasks_cancelled_at_any_moment_leave_no_lock(url: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(url) as memory:

            async def work(number: int) -> None:
                async with memory.transaction() as tx:
                    await tx.messages.add(f"s{number}-1-1", {"n": 1})
                    await tx.messages.add(f"s{number}-1-1", {"n": 2})

            for turns in range(60):
                task = asyncio.create_task(work(turns))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
            await memory.messages.add("after-1-1", {"n": 1})
            for number in range(60):
                assert len(await memory.messages.load(f"s{number}-1-1")) in (0, 2)

    asyncio.run(main())


def wait_until_it_runs(url: str) -> None:
    """Until the statement sleeps; a cancellation that comes while it is only being prepared hits nothing."""
    if not url.startswith("postgresql"):
        return
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute(
            "select 1 from pg_stat_activity where query like 'select pg_sleep%' and wait_event = 'PgSleep'"
        ).fetchone():
            pass


INTERRUPTED = """
import sys
sys.path.insert(0, "tests")
from crowmem import Memory
from crowmem.operation import drive
from test_cancellation import endless
memory = Memory.open(sys.argv[1])
memory.messages.add("s-1-1", {"n": 1})
try:
    print("ready", flush=True)
    if sys.argv[2] == "transaction":
        with memory.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 2})
            drive(tx._driver.run(endless(writes=False), {}))
    else:
        drive(memory._driver.run(endless(writes=sys.argv[2] == "writing"), {}))
except KeyboardInterrupt:
    memory.messages.add("s-1-1", {"n": 3})
    print(memory.messages.load_json("s-1-1"))
"""


@pytest.mark.parametrize("kind", ["reading", "writing", "transaction"])
def test_ctrl_c_stops_a_statement(url: str, kind: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, url, kind],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    wait_until_it_runs(url)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    assert (out, errors) == ('[{"n":1},{"n":3}]\n', "")

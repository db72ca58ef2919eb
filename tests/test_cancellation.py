"""Ctrl-C and cancelled tasks stop a statement that would run for ever, and leave the store fit for use."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from crowmem import AsyncMemory
from crowmem.statement import Statement

ROOT = Path(__file__).resolve().parents[1]
ENDLESS = {
    "sqlite": "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
    "postgres": "select pg_sleep(100000)",
}


def endless(*, writes: bool) -> Statement:
    """A statement that never ends by itself."""
    where = dict.fromkeys(ENDLESS, "test:1")
    return Statement("endless", "one", None, "int", "", {}, (), ENDLESS, where, writes=writes)


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
    """Until the server shows the statement; a cancellation that comes before it is lost on its way."""
    if not url.startswith("postgresql"):
        return
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute(
            "select 1 from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'"
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

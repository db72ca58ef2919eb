"""A batch on PostgreSQL that fails: its first error is raised, and what only follows from it is told to nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crowmem import AsyncMemory, Memory
from crowmem.errors import CrowmemError
from crowmem.ids import parse_agent_id
from crowmem.message_rows import make_row
from crowmem.repositories.imports import MESSAGE_ADD
from crowmem.repositories.prompts import ADD as PROMPT_ADD

pytestmark = pytest.mark.postgres
COUNT = 300


def prompts(bad: dict[int, Any]) -> list[dict[str, Any]]:
    texts = [bad.get(n, f"text {n}") for n in range(COUNT)]
    return [{"id": f"p{n}", "name": "crow", "template": text, "created_at": "now"} for n, text in enumerate(texts)]


def messages(bad: dict[int, Any]) -> list[dict[str, Any]]:
    place = parse_agent_id("s-1-1")
    made = [make_row("s-1-1", place, {"n": n}, None, None, False, False, "postgres", "message") for n in range(COUNT)]
    return [{**row.columns, "id": None, "agent_id": bad.get(n, "s-1-1")} for n, row in enumerate(made)]


CASES = {"nothing returned": (PROMPT_ADD, prompts), "ids returned": (MESSAGE_ADD, messages)}
BAD = {"first": {0: None}, "two in the midst": {100: None, 200: None}, "last": {COUNT - 1: None}, "nul": {150: "a\0b"}}


async def attempt(memory: Any, case: str, bad: dict[int, Any]) -> None:
    """Run a batch that fails, then one that does not, in a transaction and a savepoint in it."""
    statement, rows = CASES[case]
    async with memory._driver.transaction() as tx:
        with pytest.raises(CrowmemError) as raised:
            async with tx.transaction() as inner:
                await inner.run_batch(statement, rows(bad))
        assert statement.name in str(raised.value)
        assert "aborted" not in str(raised.value)
        found = await tx.run_batch(statement, rows({}))
        assert len(found) == (COUNT if statement.shape == "many" else len(found))
        if case == "ids returned":
            ids = [new_id for (new_id,) in found]
            assert len(set(ids)) == COUNT
            assert ids == sorted(ids)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_only_the_first_error_is_told(
    pg_clean: str, caplog: pytest.LogCaptureFixture, colour: str, case: str, bad: dict[int, Any]
) -> None:

    async def run() -> None:
        async with AsyncMemory.open(pg_clean) as memory:
            await attempt(memory, case, bad)

    if colour == "async":
        asyncio.run(run())
    else:
        with Memory.open(pg_clean) as memory:
            coroutine = attempt(memory, case, bad)
            with pytest.raises(StopIteration):
                coroutine.send(None)
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []


def test_a_batch_that_is_cancelled_leaves_the_connection_usable(
    pg_clean: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with AsyncMemory.open(pg_clean) as memory, AsyncMemory.open(pg_clean) as other:
            async with other.transaction() as tx:
                await tx._driver.run_batch(PROMPT_ADD, prompts({}))

                async def blocked() -> None:
                    async with memory.transaction() as waiting:  # behind the rows of the other one
                        began.set()
                        await waiting._driver.run_batch(PROMPT_ADD, prompts({}))

                began = asyncio.Event()
                task = asyncio.create_task(blocked())
                await began.wait()
                while not (await tx._driver.run(PROMPT_ADD, prompts({})[0])) and not await waits(other):
                    continue
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            async with memory.transaction() as tx:
                await tx._driver.run_batch(PROMPT_ADD, prompts({}))
            assert await memory.prompts.get("p0") is not None

    async def waits(memory: AsyncMemory) -> bool:
        async with memory._driver._connection() as connection:
            found = await (
                await connection.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
            ).fetchone()
        return bool(found[0])

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []

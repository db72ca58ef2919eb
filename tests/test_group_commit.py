"""Writers of one process that wait for each other share commits, and nothing else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from crowmem import Memory
from crowmem.errors import Busy, Conflict, CrowmemError, StoreFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WRITERS = 16


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory.open(tmp_path / "crow.db") as opened:
        yield opened


def at_once(memory: Memory, calls: list[Callable[[], Any]], commits: list[int] | None = None) -> list[Any]:
    """What each call returned or raised, when all of them wait for a transaction that ends then."""
    results: list[Any] = [None] * len(calls)
    group = memory._driver.file.group

    def run(number: int) -> None:
        try:
            results[number] = calls[number]()
        except CrowmemError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    with memory.transaction() as tx:
        tx.prompts.intern("first")
        for thread in threads:
            thread.start()
        while len(group._waiting) < len(calls) - 1:  # one leads, and waits for the turn
            continue
        if commits is not None:
            memory._driver.file.writer.set_commit_hook(lambda: commits.append(1) is not None)
    for thread in threads:
        thread.join()
    return results


def adding(memory: Memory, number: int) -> Callable[[], int]:
    return lambda: memory.messages.add(f"s{number}-1-1", {"role": "user", "content": f"caw {number}"})


def test_waiting_writers_share_a_commit(memory: Memory) -> None:
    commits: list[int] = []
    ids = at_once(memory, [adding(memory, number) for number in range(WRITERS)], commits)
    assert sorted(ids) == list(range(1, WRITERS + 1))
    assert len(commits) <= 3  # the transaction's own, and theirs
    for number, message_id in enumerate(ids):
        assert memory.messages.get(message_id).agent_id == f"s{number}-1-1"
    assert len(memory.search.messages("caw", limit=100)) == WRITERS


def test_what_fails_fails_alone(memory: Memory) -> None:
    memory.tasks.launch("t", "s")
    calls: list[Callable[[], Any]] = [adding(memory, number) for number in range(WRITERS)]
    calls[5] = calls[9] = lambda: memory.tasks.launch("t", "s")
    results = at_once(memory, calls)
    for number, result in enumerate(results):
        assert isinstance(result, Conflict if number in (5, 9) else int), result
    assert memory.status().rows["messages"] == WRITERS - 2


def test_a_transaction_that_cannot_be_committed_leaves_each_to_itself(memory: Memory) -> None:
    writer = memory._driver.file.writer
    words = [" ".join(f"w{number}x{place}" for place in range(900)) for number in range(WRITERS)]
    messages = [{"role": "user", "content": text} for text in words]
    room = int(writer.pragma("page_count")) + 40
    writer.pragma("max_page_count", room)
    calls = [lambda one=one: memory.messages.add("s-1-1", one) for one in messages]
    results = at_once(memory, calls)
    writer.pragma("max_page_count", 1 << 30)
    stored = [result for result in results if isinstance(result, int)]
    assert stored
    assert all(isinstance(result, int | StoreFull) for result in results)
    assert any(isinstance(result, StoreFull) for result in results)
    assert [message.id for message in memory.messages.query(session_id=None)] == sorted(stored)
    assert memory.check(deep=True) == []


def test_a_statement_that_ends_the_transaction_takes_no_other_along(memory: Memory) -> None:
    writer = memory._driver.file.writer
    poison: list[bool] = []

    def stop(*_: Any) -> None:
        if not poison:
            poison.append(True)
            writer.interrupt()

    writer.create_scalar_function("stop", stop, 0)
    writer.execute(
        "create temp trigger stopping after insert on messages when new.agent_id = 's3-1-1' begin select stop(); end"
    )
    results = at_once(memory, [adding(memory, number) for number in range(WRITERS)])
    assert poison
    assert all(isinstance(result, int) for result in results), results
    assert memory.status().rows["messages"] == WRITERS


class _Interrupted:
    """A connection on which Ctrl-C is noticed just after a statement, as it is when it came while that ran."""

    def __init__(self, connection: apsw.Connection, after: str) -> None:
        self._connection = connection
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *params: Any) -> Any:
        found = self._connection.execute(sql, *params)
        if sql == self._after:
            self._after = ""
            raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("after", ["begin immediate", "commit"])
def test_ctrl_c_in_the_thread_that_leads_loses_and_doubles_nothing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    file = memory._driver.file
    take, interrupted = file.take_checked, []

    def take_once(**how: Any) -> Any:
        connection = take(**how)
        if not file.group._waiting or interrupted:
            return connection
        interrupted.append(_Interrupted(connection, after))
        return interrupted[0]

    def add(number: int) -> Any:
        try:
            return adding(memory, number)()
        except KeyboardInterrupt:
            return "interrupted"

    monkeypatch.setattr(file, "take_checked", take_once)
    results = at_once(memory, [lambda number=number: add(number) for number in range(WRITERS)])
    assert interrupted
    assert results.count("interrupted") == 1
    found = [message.agent_id for message in memory.messages.query()]
    assert len(found) == len(set(found)), "a message was written twice"
    for number, result in enumerate(results):
        assert isinstance(result, str) or memory.messages.get(result).agent_id == f"s{number}-1-1"
    assert len(found) == WRITERS - (after != "commit")


def test_whoever_waits_too_long_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "crow.db", busy_timeout_s=0.2) as memory:
        results: list[Any] = []

        def add(number: int) -> None:
            try:
                adding(memory, number)()
            except Busy as error:
                results.append(error)

        threads = [threading.Thread(target=add, args=(number,)) for number in range(3)]
        with memory.transaction() as tx:
            tx.prompts.intern("first")
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(results) == 3
        assert memory.status().rows["messages"] == 0
        assert adding(memory, 0)() == 1


def test_inside_its_transaction_a_thread_does_not_wait_for_itself(memory: Memory) -> None:
    other = threading.Thread(target=adding(memory, 1))
    with memory.transaction():
        other.start()
        while memory._driver.file.group._leader is None:
            continue
        with pytest.raises(Busy, match="wait for itself"):
            adding(memory, 2)()
    other.join()
    assert memory.status().rows["messages"] == 1


def test_a_value_that_cannot_be_bound_is_its_own_threads_concern(memory: Memory) -> None:
    from crowmem.repositories.prompts import GET

    file = memory._driver.file
    calls: list[Callable[[], Any]] = [adding(memory, number) for number in range(4)]
    raised: list[Exception] = []

    def odd() -> None:
        try:
            file.group.run(GET, {"id": object()})
        except TypeError as error:
            raised.append(error)

    results = at_once(memory, [*calls, odd])
    assert len(raised) == 1
    assert all(isinstance(result, int) for result in results[:4])


def test_many_rounds_lose_nothing(memory: Memory) -> None:
    ids: list[int] = []

    def write(number: int) -> None:
        add = adding(memory, number)
        ids.extend([add() for _ in range(40)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == list(range(1, 40 * WRITERS + 1))
    with apsw.Connection(str(memory.status().where), flags=apsw.SQLITE_OPEN_READONLY) as reader:
        assert reader.execute("select count(*), count(distinct agent_id) from messages").fetchall() == [(640, WRITERS)]

"""Ctrl-C, and a signal handler that uses the store, at any place of a write where Python looks for signals."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import crowmem
from crowmem import Memory
from crowmem.drivers import turn
from crowmem.drivers.turn_file import TurnFile
from crowmem.errors import CrowmemError

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = str(Path(crowmem.__file__).parent)


def in_transaction(memory: Memory, number: int) -> None:
    with memory.transaction() as tx:
        for half in range(2):
            tx.messages.add("s-1-1", {"n": number, "half": half})


def in_one_call(memory: Memory, number: int) -> None:
    memory.messages.add_many("s-1-1", [{"n": number, "half": half} for half in range(2)])


def alone(memory: Memory, number: int) -> None:
    memory.mailbox.send("a", str(number))
    memory.mailbox.claim("a", limit=1)


def on_a_tape(memory: Memory, number: int) -> None:
    memory.tapes.append("t", [{"n": number}, {"n": number}])


STEPS = [in_transaction, in_one_call, alone, on_a_tape]


@contextlib.contextmanager
def after_call(number: int, act: Callable[[], None], wanted: str = "c_return") -> Any:
    """Act when so many calls of C functions have returned to code of ours, or when so many functions of ours begin
    ("call"): there Python looks for signals. Yields whether it came to that."""
    done = [False]
    left = number

    def look(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        name = frame.f_code.co_filename
        if event != wanted or not (name.startswith(OURS) or "contextlib" in name):
            return
        left -= 1
        if left < 0:
            sys.setprofile(None)
            done[0] = True
            act()

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield done
    finally:
        sys.setprofile(before)


def check(memory: Memory) -> None:
    halves = [(message["n"], message["half"]) for message in memory.messages.load("s-1-1") if "n" in message]
    assert len(set(halves)) == len(halves)
    assert {n for n, half in halves if half} == {n for n, half in halves if not half}
    entries = [entry["n"] for entry in memory.tapes.load("t")]
    assert all(entries.count(n) == 2 for n in entries)
    assert memory.check(deep=True) == []


@pytest.mark.parametrize("step", STEPS)
def test_ctrl_c_after_any_call_leaves_the_store_usable(tmp_path: Path, step: Callable[[Memory, int], None]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with Memory.open(tmp_path / "crow.db", busy_timeout_s=0.2) as memory, Memory.open(tmp_path / "crow.db") as other:
        step(memory, -1)  # what is loaded and prepared once is no matter here
        for number in itertools.count():
            with after_call(number, interrupt) as done:
                try:
                    step(memory, number)
                except KeyboardInterrupt:  # while it is handled its frames live on
                    memory.messages.add("s-1-1", {"after": number})
                    other.messages.add("s-1-1", {"other": number})
            if not done[0]:
                break
        assert number > 20
        check(memory)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("wanted", ["c_return", "call"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_ctrl_c_leaves_nothing_locked(
    tmp_path: Path, step: Callable[[Memory, int], None], kept: bool, wanted: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    path = tmp_path / "crow.db"
    with Memory.open(path) as memory, contextlib.closing(apsw.Connection(str(path))) as stranger:
        step(memory, -1)
        among = turn._turns[str(path.resolve())].among_processes
        assert among is not None
        for number in itertools.count():
            if kept:  # as one that waited for others a moment ago
                among._crowded_until, among._released, among._kept_s = math.inf, math.inf, 0.02
            with contextlib.suppress(KeyboardInterrupt), after_call(number, interrupt, wanted) as done:
                step(memory, number)
            if not done[0]:
                break
            other = TurnFile(among._path)  # another descriptor is a stranger, as another process is
            assert other.acquire(30), number
            stranger.execute("begin immediate; rollback").fetchall()
            other.close(remove=False)
            memory.mailbox.send("b", str(number))
        assert number > 20
        check(memory)


@pytest.mark.parametrize("step", STEPS)
def test_a_signal_handler_that_writes_spoils_nothing(tmp_path: Path, step: Callable[[Memory, int], None]) -> None:
    with Memory.open(tmp_path / "crow.db", busy_timeout_s=0.2) as memory:

        def write() -> None:
            with contextlib.suppress(CrowmemError):  # told that this thread would wait for itself
                memory.messages.add("s-1-1", {"handler": 1})

        step(memory, -1)
        for number in itertools.count():
            with after_call(number, write) as done:
                step(memory, number)
            if not done[0]:
                break
        assert number > 20
        check(memory)
        memory.messages.add("s-1-1", {"after": "all"})

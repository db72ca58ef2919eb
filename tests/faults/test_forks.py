"""Children forked from a busy program and killed at any moment: the parent's store goes on, and each keeps what is its own."""

from __future__ import annotations

import os
import random
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from test_wire import Writers

from crowmem import Memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def child(memory: Memory, number: int, to_parent: int) -> None:
    """Add messages until it is killed, and say each."""
    step = 0
    while True:
        memory.messages.add(f"child{number}-1-1", {"role": "user", "content": f"step{step}"})
        os.write(to_parent, b"x")
        step += 1


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("kills", [pytest.param(4, id="short"), pytest.param(50, id="long", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # Python warns of forks beside threads, which is what is tested
def test_forked_children_that_are_killed(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    dialect: str,
    kills: int,
    tally: Callable[..., None],
    sound: Callable[[Memory], None],
) -> None:
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    said = []
    with Memory.open(url, busy_timeout_s=60) as memory:
        writers = Writers(memory, "parent", count=2)
        writers.wait_for(
            20
        )  # a fork while another thread imports a module leaves the child waiting for it: Python's own
        for number in range(kills):
            heard, to_parent = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    child(memory, number, to_parent)
                finally:
                    os._exit(1)
            os.close(to_parent)
            first = os.read(heard, 1)  # it works; empty when it failed
            threading.Event().wait(random.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            count = len(first)
            while some := os.read(heard, 1000):
                count += len(some)
            os.close(heard)
            said.append(count)
        writers.wait_for(20)
        lost = 0
        for number, count in enumerate(said):
            assert count > 0, f"child {number} could not write"
            stored = [message["content"] for message in memory.messages.load(f"child{number}-1-1")]
            assert stored == [f"step{step}" for step in range(len(stored))]
            lost += max(0, count - len(stored))
            assert len(stored) <= count + 1
        writers.finish(tally, kills=kills)
        tally(acknowledged=sum(said), lost=lost)
        assert lost == 0
        sound(memory)

"""Processes killed at random moments: everything acknowledged is there once, nothing half-written, no lock left."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crowmem import Memory

ROOT = Path(__file__).resolve().parents[2]
# A short form for every day; `make faults` runs the long one.
KILLS = [
    pytest.param(5, id="short"),
    pytest.param(250, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(3000)]),
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_fresh")
    Memory.open(found).close()
    return found


HEAD = """
import json, sys
from crowmem import Memory
url, worker = sys.argv[1:]
def say(*words):
    print(json.dumps(words), flush=True)
memory = Memory.open(url, busy_timeout_s=60)
say("ready")
"""
WRITER = (
    HEAD
    + """
n = 0
while True:
    if n % 3 == 0:
        with memory.transaction() as tx:
            tx.messages.add(f"{worker}-1-1", {"role": "user", "content": f"word{n} one"})
            tx.messages.add(f"{worker}-1-1", {"role": "user", "content": f"word{n} two"})
        say(n, 2)
    elif n % 3 == 1:
        memory.messages.add_many(f"{worker}-1-1", [{"role": "user", "content": f"word{n} {i}"} for i in range(5)])
        say(n, 5)
    else:
        memory.messages.add(f"{worker}-1-1", {"role": "user", "content": f"word{n} alone"})
        say(n, 1)
    n += 1
"""
)
CLAIMER = (
    HEAD
    + """
while True:
    for one in memory.mailbox.lease("box", worker, limit=3, lease_s=0.2):
        try:
            memory.mailbox.ack(one)
            say("done", one.content)
        except Exception as error:
            if type(error).__name__ != "LeaseLost":
                raise
"""
)


class Child:
    """A process that says what was acknowledged, a line at a time."""

    def __init__(self, code: str, *arguments: str) -> None:
        self.said: list[Any] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == '["ready"]\n', self.process.communicate()[1]
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last one may be cut by the kill
                self.said.append(json.loads(line))

    def kill_after(self, lines: int) -> None:
        """Let it work until it has said so much, and a little more, then kill it."""
        while len(self.said) < lines and self.process.poll() is None:
            self._reader.join(0.001)
        self._reader.join(random.random() * 0.01)  # any moment will do
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        assert self.process.stderr.read() == ""
        self.process.stderr.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("kills", KILLS)
def test_killed_writers_lose_nothing_and_leave_nothing_half_written(url: str, kills: int) -> None:
    acknowledged = 0
    for number in range(kills):
        two = [Child(WRITER, url, f"w{number}x{worker}") for worker in range(2)]
        for worker, child in enumerate(two):
            child.kill_after(random.randrange(1, 12))
            name = f"w{number}x{worker}"
            with Memory.open(url) as memory:
                found = Counter(message["content"].split()[0] for message in memory.messages.load(f"{name}-1-1"))
                for n, count in child.said:
                    assert found.pop(f"word{n}") == count, f"{name}: word{n} was acknowledged"
                    acknowledged += count
                # one more may be there, whole, whose answer the kill cut off
                assert all(found[word] == (2, 5, 1)[int(word[4:]) % 3] for word in found), (
                    f"{name}: {found} is half-written"
                )
                assert len(found) <= 1
    with Memory.open(url) as memory:
        assert memory.check(deep=True) == []
        memory.messages.add("after-1-1", {"role": "user", "content": "no lock is left"})
        total = memory.status().rows["messages"]
        assert memory.status().search["lagging"] == 0
        assert total >= acknowledged
        assert sum(info.message_count for info in memory.sessions.list(limit=1000)) == 0  # no agent rows were made
    print(f"killed {2 * kills} writers; {acknowledged} messages acknowledged, 0 lost")


@pytest.mark.parametrize("kills", KILLS)
def test_killed_claimers_finish_every_item(url: str, kills: int) -> None:
    with Memory.open(url, max_attempts=1000) as memory:
        contents: list[str] = []
        done: Counter[str] = Counter()
        for number in range(kills):
            fresh = [f"item {number}.{step}" for step in range(40)]  # more than it is waited for, however fast it works
            memory.mailbox.send_many("box", fresh)
            contents += fresh
            child = Child(CLAIMER, url, f"worker{number}")
            child.kill_after(random.randrange(1, 5))
            done.update(content for _, content in child.said)
        while sum(memory.mailbox.count("box").get(state, 0) for state in ("pending", "leased", "waiting")):
            for one in memory.mailbox.lease("box", "last", limit=100, lease_s=30):
                memory.mailbox.ack(one)
                done[one.content] += 1
        assert [content for content, count in done.items() if count > 1] == []
        # an ack whose answer the kill cut off counts as delivered, and as nothing that was said
        assert memory.mailbox.count("box")["delivered"] == len(contents)
        assert len(contents) - len(done) <= kills
        assert memory.mailbox.dead("box") == []
    print(f"killed {kills} claimers; {len(contents)} items, {len(done)} acknowledged, 0 doubled, 0 lost")

"""Processes killed at random moments: everything acknowledged is there once, nothing half-written, no lock left."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from data import shared_data
from test_images_crash import crash

from crowmem import Memory
from crowmem.ingest import import_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE, CLAIMERS = 4, 3  # processes at work together


def long(rounds: int) -> list[Any]:
    """What `make faults` runs beside the short form of every day."""
    return [pytest.param(rounds, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(3000)])]


ROUNDS = [pytest.param(2, id="short"), *long(75)]


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

    def kill_after(self, lines: int, within_s: float = 0.01) -> None:
        """Let it work until it has said so much, and a little more, then kill it."""
        while len(self.said) < lines and self.process.poll() is None:
            self._reader.join(0.001)
        self._reader.join(random.random() * within_s)  # any moment will do
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        assert self.process.stderr.read() == ""
        self.process.stderr.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_writers_lose_nothing_and_leave_nothing_half_written(
    url: str, rounds: int, tally: Callable[..., None], sound: Callable[[Memory], None]
) -> None:
    acknowledged = 0
    wrong: list[str] = []
    for number in range(rounds):
        children = [Child(WRITER, url, f"w{number}x{worker}") for worker in range(AT_ONCE)]
        for child in children:
            child.kill_after(random.randrange(1, 12))
        with Memory.open(url) as memory:
            for worker, child in enumerate(children):
                name = f"w{number}x{worker}"
                found = Counter(message["content"].split()[0] for message in memory.messages.load(f"{name}-1-1"))
                wrong += [f"{name} {n}" for n, count in child.said if found.pop(f"word{n}", 0) != count]
                acknowledged += sum(count for _, count in child.said)
                # one more may be there, whole, whose answer the kill cut off
                assert all(found[word] == (2, 5, 1)[int(word[4:]) % 3] for word in found), (
                    f"{name}: {found} is half-written"
                )
                assert len(found) <= 1
    tally(kills=AT_ONCE * rounds, acknowledged=acknowledged, lost=len(wrong))
    assert wrong == []
    with Memory.open(url) as memory:
        total = memory.status().rows["messages"]
        assert total >= acknowledged
        assert sum(info.message_count for info in memory.sessions.list(limit=1000)) == total
        sound(memory)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_claimers_finish_every_item(
    url: str, rounds: int, tally: Callable[..., None], sound: Callable[[Memory], None]
) -> None:
    with Memory.open(url, max_attempts=1000) as memory:
        contents: list[str] = []
        done: Counter[str] = Counter()
        for number in range(rounds):
            fresh = [f"item {number}.{step}" for step in range(80)]
            memory.mailbox.send_many("box", fresh)
            contents += fresh
            children = [Child(CLAIMER, url, f"worker{number}x{worker}") for worker in range(CLAIMERS)]
            for child in children:
                child.kill_after(0, within_s=0.1)  # others may leave it nothing to say
                done.update(content for _, content in child.said)
        while sum(memory.mailbox.count("box").get(state, 0) for state in ("pending", "leased", "waiting")):
            for one in memory.mailbox.lease("box", "last", limit=100, lease_s=30):
                memory.mailbox.ack(one)
                done[one.content] += 1
        delivered = memory.mailbox.count("box")["delivered"]
        doubled = [content for content, count in done.items() if count > 1]
        tally(
            kills=CLAIMERS * rounds,
            acknowledged=sum(done.values()),
            lost=len(contents) - delivered,
            doubled=len(doubled),
        )
        assert doubled == []
        # an ack whose answer the kill cut off counts as delivered, and as nothing that was said
        assert delivered == len(contents)
        assert len(contents) - len(done) <= CLAIMERS * rounds
        assert memory.mailbox.dead("box") == []
        sound(memory)


IMPORTER = """
import sys
from crowmem import Memory
from crowmem.ingest import import_paths
with Memory.open(sys.argv[1]) as memory:
    import_paths(memory, sys.argv[2:])
"""


def views(url: str) -> dict[str, Any]:
    """Every session and message of a store, but for numbers that the order of arrival decides."""
    with Memory.open(url, read_only=True) as memory:
        agents = [agent.agent_id for agent in memory.agents.list()]
        return {agent_id: memory.messages.load(agent_id) for agent_id in agents}


@pytest.mark.parametrize("kills", [pytest.param(4, id="short"), *long(60)])
def test_killed_importers_go_on_and_import_everything_once(
    url: str, kills: int, tmp_path: Path, tally: Callable[..., None], sound: Callable[[Memory], None]
) -> None:
    histories = str(shared_data("transcripts") if kills > 10 else ROOT / "examples" / "transcripts")
    whole = str(tmp_path / "whole.db")
    with Memory.open(whole) as memory:
        started = time.monotonic()
        messages = import_paths(memory, [histories]).messages_added
        took = time.monotonic() - started
    assert messages > 20
    left, imports = kills, 0
    while left:
        imports += 1
        with fresh(url, imports, tmp_path) as target:
            killed = 0
            while killed < 10 and left:
                with subprocess.Popen([sys.executable, "-c", IMPORTER, target, histories], cwd=ROOT) as process:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(random.random() * (took + 0.5))
                    if process.returncode is not None:
                        assert process.returncode == 0
                        break
                    process.kill()
                killed, left = killed + 1, left - 1
            with Memory.open(target) as memory:
                import_paths(memory, [histories])
                assert memory.status().rows["messages"] == messages
            assert views(target) == views(whole)
            with Memory.open(target) as memory:
                sound(memory)
    tally(kills=kills, acknowledged=imports * messages, lost=0)


OPENER = """
import sys
from crowmem import Memory
Memory.open(sys.argv[1]).close()
"""


@pytest.mark.parametrize("kills", [pytest.param(4, id="short"), *long(40)])
@pytest.mark.parametrize("begin", ["nothing", "old"])
def test_killed_schema_steps_go_on(
    url: str, begin: str, kills: int, tmp_path: Path, tally: Callable[..., None], sound: Callable[[Memory], None]
) -> None:
    if begin == "old" and url.startswith("postgresql"):
        pytest.skip("older stores are files")
    old = shared_data("transcripts", "derived", "crow-db")
    shutil.copytree(old / "images", tmp_path / "images", copy_function=shutil.copyfile)
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", OPENER, str(tmp_path / "timed.db")], check=True, cwd=ROOT)
    took = time.monotonic() - started
    left, stores = kills, 0
    while left:
        stores += 1
        with fresh(url, stores, tmp_path) as target:
            if begin == "old":
                shutil.copyfile(old / "crow.db", target)
            killed = 0
            while killed < 4 and left:
                with subprocess.Popen([sys.executable, "-c", OPENER, target], cwd=ROOT) as process:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(random.random() * took)
                    if process.returncode is not None:
                        assert process.returncode == 0
                        break
                    process.kill()
                killed, left = killed + 1, left - 1
            with Memory.open(target) as memory:
                assert memory.status().rows["messages"] == (134 if begin == "old" else 0)
                sound(memory)
    tally(kills=kills, lost=0)


@pytest.mark.parametrize("rounds", [pytest.param(2, id="short"), *long(30)])
def test_killed_image_writers(url: str, rounds: int, tmp_path: Path, tally: Callable[..., None]) -> None:
    folder = tmp_path / "images"
    crash(url, f"FileStore({str(folder)!r})", lambda: Memory.open(url, images=folder), rounds)
    tally(kills=rounds, lost=0)


@contextlib.contextmanager
def fresh(url: str, number: int, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store of its own, removed in the end."""
    if not url.startswith("postgresql"):
        path = tmp_path / f"fresh{number}.db"
        yield str(path)
        for left in tmp_path.glob(f"{path.name}*"):
            left.unlink()
        return
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("drop schema public cascade")
        admin.execute("create schema public")
    yield url

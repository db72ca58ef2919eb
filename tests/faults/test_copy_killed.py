"""A copy of 200,000 messages with images, killed twenty times each way, goes on and ends equal."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pictures import picture, png

from crowmem import Memory
from crowmem.copying import contents, copy_store

ROOT = Path(__file__).resolve().parents[2]
KILLS = 20
MESSAGES, SESSIONS, IMAGE_EVERY = 200_000, 200, 100
COPY = """
import sys
from crowmem import Memory
from crowmem.copying import copy_store
source, source_images, target, target_images = sys.argv[1:]
with Memory.open(source, images=source_images, read_only=True) as one, Memory.open(target, images=target_images) as two:
    print("ready", flush=True)
    copy_store(one, two, progress=lambda done, total: print(done, flush=True), verify=False)
"""


def fill(memory: Memory) -> None:
    chance = random.Random(9)
    words = [f"word{number}" for number in range(20_000)]
    each = MESSAGES // SESSIONS
    for session in range(SESSIONS):
        agent = memory.agents.create(f"s{session}-1-1", f"s{session}").agent_id
        texts = [" ".join(chance.choices(words, k=chance.randrange(5, 60))) for _ in range(each)]
        memory.messages.add_many(
            agent,
            [
                picture(png(session * each + number, 2000), text)
                if number % IMAGE_EVERY == 0
                else {"role": "user", "content": text}
                for number, text in enumerate(texts)
            ],
        )
        if session % 10 == 0:
            memory.agents.fork(agent, at=each // 2)
            memory.mailbox.send_many(f"s{session}", texts[:20])
            memory.tapes.append(f"tape{session}", [{"id": str(n), "kind": "message", "payload": {}} for n in range(20)])


def copy_and_kill(source: str, source_images: Path, target: str, target_images: Path) -> int:
    """Start the copy again and again and kill it at any moment; the messages it had reached in the end."""
    reached = 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", COPY, source, str(source_images), target, str(target_images)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(random.randrange(4)):
                reached = int(process.stdout.readline() or reached)
            threading.Event().wait(random.random() / 2)  # any moment will do
            process.send_signal(signal.SIGKILL)
    return reached


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_large_copy_killed_at_any_moment_there_and_back(pg_fresh: str, tmp_path: Path) -> None:
    stores = [str(tmp_path / "one.db"), pg_fresh, str(tmp_path / "three.db")]
    images = [tmp_path / name for name in ("one", "two", "three")]
    with Memory.open(stores[0], images=images[0]) as memory:
        fill(memory)
        found = contents(memory)
    assert found["messages"].rows == MESSAGES
    for number in (0, 1):
        there = (stores[number], images[number], stores[number + 1], images[number + 1])
        reached = copy_and_kill(*there)
        with (
            Memory.open(stores[number], images=images[number], read_only=True) as source,
            Memory.open(stores[number + 1], images=images[number + 1]) as target,
        ):
            report = copy_store(source, target, verify=False)
            assert report.images == MESSAGES // IMAGE_EVERY
            assert report.missing_images == []
            assert contents(target) == found
            assert target.check(deep=True) == []
        print(
            f"{source._driver.dialect} to {target._driver.dialect}: killed {KILLS} times, at message {reached:,} in the end; equal"
        )

"""Clocks of clients that jump by years, both ways, at every look: nothing but the stamps of their own messages shows it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crowmem import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import datetime, random, sys, time
url, worker, rounds, jumps = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "jumps"
YEAR = 365 * 86400
real, real_ns, looks = time.time, time.time_ns, 0
def offset():
    global looks
    looks += 1
    return random.choice([0, 1, -1, 600, -600, 3600, -3600, YEAR, -YEAR, 10 * YEAR, -10 * YEAR])
class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
if jumps:
    time.time = lambda: real() + offset()
    time.time_ns = lambda: real_ns() + offset() * 10**9
from crowmem import Memory, scope
if jumps:
    scope.datetime = Jumping
from crowmem.errors import LeaseLost
done = guarded = 0
with Memory.open(url, busy_timeout_s=60) as memory:
    for n in range(rounds):
        memory.messages.add(f"{worker}-1-1", {"role": "user", "content": f"{worker} number{n}"})
        for one in memory.mailbox.lease("box", worker, limit=2, lease_s=30):
            memory.mailbox.ack(one)
            done += 1
        lease = memory.leases.acquire("guard", worker, lease_s=30)
        if lease is not None:
            value = (memory.payloads.load("counter") or {"n": 0})["n"]
            memory.payloads.save("counter", {"n": value + 1})
            memory.leases.renew(lease, lease_s=30)
            memory.leases.release(lease)
            guarded += 1
    assert memory.messages.follow(0, limit=1)
print(done, guarded, looks)
"""


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("rounds", [pytest.param(40, id="short"), pytest.param(400, id="long", marks=pytest.mark.slow)])
def test_clients_whose_clocks_jump(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    dialect: str,
    rounds: int,
    tally: Callable[..., None],
    sound: Callable[[Memory], None],
) -> None:
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    workers = {"steady": "steady", "wild": "jumps", "wilder": "jumps"}
    with Memory.open(url, busy_timeout_s=60) as memory:
        memory.mailbox.send_many("box", [f"mail {number}" for number in range(rounds)])
        memory.mailbox.send("box", "much later", delay_s=1000)
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", CODE, url, worker, str(rounds), kind],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for worker, kind in workers.items()
        ]
        followed: list[str] = []
        last = 0
        while any(process.poll() is None for process in processes) or memory.messages.follow(last, limit=1):
            for message in memory.messages.follow(last, limit=100):
                followed.append(str(message.data["content"]))
                last = message.id
        said = []
        for process in processes:
            out, errors = process.communicate()
            assert errors == ""
            said.append([int(word) for word in out.split()])
        for worker in workers:
            expected = [f"{worker} number{n}" for n in range(rounds)]
            assert [one["content"] for one in memory.messages.load(f"{worker}-1-1")] == expected
            assert [text for text in followed if text.split()[0] == worker] == expected  # each once, in order
            assert len(memory.search.messages(f"number{rounds - 1} {worker}")) == 1
        acknowledged = sum(done for done, _, _ in said)
        jumps = sum(looks for _, _, looks in said)
        tally(jumps=jumps, acknowledged=acknowledged + len(followed), lost=rounds - acknowledged)
        assert jumps > rounds
        assert Counter(memory.mailbox.count("box")) == Counter(delivered=rounds, waiting=1)
        assert acknowledged == rounds
        assert memory.payloads.load("counter") == {"n": sum(guarded for _, guarded, _ in said)}
        sound(memory)

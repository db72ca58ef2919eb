"""What an add, a page, a scoped search and a claim cost as one SQLite file grows.

Stores of 50,000 and 500,000 messages (``--full``: 5,000,000 too) take turns, so a ratio between them is free of what
else the machine does. Sessions hold 200 messages each; a tenth as many deliveries as messages are finished, and stay.
The bar: 1.5 times the cost in the smallest store. Beside them the bare driver on files of the same sizes, and of the
peers those queues that are installed, with as many finished items where they keep them.

Run: python bench/growth.py [--full] [--only claim]
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from typing import TYPE_CHECKING, Any

from floors import SqliteFloor, messages
from harness import OURS, Report, arguments, folder_on_disk

from crowmem import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZES = (50_000, 500_000, 5_000_000)
SESSION = 200  # messages of each session
SIZE = 200
COMMON = "common"  # a word of every tenth message
BAR = 1.5
CALLS = 100
WAITING = 5_000  # items in the mailbox that is drained
WHATS = ("add", "page", "scoped search", "claim")


def fill(memory: Memory, count: int) -> None:
    """A store of so many messages, with its finished deliveries."""
    some = messages(SESSION, SIZE)
    for place in range(0, SESSION, 10):
        some[place] = {**some[place], "content": f"{COMMON} {some[place]['content']}"}
    for number in range(count // SESSION):
        agent = f"s{number}-1-1"
        memory.agents.create(agent, f"s{number}")
        memory.messages.add_many(agent, some)
        memory.mailbox.send_many(f"done-{number % 10}", [item["content"] for item in some[: SESSION // 10]])
        while memory.mailbox.claim(f"done-{number % 10}", limit=SESSION):
            continue
    memory.search.optimize()


def calls_of(memory: Memory, count: int) -> dict[str, Callable[[int], object]]:
    """What is measured, on one store."""
    some = messages(200, SIZE)
    middle = memory.sessions.list(limit=100)[-1]
    numbers = itertools.count()

    def claim(_: int) -> object:
        found = memory.mailbox.claim("done-0", limit=1)
        if len(found) != 1:
            raise RuntimeError("the mailbox ran out")
        return found

    memory.mailbox.send_many("done-0", ["work"] * WAITING)
    return {
        "add": lambda _: memory.messages.add("s1-1-1", some[next(numbers) % len(some)]),
        "page": lambda _: memory.sessions.list(limit=50, after=middle),
        "scoped search": lambda n: memory.search.messages(COMMON, session_id=f"s{n % (count // SESSION)}", limit=10),
        "claim": claim,
    }


def floor_adds(folder: Path, sizes: list[int]) -> Iterator[Callable[[int], object]]:
    """The bare driver's add, on files as large."""
    some = messages(SESSION, SIZE)
    for size in sizes:
        floor = SqliteFloor(folder / f"floor-{size}.db", "full")
        for number in range(size // SESSION):
            floor.add_many(some, f"s{number}-1-1", f"s{number}")
        yield lambda n, floor=floor: floor.add(some[n % SESSION], "s1-1-1", "s1")


def litequeues(folder: Path, sizes: list[int]) -> Iterator[Callable[[int], object]]:
    """litequeue's claim, after as many finished items."""
    from litequeue import LiteQueue

    for size in sizes:
        queue = LiteQueue(folder / f"litequeue-{size}.db")
        queue.conn.execute("pragma synchronous = full")
        queue.conn.execute("begin")
        for _ in range(size // 10):
            queue.put("work")
        queue.conn.execute("update queue set status = 2, done_time = 1")
        for _ in range(WAITING):
            queue.put("work")
        queue.conn.execute("commit")
        yield lambda _, queue=queue: queue.pop()


def hueys(folder: Path, sizes: list[int]) -> Iterator[Callable[[int], object]]:
    """huey's claim; it deletes what it hands out, so its file holds the waiting items alone."""
    from huey.storage import SqliteStorage

    for size in sizes:
        storage = SqliteStorage("bench", filename=str(folder / f"huey-{size}.db"), fsync=True)
        for _ in range(WAITING):
            storage.enqueue(b"work")
        yield lambda _, storage=storage: storage.dequeue()


PEERS = {"litequeue": litequeues, "huey": hueys}


def growth(report: Report, case: str, side: str, sizes: list[int], calls: list[Callable[[int], object]]) -> None:
    """Let the sizes take turns, and say how the largest compares with the smallest."""
    names = [f"{size:,}" for size in sizes]
    taken = report.compare(f"{case}, {side}", dict(zip(names, calls, strict=True)), calls=CALLS)
    smallest, largest = (taken[name].figures()["p50_us"] for name in (names[0], names[-1]))
    held: dict[str, Any] = {"bar": BAR, "holds": largest <= BAR * smallest} if side == OURS else {}
    report.row(case, side, sizes=names, p50_us=largest, growth=round(largest / smallest, 2), **held)


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "").parse_args()
    sizes = list(SIZES if options.full else SIZES[:2])
    report = Report("growth", options, session=SESSION, message_bytes=SIZE, durability="full")
    if report.wants_dialect("sqlite") and any(map(report.wants, WHATS)):
        measure(report, sizes)
    report.table()


def measure(report: Report, sizes: list[int]) -> None:
    """Fill a store of each size, and let them take turns."""
    with folder_on_disk() as folder, contextlib.ExitStack() as stack:
        stores = [stack.enter_context(Memory.open(folder / f"crow-{size}.db")) for size in sizes]
        for memory, size in zip(stores, sizes, strict=True):
            report.begins(f"filling a store of {size:,} messages")
            began = time.perf_counter()
            fill(memory, size)
            report.row("fill", f"{size:,}", seconds=round(time.perf_counter() - began, 1))
        every = [calls_of(memory, size) for memory, size in zip(stores, sizes, strict=True)]
        for what in WHATS:
            if report.wants(what):
                growth(report, what, OURS, sizes, [calls[what] for calls in every])
        if report.wants("add"):
            report.begins("filling the bare driver's files")
            growth(report, "add", "bare driver", sizes, list(floor_adds(folder, sizes)))
        for name, peer in PEERS.items() if report.wants("claim") else ():
            report.begins(f"filling the files of {name}")
            try:
                calls = list(peer(folder, sizes))
            except ImportError:
                print(f"{name} is not installed: left out", file=sys.stderr)
                continue
            growth(report, "claim", name, sizes, calls)


if __name__ == "__main__":
    main()

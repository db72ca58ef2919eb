"""Many writers at once: threads, processes and tasks that each add to a session of their own for some seconds.

SQLite has one writer at a time, so 16 threads should together do what one does, evenly and without long waits;
PostgreSQL should do more. The bars, as shares: 16 threads of SQLite at least 0.8 of one writer's rate, the slowest at
least 0.6 of the mean, no wait of half a second; PostgreSQL at least twice one writer with a pool of 10; the same for 4
processes; 64 threads on a pool of 4 and 2,000 tasks without any that starves; nothing lost, no errors. Beside them the
bare driver's threads, a connection each: how much more than one of them 16 can do on this machine at all.

A message counts for the rate when it was acknowledged within the time; what each writer had under way when the time
was up is stored, and looked for, but would flatter 2,000 tasks by a message each.

Run: python bench/writers.py [--dialect sqlite] [--only "16 threads"] [--seconds 5]
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floors import PostgresFloor, messages
from harness import FLOOR, OURS, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import AsyncMemory, Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SIZE = 500
THREADS, TASKS, POOL = 16, 2000, 10
WORST_MS = 500
EVEN, STARVES = 0.6, 0.5  # least that the slowest does of the mean: of 16 threads, of more than a pool can serve
EVENLY = {"slowest": EVEN, "worst_ms": WORST_MS}
GIVEN = messages(200, SIZE)


@dataclass
class Writer:
    """What one of the writers saw."""

    waits_s: list[float] = field(default_factory=list)
    late: int = 0  # of them acknowledged when the time was up
    error: str = ""

    @property
    def done(self) -> int:
        """Messages that were acknowledged."""
        return len(self.waits_s)

    @property
    def in_time(self) -> int:
        """Those that count."""
        return self.done - self.late

    def note(self, began: float, until: float) -> None:
        """One more was acknowledged."""
        now = time.monotonic()
        self.waits_s.append(now - began)
        self.late += now > until


def write(memory: Memory, name: str, until: float, seen: Writer) -> None:
    """Add messages to one session until a moment of the monotonic clock."""
    try:
        while (began := time.monotonic()) < until:
            memory.messages.add(f"{name}-1-1", GIVEN[seen.done % len(GIVEN)])
            seen.note(began, until)
    except Exception as error:  # the run goes on and reports it
        seen.error = f"{type(error).__name__}: {error}"


def threads(url: str, prefix: str, count: int, seconds: float, **settings: Any) -> list[Writer]:
    """So many threads with one Memory."""
    seen = [Writer() for _ in range(count)]
    with Memory.open(url, **settings) as memory:
        memory.messages.add(f"{prefix}warm-1-1", {"role": "user", "content": "warm"})
        until = time.monotonic() + seconds
        running = [
            threading.Thread(target=write, args=(memory, f"{prefix}{number}", until, one))
            for number, one in enumerate(seen)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    return seen


def floor_threads(url: str, prefix: str, count: int, seconds: float) -> list[Writer]:
    """So many threads with a bare connection each."""
    seen = [Writer() for _ in range(count)]
    floors = [PostgresFloor(url) for _ in seen]

    def write_bare(floor: PostgresFloor, name: str, until: float, one: Writer) -> None:
        while (began := time.monotonic()) < until:
            floor.add(GIVEN[one.done % len(GIVEN)], f"{name}-1-1", name)
            one.note(began, until)

    until = time.monotonic() + seconds
    running = [
        threading.Thread(target=write_bare, args=(floor, f"{prefix}{number}", until, one))
        for number, (floor, one) in enumerate(zip(floors, seen, strict=True))
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for floor in floors:
        floor.close()
    return seen


def processes(url: str, prefix: str, count: int, seconds: float) -> list[Writer]:
    """So many processes with a Memory each; they begin together."""
    start = time.time() + 2
    command = [sys.executable, __file__, "--writer", url, str(start), str(seconds)]
    running = [
        subprocess.Popen([*command, f"{prefix}{number}"], stdout=subprocess.PIPE, text=True) for number in range(count)
    ]
    return [Writer(**json.loads(one.communicate()[0])) for one in running]


def one_process(url: str, start: str, seconds: str, name: str) -> None:
    """What one of the processes does."""
    seen = Writer()
    with Memory.open(url) as memory:
        memory.messages.add(f"{name}-1-1", {"role": "user", "content": "warm"})
        time.sleep(max(0.0, float(start) - time.time()))
        write(memory, name, time.monotonic() + float(seconds), seen)
    print(json.dumps({"waits_s": seen.waits_s, "late": seen.late, "error": seen.error}))


def tasks(url: str, prefix: str, count: int, seconds: float) -> list[Writer]:
    """So many tasks of one event loop with one AsyncMemory."""
    seen = [Writer() for _ in range(count)]

    async def task(memory: AsyncMemory, name: str, until: float, one: Writer) -> None:
        try:
            while (began := time.monotonic()) < until:
                await memory.messages.add(f"{name}-1-1", GIVEN[one.done % len(GIVEN)])
                one.note(began, until)
        except Exception as error:
            one.error = f"{type(error).__name__}: {error}"

    async def run() -> None:
        async with AsyncMemory.open(url, pool_size=POOL) as memory:
            await memory.messages.add(f"{prefix}warm-1-1", {"role": "user", "content": "warm"})
            until = time.monotonic() + seconds
            await asyncio.gather(*(task(memory, f"{prefix}{number}", until, one) for number, one in enumerate(seen)))

    asyncio.run(run())
    return seen


def record(
    report: Report,
    case: str,
    url: str,
    prefix: str,
    run: Callable[..., list[Writer]],
    count: int,
    *,
    slowest: float = 0.0,
    worst_ms: float = float("inf"),
    **settings: Any,
) -> float:
    """Run one case, record it and whether its bars hold, and return its rate.

    Args:
        report: where to.
        case: its name.
        url: of the store.
        prefix: of the sessions' names.
        run: how the writers run.
        count: how many there are.
        slowest: the least that the slowest may do, of the mean.
        worst_ms: the longest that one may wait.
        settings: of the store.
    """
    report.begins(case)
    seconds = report.options.seconds
    with Memory.open(url) as memory:
        before = memory.status().rows["messages"]
    started = time.monotonic()
    seen = run(url, prefix, count, seconds, **settings)
    took = time.monotonic() - started
    with Memory.open(url) as memory:
        kept = memory.status().rows["messages"] - before
    done = sum(one.done for one in seen)
    warm = count if run is processes else 1
    figures = rates(report, seen)
    errors, lost = sum(bool(one.error) for one in seen), done + warm - kept
    report.row(
        case,
        OURS,
        **figures,
        errors=errors,
        first_error=next((one.error for one in seen if one.error), ""),
        lost=lost,
        took_s=round(took, 2),
        holds=not errors
        and not lost
        and done > 0
        and figures["slowest_of_mean"] >= slowest
        and figures["worst_ms"] < worst_ms,
    )
    return sum(one.in_time for one in seen) / seconds


def record_floor(report: Report, case: str, url: str, prefix: str, count: int) -> float:
    """Run the bare driver's threads, record them, and return their rate."""
    report.begins(case)
    seen = floor_threads(url, prefix, count, report.options.seconds)
    report.row(case, FLOOR, **rates(report, seen))
    return float(sum(one.in_time for one in seen) / report.options.seconds)


def rates(report: Report, seen: list[Writer]) -> dict[str, Any]:
    """What some writers did."""
    every = sorted(wait for one in seen for wait in one.waits_s)
    done = len(every)
    in_time = [one.in_time for one in seen]
    return {
        "writers": len(seen),
        "messages_s": round(sum(in_time) / report.options.seconds),
        "slowest_of_mean": round(min(in_time) * len(seen) / sum(in_time), 3) if sum(in_time) else 0.0,
        "p50_ms": round(every[done // 2] * 1000, 2) if done else 0.0,
        "p99_ms": round(every[done * 99 // 100] * 1000, 1) if done else 0.0,
        "worst_ms": round(every[-1] * 1000, 1) if done else 0.0,
    }


def sqlite(report: Report, folder: Path) -> None:
    """One thread, 16 threads, 4 processes, 16 tasks."""
    url = str(folder / "crow.db")
    Memory.open(url).close()
    runs = {
        "1 thread": lambda: record(report, "sqlite 1 thread", url, "a", threads, 1),
        "16 threads": lambda: record(report, "sqlite 16 threads", url, "b", threads, THREADS, **EVENLY),
        "4 processes": lambda: record(report, "sqlite 4 processes", url, "c", processes, 4, **EVENLY),
        "16 tasks": lambda: record(report, "sqlite 16 tasks", url, "d", tasks, THREADS),
    }
    compare(report, "sqlite", runs, dict.fromkeys(("16 threads", "4 processes", "16 tasks"), ("1 thread", 0.8)))


def server(report: Report, url: str, bare_url: str) -> None:
    """One thread, 16 on a pool of 10, 64 on a pool of 4, 4 processes, 2,000 tasks; one and 16 of the bare driver's."""
    Memory.open(url).close()
    bare = {
        "floor, 1 thread": lambda: record_floor(report, "postgres floor, 1 thread", bare_url, "a", 1),
        "floor, 16 threads": lambda: record_floor(report, "postgres floor, 16 threads", bare_url, "b", THREADS),
    }
    compare(report, "postgres", bare, {"floor, 16 threads": ("floor, 1 thread", None)})
    runs = {
        "1 thread": lambda: record(report, "postgres 1 thread", url, "a", threads, 1),
        "16 threads": lambda: record(
            report, "postgres 16 threads", url, "b", threads, THREADS, pool_size=POOL, **EVENLY
        ),
        "64 threads on 4": lambda: record(
            report, "postgres 64 threads on 4", url, "c", threads, 64, pool_size=4, slowest=STARVES
        ),
        "4 processes": lambda: record(report, "postgres 4 processes", url, "d", processes, 4, **EVENLY),
        "2,000 tasks": lambda: record(report, "postgres 2,000 tasks", url, "e", tasks, TASKS, slowest=STARVES),
    }
    bases = {"16 threads": ("1 thread", 2.0), "4 processes": ("1 thread", 2.0), "2,000 tasks": ("16 threads", 0.9)}
    compare(report, "postgres", runs, bases)


def compare(
    report: Report,
    dialect: str,
    runs: dict[str, Callable[[], float]],
    bars: Mapping[str, tuple[str, float | None]],
) -> None:
    """Measure what is wanted, and set rates against those of other cases, which are measured with them.

    Args:
        report: where to.
        dialect: the database.
        runs: of each case what measures its rate.
        bars: of a case the other one, and the least share of its rate.
    """
    wanted = {name for name in runs if report.wants(f"{dialect} {name}")}
    for name in reversed(runs):  # a case stands behind the one it is set against
        if name in wanted and name in bars:
            wanted.add(bars[name][0])
    measured = {name: measure() for name, measure in runs.items() if name in wanted}
    for name, (base, bar) in bars.items():
        if name in measured:
            share = measured[name] / measured[base] if measured[base] else 0.0
            held = {} if bar is None else {"bar": bar, "holds": share >= bar}
            report.row(f"{dialect} {name}", f"of {base}", share=round(share, 3), **held)


def main() -> None:
    """Run the cases that the command line asks for."""
    if sys.argv[1:2] == ["--writer"]:
        one_process(*sys.argv[2:])
        return
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each case writes")
    options = parser.parse_args()
    report = Report("writers", options, message_bytes=SIZE, durability="full")
    if report.wants_dialect("sqlite"):
        with folder_on_disk() as folder:
            sqlite(report, folder)
    if report.wants_dialect("postgres"):
        with postgres(report) as running:
            server(report, loopback(running, "crow"), loopback(running, "floor"))
    report.table()


if __name__ == "__main__":
    main()

"""Many claimers that start together, as processes or threads, and what each of them took."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import threading
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from queues import SIDES, Place

if TYPE_CHECKING:
    from collections.abc import Callable

START_S = 120.0  # claimers that are not up by then never will be


@dataclass
class Drained:
    """What the claimers of one cell did.

    Attributes:
        ids: of everything taken, in no order.
        rate: items a second, from the common start to the last item.
        times_us: of each call that took something.
        shares: items by claimer.
        cpu_us: processor time of the claimers a call.
        server_us: processor time of the server an item, from the common start on.
    """

    ids: array[int]
    rate: float
    times_us: list[float]
    shares: list[int]
    cpu_us: float
    server_us: float = 0.0

    @property
    def all_us(self) -> float:
        """Processor time of claimers and server an item."""
        return self.cpu_us * len(self.times_us) / max(1, len(self.ids)) + self.server_us

    @property
    def p50_us(self) -> float:
        """The median call."""
        return self.times_us[len(self.times_us) // 2] if self.times_us else 0.0

    @property
    def p99_us(self) -> float:
        """99 of 100 calls took no longer."""
        return self.times_us[min(len(self.times_us) - 1, len(self.times_us) * 99 // 100)] if self.times_us else 0.0

    @property
    def worst_us(self) -> float:
        """The longest call."""
        return self.times_us[-1] if self.times_us else 0.0


def drain(
    side: str,
    place: Place,
    *,
    claimers: int,
    batch: int,
    seconds: float,
    hot: bool,
    threads: bool,
    server_cpu_us: Callable[[], float] | None = None,
) -> Drained:
    """Let claimers take until nothing is left or the time is up.

    Args:
        side: a queue of `queues.SIDES`, filled.
        place: where it lives.
        claimers: how many.
        batch: items a call.
        seconds: most seconds to go on.
        hot: all on mailbox 0, else each on its own.
        threads: claimers are threads of this process, else processes.
        server_cpu_us: what the server has used so far, where that is known.
    """
    os.environ["CLAIMERS"] = str(claimers)
    if threads:
        answers: Any = queue.Queue()
        barrier: Any = threading.Barrier(claimers + 1)
        kind: Any = threading.Thread
    else:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["queues", "claimers", "crowmem.memory", "psycopg_pool", "apsw"])
        answers, barrier, kind = context.Queue(), context.Barrier(claimers + 1), context.Process
    given = (side, place, claimers, batch, seconds, barrier, answers)
    started = [kind(target=_claimer, args=(number, hot, *given)) for number in range(claimers)]
    for one in started:
        one.start()
    with contextlib.suppress(threading.BrokenBarrierError):  # a claimer failed, and answers why
        barrier.wait(START_S)
    before = server_cpu_us() if server_cpu_us else 0.0
    found = [answers.get(timeout=START_S + seconds) for _ in started]
    for one in started:
        one.join()
    used = server_cpu_us() - before if server_cpu_us else 0.0
    if failures := [one for one in found if isinstance(one, str)]:
        raise RuntimeError(failures[0])
    ids = array("q")
    for one in found:
        ids.frombytes(one[0])
    times = sorted(time_us for one in found for time_us in array("d", one[1]))
    start, end = min(one[2] for one in found), max(one[3] for one in found)
    calls = max(1, len(times))
    shares = [len(one[0]) // 8 for one in found]
    cpu = sum(one[4] for one in found) if not threads else found[0][4]
    return Drained(ids, len(ids) / max(end - start, 1e-9), times, shares, cpu / calls * 1e6, used / max(1, len(ids)))


def _claimer(
    number: int,
    hot: bool,
    side: str,
    place: Place,
    claimers: int,
    batch: int,
    seconds: float,
    barrier: Any,
    answers: Any,
) -> None:
    os.environ["CLAIMERS"] = str(claimers)
    try:
        claim = SIDES[side].open(place, 0 if hot else number)
        barrier.wait(START_S)
        answers.put(_take(claim, batch, seconds))
    except Exception as error:
        barrier.abort()
        answers.put(f"{side}: {type(error).__name__}: {error}")


def _take(claim: Callable[[int], list[int]], batch: int, seconds: float) -> tuple[bytes, bytes, float, float, float]:
    ids, times = array("q"), array("d")
    clock = time.perf_counter
    gc.disable()
    cpu = time.process_time()
    # the clock of all processes of a machine is one
    start = last = now = clock()
    while now - start < seconds:
        found = claim(batch)
        before, now = now, clock()
        if not found:
            break
        times.append((now - before) * 1e6)
        ids.extend(found)
        last = now
    gc.enable()
    return ids.tobytes(), times.tobytes(), start, last, time.process_time() - cpu

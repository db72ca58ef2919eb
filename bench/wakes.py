"""How long a waiter sleeps on after the sender's call has returned."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from queues import connect

from crowmem import Memory

if TYPE_CHECKING:
    from queues import Place

IDLE = 1000  # other waiters of the process, who are not meant


def delays_ms(place: Place, count: int, *, processes: bool) -> list[float]:
    """The delay of each of ``count`` wake-ups, sorted.

    Args:
        place: where the store is.
        count: how many items are sent, one at a time, to a waiter that sleeps.
        processes: the waiter is in another process, else a thread of this one.
    """
    box = f"wake-{'processes' if processes else 'threads'}"
    if processes:
        context = multiprocessing.get_context("forkserver")
        woken: Any = context.Queue()
        waiter: Any = context.Process(target=_wait, args=(place, box, count, woken))
    else:
        woken = queue.Queue()
        waiter = threading.Thread(target=_wait, args=(place, box, count, woken))
    with Memory.open(place.url, durability=place.durability) as memory:
        waiter.start()
        delays = []
        for number in range(count):
            woken.get(timeout=60)  # it is about to sleep
            time.sleep(0.06 if number % 2 else 0.1)  # words for one address keep 50 ms between them
            memory.mailbox.send(box, "x")
            sent = time.perf_counter()
            delays.append((woken.get(timeout=60) - sent) * 1000)
        waiter.join()
    return sorted(max(0.0, delay) for delay in delays)


def _wait(place: Place, box: str, count: int, woken: Any) -> None:
    with Memory.open(place.url, durability=place.durability) as memory:
        for _ in range(count):
            memory.mailbox.claim(box)
            woken.put(0.0)
            while not memory.mailbox.wait(box, timeout_s=30):
                continue
            woken.put(time.perf_counter())


def bare_delays_ms(place: Place, count: int) -> list[float]:
    """The same between two processes with nothing but an insert, a NOTIFY after it and a connection that listens."""
    context = multiprocessing.get_context("forkserver")
    woken: Any = context.Queue()
    waiter: Any = context.Process(target=_listen, args=(place, count, woken), daemon=True)
    with connect(place) as connection:
        connection.execute("create table if not exists bare (id bigserial primary key, content text)")
        waiter.start()
        delays = []
        for _ in range(count):
            woken.get(timeout=60)  # it is about to sleep
            time.sleep(0.06)
            connection.execute("insert into bare (content) values ('x')")
            sent = time.perf_counter()
            connection.execute("notify bare")
            delays.append((woken.get(timeout=60) - sent) * 1000)
        waiter.join()
        connection.execute("drop table bare")
    return sorted(max(0.0, delay) for delay in delays)


def _listen(place: Place, count: int, woken: Any) -> None:
    with connect(place) as connection:
        connection.execute("listen bare")
        for _ in range(count):
            woken.put(0.0)
            list(connection.notifies(timeout=30, stop_after=1))
            connection.execute("select count(*) from bare where id = 0")  # a waiter looks whether the word is true
            woken.put(time.perf_counter())


def idle_cpu(place: Place, seconds: float) -> float:
    """The part of one core that a process needs whose ``IDLE`` threads wait."""
    with Memory.open(place.url, durability=place.durability) as memory:
        threads = [
            threading.Thread(target=memory.mailbox.wait, args=(f"idle-{number}",), kwargs={"timeout_s": seconds + 3})
            for number in range(IDLE)
        ]
        for thread in threads:
            thread.start()
        time.sleep(1.5)  # till all of them sleep
        began, cpu = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        part = (time.process_time() - cpu) / (time.perf_counter() - began)
        for thread in threads:
            thread.join()
    return part

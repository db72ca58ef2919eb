"""Who waits for what in this process, and the one thread that watches a store for all of them.

However many threads and tasks wait, one thread sleeps until the operating system says that something changed, and
once a second asks the database one question for all of them: a lost word costs a second, never a row.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from crowmem.statement import Statement

POLL_S = 1.0  # how often the waiters' question is asked, whether or not anything was heard
LINGER_S = 10.0  # how long the thread stays when it has nothing to do
SHORT_S = 0.05  # a wait this short that asks nothing needs no watcher


class Waiter(Protocol):
    """One who sleeps."""

    def wake(self) -> None:
        """End its sleep; from any thread, any number of times."""


class ThreadWaiter:
    """A thread that sleeps."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def wake(self) -> None:
        """End its sleep."""
        with contextlib.suppress(RuntimeError):  # it was woken before
            self._gate.release()

    def sleep(self, timeout_s: float) -> None:
        """Sleep until woken, or for so long."""
        self._gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))


class TaskWaiter:
    """A task of an event loop that sleeps."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """End its sleep."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it every sleep
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    async def sleep(self, timeout_s: float) -> None:
        """Sleep until woken, or for so long."""
        timer = self._loop.call_later(timeout_s, self._end)
        try:
            await self._woken
        finally:
            timer.cancel()


class Watcher:
    """Wakes the waiters of one store; a subclass knows how changes are heard of.

    Its thread starts with the first waiter and ends when nobody has waited for a while.
    """

    def __init__(self) -> None:
        self.users = 0  # open stores that share it
        self.pid = os.getpid()
        self.closing = False
        self.mutex = threading.Lock()
        self._waiters: dict[str, set[Waiter]] = {}
        self._looks: dict[str, Statement] = {}
        self._fresh: set[str] = set()
        self._thread: threading.Thread | None = None
        self._bell_out, self._bell_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(self._bell_in, False)

    # --- called by those who wait and announce ---

    def add(self, topic: str, waiter: Waiter, look: Statement | None) -> None:
        """Count a waiter in. Its question is asked soon, so that nothing announced a moment earlier is missed."""
        with self.mutex:
            self._waiters.setdefault(topic, set()).add(waiter)
            if look is not None:
                self._looks[topic] = look
                self._fresh.add(topic)
            self.start()
        self.ring()

    def remove(self, topic: str, waiter: Waiter) -> None:
        """Count a waiter out."""
        with self.mutex:
            waiters = self._waiters.get(topic)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[topic]
                    self._looks.pop(topic, None)
                    self._fresh.discard(topic)

    def wake(self, topics: Iterable[str]) -> None:
        """Wake this process's waiters for some topics."""
        for topic in topics:
            if topic in self._waiters:  # most topics have none: no lock for them
                with self.mutex:
                    for waiter in self._waiters.get(topic, ()):
                        waiter.wake()

    def wake_all(self) -> None:
        """Wake everybody, to look for themselves."""
        self.wake(list(self._waiters))

    def ring(self) -> None:
        """End the thread's sleep."""
        with contextlib.suppress(BlockingIOError, OSError):  # full: it rings already; closed: nobody sleeps
            os.write(self._bell_in, b"!")

    def close(self) -> None:
        """End the thread."""
        with self.mutex:
            self.closing = True
            thread = self._thread
        self.ring()
        if thread is not None:
            thread.join(5)
        os.close(self._bell_in)
        os.close(self._bell_out)

    # --- called by the thread ---

    def start(self) -> None:
        """Start the thread if there is none; the caller holds the mutex."""
        if self._thread is None and not self.closing:
            self._thread = threading.Thread(target=self._run, name="crowmem-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.watch()
        except Exception:
            import logging  # 3 ms, for what hardly ever happens

            log = logging.getLogger("crowmem")
            log.exception("the thread that watches for changes ended; waiters look once a second from now on")
            with self.mutex:
                self._thread = None
            self.wake_all()

    def watch(self) -> None:
        """The thread's work; returns after `may_end` said yes."""
        raise NotImplementedError

    def may_end(self) -> bool:
        """Whether the thread may end; after a yes the next waiter starts another."""
        with self.mutex:
            if not self.closing and (self._waiters or self.has_work()):
                return False
            self._thread = None
            return True

    def has_work(self) -> bool:
        """Whether something is left to do though nobody waits."""
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._waiters

    @property
    def has_fresh(self) -> bool:
        """Whether somebody came whose question was not asked yet."""
        return bool(self._fresh)

    def questions(self, *, everybody: bool) -> list[tuple[Statement, list[str]]]:
        """What to ask: each question with the topics it is asked about."""
        found: dict[str, tuple[Statement, list[str]]] = {}
        with self.mutex:
            for topic in self._looks if everybody else self._fresh:
                look = self._looks[topic]
                found.setdefault(look.name, (look, []))[1].append(topic)
            self._fresh.clear()
        return list(found.values())

    def answered(self, rows: Iterable[tuple[str, int]]) -> float:
        """Wake the topics that are ready.

        Args:
            rows: topic and microseconds until it is ready.

        Returns:
            Seconds until the next of the others is.
        """
        ready, next_us = [], POLL_S * 1_000_000
        for topic, due_us in rows:
            if due_us <= 0:
                ready.append(topic)
            else:
                next_us = min(next_us, due_us)
        self.wake(ready)
        return next_us / 1_000_000

    def sleep(self, timeout_s: float, *files: int) -> bool:
        """Sleep until the bell rings, a file can be read, or the time is up; True when a file can be read."""
        poll = select.poll()
        for file in (self._bell_out, *files):
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(max(0.0, timeout_s) * 1000)}
        if self._bell_out in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell_out, 4096)
        return any(file in ready for file in files)


W = TypeVar("W", bound=Watcher)
_shared: dict[Any, Watcher] = {}
_shared_mutex = threading.Lock()
_inherited: list[Any] = []  # a parent's watchers: never used and never finalised in a forked child


class Share:
    """One store's share in its watcher, which all stores of this process on the same database use together."""

    def __init__(self, key: Any, make: Callable[[], Watcher]) -> None:
        self._key = key
        self._make = make
        self._held: Watcher | None = None
        self._closed = False

    @property
    def watcher(self) -> Any:
        """The watcher of this process; a forked child gets its own."""
        held = self._held
        if held is None or held.pid != os.getpid():
            with _shared_mutex:
                held = _shared.get(self._key)
                if held is None:
                    held = _shared[self._key] = self._make()
                held.users += 1
            self._held = held
        return held

    def wait(self, topic: str, timeout_s: float, look: Statement | None) -> None:
        """Sleep in this thread."""
        if look is None and timeout_s <= SHORT_S:
            time.sleep(timeout_s)
            return
        if self._closed:
            return
        waiter = ThreadWaiter()
        watcher = self.watcher
        watcher.add(topic, waiter, look)
        try:
            if not self._closed:  # who comes too late to be woken must not sleep
                waiter.sleep(timeout_s)
        finally:
            watcher.remove(topic, waiter)

    async def wait_async(self, topic: str, timeout_s: float, look: Statement | None) -> None:
        """Sleep in this task."""
        if look is None and timeout_s <= SHORT_S:
            import asyncio

            await asyncio.sleep(timeout_s)
            return
        if self._closed:
            return
        waiter = TaskWaiter()
        watcher = self.watcher
        watcher.add(topic, waiter, look)
        try:
            if not self._closed:
                await waiter.sleep(timeout_s)
        finally:
            watcher.remove(topic, waiter)

    def close(self) -> None:
        """Give the share back; the last one ends the watching. Whoever still waits is woken."""
        self._closed = True
        held, self._held = self._held, None
        if held is None or held.pid != os.getpid():
            return
        held.wake_all()
        with _shared_mutex:
            held.users -= 1
            if held.users:
                return
            if _shared.get(self._key) is held:
                del _shared[self._key]
        held.close()


def _forget() -> None:
    global _shared, _shared_mutex
    _inherited.append(_shared)
    _shared, _shared_mutex = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget)

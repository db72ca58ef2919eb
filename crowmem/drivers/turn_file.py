"""A blocking lock between processes, so that writers of one SQLite file take turns in order of arrival.

SQLite's own wait is a sleep between tries: whoever holds the lock has it again before a sleeper wakes, and some
claims took 2 to 4 s beside 15 busy processes (measured). The kernel queues those who block in `flock` on an empty
file beside the database. It is a courtesy only: SQLite's locks alone keep the data right, so where no such file can
be made, writers go on without.

Among busy processes one that has the lock keeps it for three milliseconds and writes what comes in that time: after
another process wrote, SQLite reads all its pages anew. Four writing processes did 0.67 to 0.82 of one's rate with a
millisecond and 0.82 to 0.94 with three (five and nine runs). Where many wait, each keeps it for less: the longest of 16
processes' claims took 0.06 to 0.07 s, where three milliseconds for all made it 0.09 to 0.18. One that stayed away after
its last write keeps nothing: what it does instead may hold the interpreter, and then the lock is not let go of in time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]  # asked for before each use

if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIX = "-turn"
SAME_S = 1.0  # how often a holder looks whether its file is still the one that others find
KEPT_S = 0.003  # how long a process keeps the lock among others that want it,
CROWD_S = 0.02  # unless it waited longer than this: then less, the longer it waited
CROWDED_S = 0.1  # how long it believes that others do


class TurnFile:
    """The lock of one database among processes. One thread at a time uses it: the one that has the process's turn."""

    def __init__(self, database: str) -> None:
        self._path = database + SUFFIX
        self._file: int | None = None
        self._usable = fcntl is not None
        self._look_at = 0.0
        self._helper: _Helper | None = None
        self._keeper: _Keeper | None = None
        self._since = 0.0
        self._kept_s = KEPT_S
        self._crowded_until = 0.0
        self._released = 0.0
        self._comes_back = False

    def acquire(self, timeout_s: float) -> bool:
        """Wait for the lock; False when the time is up."""
        if self._keeper is not None and self._keeper.take_back():
            return True
        now = time.monotonic()
        if not self._usable or (now >= self._look_at and not self._find()):
            return True
        self._since = now
        self._comes_back = now - self._released < KEPT_S
        try:
            fcntl.flock(self._file or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return self._queue(timeout_s)
        except OSError:  # a file system that keeps no such locks
            self._usable = False
            return True

    def _queue(self, timeout_s: float) -> bool:
        if timeout_s <= 0:
            return False
        if self._helper is None:
            self._helper = _Helper(self._file or 0)
        got = self._helper.acquire(timeout_s)
        asked, self._since = self._since, time.monotonic()
        self._kept_s = KEPT_S / max(1.0, (self._since - asked) / CROWD_S)
        self._crowded_until = self._since + CROWDED_S
        return got

    def release(self) -> None:
        """Let the next one go on, at once or in a moment."""
        if not self._usable or self._file is None:
            return
        try:
            kept = bool(self._crowded_until) and self._keep(self._file)
        except BaseException:  # Ctrl-C: nobody may be left to let go of it
            if self._keeper is not None:
                self._keeper.take_back()
            fcntl.flock(self._file, fcntl.LOCK_UN)
            raise
        if not kept:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _keep(self, file: int) -> bool:
        now = self._released = time.monotonic()
        until = self._since + self._kept_s
        if now >= until or now >= self._crowded_until or not self._comes_back:
            return False
        if self._keeper is None:
            self._keeper = _Keeper(file)
        self._keeper.keep(until)
        return True

    def _find(self) -> bool:
        """Open the file, or open it again when another process removed it."""
        self._look_at = time.monotonic() + SAME_S
        try:
            if self._file is not None and os.fstat(self._file).st_nlink:
                return True
            self.close(remove=False)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
            self._file = os.open(self._path, flags, 0o600)
        except OSError:  # a folder we may not write to
            self._usable = False
        return self._usable

    def disown(self) -> None:
        """In a forked child: the parent's lock must not live on here when the parent dies."""
        file, self._file, self._helper, self._keeper, self._usable = self._file, None, None, None, False
        if file is not None:
            os.close(file)

    def close(self, *, remove: bool = True) -> None:
        """Close the file, and remove it if nobody else uses it at this moment."""
        file, self._file = self._file, None
        if self._helper is not None:
            self._helper.close()
            self._helper = None
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        if file is None:
            return
        if remove:
            with contextlib.suppress(OSError):  # in use: whoever closes last removes it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(self._path)  # noqa: PTH108  # a plain string, as everywhere on this path
        os.close(file)


class _Helper:
    """A thread that blocks in `flock` for the one that waits, since the call has no time limit of its own."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._asked = threading.Lock()  # one to be released: what is written in Python is not safe from Ctrl-C
        self._asked.acquire()
        self._mutex = threading.Lock()
        self._granted: Callable[[], None] | None = None
        self._busy = False
        self._closed = False
        threading.Thread(target=self._run, name="crowmem-turn", daemon=True).start()

    def acquire(self, timeout_s: float) -> bool:
        """Have the thread wait for the lock."""
        gate = threading.Lock()
        gate.acquire()
        try:
            with self._mutex:
                self._granted = gate.release
                if not self._busy:
                    self._busy = True
                    self._asked.release()
            if gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
                return True
        except BaseException:  # Ctrl-C while waiting
            if not self._give_up():
                fcntl.flock(self._file, fcntl.LOCK_UN)
            raise
        return not self._give_up()

    def _give_up(self) -> bool:
        """Wait no longer; False when the lock was granted at that very moment."""
        with self._mutex:
            given, self._granted = self._granted, None
            return given is not None

    def _run(self) -> None:
        while not self._closed:
            self._asked.acquire()
            if self._closed:
                return
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_EX)
            with self._mutex:
                self._busy = False
                granted, self._granted = self._granted, None
                if granted is not None:
                    granted()
                elif not self._closed:  # nobody wants it any more
                    fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """End the thread once it has what it waits for."""
        with self._mutex:
            self._closed = True
            if not self._busy:
                self._busy = True
                self._asked.release()


class _Keeper:
    """Holds on to the lock between two writes, and a thread that lets go of it when the time is up."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._mutex = threading.Lock()
        self._changed = threading.Lock()  # released when the thread is to look again
        self._changed.acquire()
        self._kept = False
        self._until = 0.0
        self._closed = False
        threading.Thread(target=self._run, name="crowmem-keep", daemon=True).start()

    def keep(self, until: float) -> None:
        """Hold the lock until a moment of the monotonic clock; it is the same moment for all writes of one turn."""
        with self._mutex:
            self._kept = True
            if self._until != until:
                self._until = until
                self._wake()

    def take_back(self) -> bool:
        """The lock for the next write, if it is still held."""
        with self._mutex:
            kept, self._kept = self._kept, False
            return kept

    def close(self) -> None:
        """End the thread, and let go of the lock."""
        with self._mutex:
            self._closed = True
            self._let_go()
            self._wake()

    def _wake(self) -> None:
        if self._changed.locked():
            self._changed.release()

    def _let_go(self) -> None:
        if self._kept:
            self._kept = False
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _run(self) -> None:
        while not self._closed:
            with self._mutex:
                left_s = self._until - time.monotonic()
                if left_s <= 0:
                    self._let_go()
                    self._until = 0.0
            self._changed.acquire(timeout=left_s if left_s > 0 else -1)

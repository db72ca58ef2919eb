"""Hearing of changes to one SQLite file: at once from this process, and from others by watching the file.

One thread a process sleeps until the kernel says that the write-ahead log was written to (inotify), then looks at
SQLite's own change counter until the commit can be seen: the log is written before it is flushed, and flushed before
it counts. Without inotify the counter is looked at every few milliseconds, 2.7 µs a look.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from crowmem.drivers.sqlite_errors import translated
from crowmem.drivers.waiters import LINGER_S, POLL_S, Share, Watcher
from crowmem.errors import CrowmemError

if TYPE_CHECKING:
    import apsw

    from crowmem.drivers.sqlite_file import SqliteFile

IN_MODIFY, IN_NONBLOCK, IN_CLOEXEC = 0x2, 0o4000, 0o2000000
ALERT_S = 1.0  # how long after the log was written to a commit is expected
STEPS_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)  # between two looks at the counter while alert
BLIND_STEPS_S = (0.005, 0.01, 0.02, 0.03)  # the same where nothing tells of writes
REST_S = (0.005, 0.025)  # least and most rest between two questions, however busy the file is


class Changes(Share):
    """One store's way to wait and announce, from threads and from tasks."""

    def __init__(self, file: SqliteFile) -> None:
        key = os.path.realpath(file.name) if file.path else f":memory:{id(file)}"
        super().__init__(key, lambda: SqliteWatcher(file))

    def announce(self, topic: str) -> None:
        """Wake this process's waiters for a topic; other processes see the log change."""
        if not self._closed:
            self.watcher.wake((topic,))


class SqliteWatcher(Watcher):
    """The watching thread of one file."""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__()
        self._file = file

    def watch(self) -> None:
        """Look for changes until nobody waits."""
        eye = _Eye(self._file)
        quiet_since = time.monotonic()
        try:
            while True:
                if not self.is_idle:
                    quiet_since = time.monotonic()
                if (self.closing or time.monotonic() - quiet_since > LINGER_S) and self.may_end():
                    return
                try:
                    with translated(None, self._file.name):
                        self._turn(eye)
                except CrowmemError:  # the file is busy or gone: whoever waits looks for himself and is told
                    if self.closing:
                        continue
                    eye.close()
                    self.wake_all()
                    self.sleep(POLL_S)
        finally:
            eye.close()

    def _turn(self, eye: _Eye) -> None:
        """One round: ask if something changed, sleep till something may have."""
        now = time.monotonic()
        everybody = now >= eye.next_look or (eye.changed() and now >= eye.rested_at)
        if everybody or self.has_fresh:
            due_s = POLL_S
            for look, topics in self.questions(everybody=everybody):
                due_s = min(due_s, self.answered(eye.ask(look, topics)))
            took_s = time.monotonic() - now
            now = time.monotonic()
            eye.next_look = now + due_s if everybody else min(eye.next_look, now + due_s)
            if everybody:
                eye.seen()
                eye.rested_at = now + min(max(5 * took_s, REST_S[0]), REST_S[1])
        if self.is_idle:
            self.sleep(LINGER_S)
        elif not self.has_fresh:
            resting = eye.rested_at > now
            until = min(eye.next_look, eye.rested_at if resting else now + eye.patience(now))
            # while it rests it is deaf, or each commit of a busy file would wake it
            if self.sleep(until - now, *(() if resting or eye.inotify is None else (eye.inotify,))):
                eye.noticed()


class _Eye:
    """What one watching thread looks with: a connection of its own, and a watch on the log."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._connection: apsw.Connection | None = None
        self._version = -1
        self._pending = False
        self._alert_until = 0.0
        self._step = 0
        self.inotify: int | None = None
        self.next_look = 0.0
        self.rested_at = 0.0

    def changed(self) -> bool:
        """Whether anybody committed since the last question."""
        if self._file.path is None:
            return False
        if self._connection is None:
            self._connection = self._file.open_reader()
            self.inotify = _watch(self._file.name + "-wal", self._file.name)
        with self._file.using(self._connection) as connection:
            version = int(connection.pragma("data_version"))
        if version != self._version:
            self._version, self._pending, self._alert_until = version, True, 0.0
        return self._pending

    def seen(self) -> None:
        """The question was asked after the change."""
        self._pending = False

    def noticed(self) -> None:
        """The log was written to; a commit may follow."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.inotify or 0, 65536)
        self._alert_until, self._step = time.monotonic() + ALERT_S, 0

    def patience(self, now: float) -> float:
        """How long to wait before the next look at the counter."""
        if self._file.path is None:
            return POLL_S
        if self.inotify is not None and now >= self._alert_until:
            return POLL_S
        steps = STEPS_S if self.inotify is not None else BLIND_STEPS_S
        self._step = min(self._step + 1, len(steps) - 1)
        return steps[self._step]

    def ask(self, look: Any, topics: list[str]) -> list[Any]:
        """Run a question."""
        from crowmem.drivers.sqlite_file import execute

        if self._connection is None:
            return self._file.run(look, {"topics": topics})
        with self._file.using(self._connection) as connection:
            return execute(connection, look, {"topics": topics})

    def close(self) -> None:
        """Close the connection and the watch."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self.inotify is not None:
            os.close(self.inotify)
            self.inotify = None


def _watch(*paths: str) -> int | None:
    """A file that can be read when one of the paths was written to; None where the system has no such thing.

    Nothing is opened: closing a descriptor of the database would drop the locks this process has on it.
    """
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        file = int(libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC))
        if file < 0:
            return None
        found = [int(libc.inotify_add_watch(file, os.fsencode(path), IN_MODIFY)) >= 0 for path in paths]
    except (AttributeError, OSError):  # a C library without it
        return None
    if not found[0] and not found[-1]:
        os.close(file)
        return None
    return file

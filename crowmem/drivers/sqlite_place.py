"""Whether the files of an open SQLite store still stand at their path.

A file that was removed, or that a backup took the place of, lives on for whoever has it open: SQLite goes on writing
into it, and what it acknowledges is gone when the last connection closes. SQLite looks for this only where it keeps a
rollback journal. So whoever writes one statement looks before it, and a transaction before it commits. A write-ahead
log that was removed is saved when the store is closed in peace, but not from a crash, and its index carries the locks
between processes: those two files are looked for every second.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from crowmem.errors import Unavailable

if TYPE_CHECKING:
    import apsw

LOG = ("-wal", "-shm")  # kept by SQLite as long as any connection has the file open
LOG_S = 1.0  # between two looks for them: three files at each turn are a twelfth of a short write, measured


class _File(NamedTuple):
    path: str
    device: int
    number: int


class Place:
    """Which files the connections of one process to one store have open."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._file: _File | None = None
        self._log: tuple[_File, ...] = ()
        self._look_at = 0.0

    def remember(self, connection: apsw.Connection) -> None:
        """Note what a new connection has opened, as far as it is not known yet."""
        if self._file is None:
            self._file = _find(self._database)
        if self._log:
            return
        connection.pragma("schema_version")  # reads the file, which opens the log
        if connection.pragma("journal_mode") == "wal":
            found = [_find(self._database + suffix) for suffix in LOG]
            self._log = tuple(file for file in found if file is not None)

    @property
    def has_log(self) -> bool:
        """Whether there is a write-ahead log; without, SQLite itself refuses to write into a lost file."""
        return bool(self._log)

    def forget_log(self) -> None:
        """No connection has the log open any more: SQLite removes it and makes another."""
        self._log = ()

    def check(self) -> None:
        """See that each file is the one that was opened; the log's are looked at once a second.

        Raises:
            Unavailable: one was removed or replaced.
        """
        if self._file is not None and (how := _lost(self._file)):
            raise Unavailable(
                f"{self._database}: the store was {how} while it was open; nothing was written: put it back, or close "
                f"it in every program, remove {self._database}-wal if that is left, and open the store again"
            )
        if self._log and (now := time.monotonic()) >= self._look_at:
            self.check_log()
            self._look_at = now + LOG_S

    def check_log(self) -> None:
        """See that the log is the one that was opened.

        Raises:
            Unavailable: it was removed or replaced.
        """
        for file in self._log:
            if how := _lost(file):
                raise Unavailable(
                    f"{self._database}: its log {file.path} was {how} while the store was open; nothing was written: "
                    "close the store in every program, which saves what the log held, and only then open it again"
                )


def _lost(file: _File) -> str:
    """What became of a file; "" when it is where it was."""
    try:
        found = os.stat(file.path)  # noqa: PTH116  # opens nothing: closing it would drop the locks of this process
    except (FileNotFoundError, NotADirectoryError):
        return "removed"
    except OSError:  # a process that gave up its rights cannot see it, which does not mean that it is gone
        return ""
    return "" if found.st_ino == file.number and found.st_dev == file.device else "replaced by another file"


def _find(path: str) -> _File | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # as above
    except OSError:  # not made yet
        return None
    return _File(path, found.st_dev, found.st_ino)

"""Waiting for changes of one SQLite file: at once for those this process makes, by looking for those of others."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from crowmem.drivers.sqlite_file import SqliteFile

LOOK_S = 0.02  # how often a waiter looks for other processes' work


class _Board:
    """Where the waiters of one file in this process listen."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.announced: Counter[str] = Counter()


_boards: WeakValueDictionary[str, _Board] = WeakValueDictionary()


class Changes:
    """The changes of one file, seen from this process."""

    def __init__(self, file: SqliteFile) -> None:
        key = os.path.realpath(file.name) if file.path else f":memory:{id(file)}"
        self._board = _boards.setdefault(key, _Board())

    def announce(self, topic: str) -> None:
        """Wake this process's waiters for a topic."""
        with self._board.condition:
            self._board.announced[topic] += 1
            self._board.condition.notify_all()

    def wait(self, topic: str, timeout_s: float) -> None:
        """Sleep until a topic is announced, at most until it is time to look."""
        with self._board.condition:
            self._board.condition.wait(min(timeout_s, LOOK_S))

    async def wait_async(self, topic: str, timeout_s: float) -> None:
        """As `wait`, without holding the event loop."""
        await asyncio.sleep(min(timeout_s, LOOK_S))

    def close(self) -> None:
        """Nothing is held."""

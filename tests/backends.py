"""The four backends a test body runs on, and how to open more stores on the same database."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

from driven import Driven

from crowmem import AsyncMemory, Memory

BACKENDS = ("sqlite-sync", "sqlite-async", "postgres-sync", "postgres-async")


@dataclass
class Backend:
    """One database under one colour."""

    dialect: str
    colour: str
    url: str
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def open(self, **arguments: Any) -> Any:
        """A store on this database, closed when the test ends."""
        if self.colour == "sync":
            memory = Memory.open(self.url, **arguments)
            self._open.callback(memory.close)
            return memory
        runner = self._open.enter_context(asyncio.Runner())

        async def opened() -> AsyncMemory:
            return await AsyncMemory.open(self.url, **arguments)

        driven = Driven(runner.run(opened()), runner)
        self._open.callback(driven.close)
        return driven

    def blocking(self, **arguments: Any) -> Memory:
        """A store for plain calls, whatever this backend's colour."""
        memory = Memory.open(self.url, **arguments)
        self._open.callback(memory.close)
        return memory

    def close(self) -> None:
        """Close every store that was opened."""
        self._open.close()

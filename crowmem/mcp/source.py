"""The store that the server reads: opened when the first call needs it, and again when another takes its place.

It is opened read-only, which the database itself enforces: SQLite by its open mode, PostgreSQL by what its sessions
begin with.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crowmem.config import load, resolve_url
from crowmem.errors import NotFound
from crowmem.memory import AsyncMemory
from crowmem.urls import normalize

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONNECTIONS = 4  # to PostgreSQL, of one server; an agent makes few calls at once


class Missing(Exception):
    """There is no store yet: an answer for the agent, no error. The text says where it was looked for."""


@dataclass(slots=True)
class _Opened:
    """An open store, the file it is, and how many calls are using it."""

    memory: AsyncMemory
    file: tuple[int, int] | None
    users: int = 0
    replaced: bool = False


class Source:
    """Where the server's store is, and the store while it is open. Belongs to one event loop.

    Args:
        url: as for `Memory.open`.
        config: as for `Memory.open`.
        schema: as for `Memory.open`.

    Raises:
        ConfigError: the address or the configuration is wrong.
    """

    def __init__(self, url: str | None = None, config: str | None = None, schema: str = "public") -> None:
        self._target = normalize(resolve_url(url, os.environ, load(config)))
        self._config = config
        self._schema = schema
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()

    @property
    def where(self) -> str:
        """The store's path, or its URL without the password."""
        return self._target.name

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncMemory]:
        """The store for one call; calls may overlap.

        Raises:
            Missing: there is none yet.
            SchemaMismatch: it is none of ours, or of another version.
            Unavailable: it cannot be reached.
        """
        async with self._opening:
            opened = await self._current()
            opened.users += 1
        try:
            yield opened.memory
        finally:
            opened.users -= 1
            if opened.replaced and not opened.users:
                await opened.memory.close()

    async def close(self) -> None:
        """Close the store."""
        if self._opened is not None:
            await self._opened.memory.close()

    async def _current(self) -> _Opened:
        file = self._file()
        if self._opened is not None and self._opened.file != file:
            old, self._opened = self._opened, None
            old.replaced = True
            if not old.users:
                await old.memory.close()
        if self._opened is None:
            try:
                memory = await AsyncMemory.open(
                    self._target.uri, config=self._config, schema=self._schema, read_only=True, pool_size=CONNECTIONS
                )
            except NotFound as error:
                raise Missing(str(error)) from error
            self._opened = _Opened(memory, file)
        return self._opened

    def _file(self) -> tuple[int, int] | None:
        """Which file is at the path now. It is not opened, since closing it would drop the locks of this process.

        Raises:
            Missing: none.
        """
        if self._target.path is None:
            return None
        try:
            found = self._target.path.stat()
        except FileNotFoundError:
            raise Missing(f"there is no store at {self.where}") from None
        except OSError:  # opening it tells what is wrong
            return None
        return found.st_dev, found.st_ino

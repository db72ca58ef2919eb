"""A connection to PostgreSQL outside the pool, for what lives and dies with one: a lock on a session.

A holder of a lock thereby takes nothing from the pool, however many there are. Each end notices in seconds that the
other is gone, the holder before the server: a client that was cut off must stop before its lock is somebody else's.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncRawCursor, RawCursor

from crowmem.drivers.postgres_errors import translated
from crowmem.drivers.postgres_settings import configure, records, values
from crowmem.errors import Closed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from crowmem.drivers.postgres_settings import Settings
    from crowmem.statement import Statement

HOLDER = {"keepalives_idle": 1, "keepalives_interval": 1, "keepalives_count": 3, "tcp_user_timeout": 4000}  # 4 s
SERVER = (  # 8 s; and no setting of the server's ends a session that is idle because it works
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3 -c tcp_user_timeout=8000"
    " -c idle_session_timeout=0"
)

_open: weakref.WeakSet[_Own] = weakref.WeakSet()
_left_behind: list[Any] = []  # connections of a parent process: never closed, never finalised in the child


class _Own:
    """What both colours share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] | None = None
        self._pid = os.getpid()
        self._mutex = threading.Lock()

    def arguments(self) -> dict[str, Any]:
        """How to connect. A pooler that shares sessions takes no options, and has a life of its own."""
        found = {**self.settings.arguments, **HOLDER}
        if self.settings.prepare:
            found["options"] = f"{found['options']} {SERVER}"
        return found

    def begun(self, connection: Any) -> None:
        """A connection was made."""
        configure(connection)
        self._connection = connection
        _open.add(self)

    @property
    def alive(self) -> bool:
        """Whether the connection stands, as far as this machine's kernel knows; asks nobody."""
        connection = self._connection
        if connection is None or self._pid != os.getpid() or connection.closed:
            return False
        with self._mutex:
            try:
                while _readable(connection.fileno()):  # the server says something, or has gone
                    connection.pgconn.consume_input()
            except psycopg.Error:
                return False
        return not connection.broken

    def taken(self) -> Any:
        """The connection, to be closed; None when it is another process's or there is none."""
        connection, self._connection = self._connection, None
        _open.discard(self)
        if connection is not None and self._pid != os.getpid():
            _left_behind.append(connection)
            return None
        return connection

    def let_go(self) -> None:
        """In a forked child: give up our hold on the socket, so that the server notices when the parent dies."""
        connection = self._connection
        if connection is not None and not connection.closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, connection.fileno())
            os.close(nowhere)


class OwnConnection(_Own):
    """For plain calls."""

    async def connect(self) -> None:
        """Make the connection."""
        with translated(None, self.settings.name):
            self.begun(psycopg.connect(**self.arguments(), cursor_factory=RawCursor))

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement."""
        if not isinstance(self._connection, psycopg.Connection):
            raise Closed
        with translated(statement, self.settings.name, alone=False):
            cursor = self._connection.execute(self.settings.sql(statement), values(statement, params))
            return records(statement, cursor.fetchall())

    async def begin(self) -> None:
        """Begin a transaction that ends with the connection; a pooler keeps one server session for it."""
        if isinstance(self._connection, psycopg.Connection):
            with translated(None, self.settings.name):
                self._connection.autocommit = False

    async def close(self) -> None:
        """End the connection."""
        connection = self.taken()
        if connection is not None:
            connection.close()


class AsyncOwnConnection(_Own):
    """Under an event loop."""

    async def connect(self) -> None:
        """Make the connection."""
        with translated(None, self.settings.name):
            self.begun(await psycopg.AsyncConnection.connect(**self.arguments(), cursor_factory=AsyncRawCursor))

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement."""
        if not isinstance(self._connection, psycopg.AsyncConnection):
            raise Closed
        with translated(statement, self.settings.name, alone=False):
            cursor = await self._connection.execute(self.settings.sql(statement), values(statement, params))
            return records(statement, await cursor.fetchall())

    async def begin(self) -> None:
        """Begin a transaction that ends with the connection; a pooler keeps one server session for it."""
        if isinstance(self._connection, psycopg.AsyncConnection):
            with translated(None, self.settings.name):
                await self._connection.set_autocommit(False)

    async def close(self) -> None:
        """End the connection."""
        connection = self.taken()
        if connection is not None:
            await connection.close()


def own_connection(settings: Settings, *, blocking: bool) -> OwnConnection | AsyncOwnConnection:
    """A connection of the caller's own, not made yet."""
    return OwnConnection(settings) if blocking else AsyncOwnConnection(settings)


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _let_go_all() -> None:
    for own in list(_open):
        with contextlib.suppress(OSError):  # the child has its socket no longer, which is all we want
            own.let_go()


os.register_at_fork(after_in_child=_let_go_all)

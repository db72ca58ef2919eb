"""The narrow waist between repositories and databases.

A driver runs statements and knows no table. ``BlockingX`` never suspends, so its coroutines end in one step; the async
twin of each runs under an event loop. Only modules of this package import psycopg, apsw, threads or asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from crowmem.marks import Marks
    from crowmem.statement import Statement

T = TypeVar("T")


class Driver(Protocol):
    """What every driver, and every open transaction of one, can do."""

    dialect: str
    """"sqlite" or "postgres"."""

    schema: str
    """The PostgreSQL schema; "main" on SQLite."""

    read_only: bool

    in_transaction: bool
    """Whether this is an open transaction, whose waiting would hold others up."""

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement: records if it is bound to one, else tuples. Outside a transaction it commits alone."""

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters, in order, in one go; the rows of all of them together.

        The sets may come from a generator, which then works inside the transaction."""

    def transaction(self) -> AbstractAsyncContextManager[Driver]:
        """A block on one connection: commits at its end, rolls back on an exception. Inside another it is a
        savepoint."""

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Sleep until something was announced under a topic, or the time is up; may return early, never much late."""

    async def announce(self, topic: str) -> None:
        """Wake those who wait for a topic, here and in other processes, once the current work is committed."""

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Run blocking work that is not SQL (files, object stores) without holding up an event loop."""

    async def script(self, sql: str) -> None:
        """Run several statements without parameters, on the writing connection."""

    async def state(self) -> dict[str, Any]:
        """How the connections are doing, for `Status`; holds no secret."""

    async def close(self) -> None:
        """Give every connection back. Later use raises Closed."""


class RootDriver(Driver, Protocol):
    """What a driver can do that an open transaction cannot."""

    marks: Marks
    """Where claims begin to look; of one SQLite file there are the same for all stores of this process."""

    async def connect(self) -> None:
        """Reach the store once, so that what is wrong is said at once and exactly; a SQLite file is made if missing."""

    async def use_on_connect(self, sql: str) -> None:
        """Run a script on every connection from now on. SQLite only; PostgreSQL's connections keep nothing."""

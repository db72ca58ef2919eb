"""SQLite in the caller's thread; under an event loop it is `crowmem.drivers.sqlite_async`."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from crowmem.drivers.sqlite_errors import FAILURES, translate, translated
from crowmem.drivers.sqlite_file import SqliteFile, check_open, execute, execute_batch
from crowmem.drivers.sqlite_wait import Changes
from crowmem.errors import Closed, Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from typing import Self

    import apsw

    from crowmem.statement import Statement

T = TypeVar("T")


class BlockingSqlite:
    """SQLite in the caller's thread."""

    dialect = "sqlite"
    in_transaction = False
    schema = "main"

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.read_only = file.read_only
        self.marks = file.turn.marks
        self.changes = Changes(file)

    async def connect(self) -> None:
        """Make the file if it is missing and reach it."""
        self.file.connect()

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement; it commits alone."""
        return self.file.run(statement, params)

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters, in one transaction."""
        async with self.transaction() as inner:
            return await inner.run_batch(statement, rows)

    def transaction(self) -> BlockingTransaction:
        """An immediate transaction on the writing connection."""
        return BlockingTransaction(self)

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Sleep until a topic is announced in this process, or another process wrote."""
        self.file.check()
        self.changes.wait(topic, timeout_s, look)

    async def announce(self, topic: str) -> None:
        """Wake this process's waiters; those of other processes see the log change."""
        self.changes.announce(topic)

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it here."""
        return function(*args)

    async def script(self, sql: str) -> None:
        """Run several statements, each committing alone."""
        self.file.script(sql)

    async def use_on_connect(self, sql: str) -> None:
        """Run a script on every connection."""
        self.file.use_on_connect(sql)

    async def state(self) -> dict[str, Any]:
        """Journal, log size, durability."""
        return self.file.state()

    async def close(self) -> None:
        """Close the connections."""
        self.changes.close()
        self.file.close()


class BlockingTransaction:
    """An open transaction in the caller's thread."""

    dialect = "sqlite"
    in_transaction = True
    schema = "main"

    def __init__(self, driver: BlockingSqlite) -> None:
        self.driver = driver
        self.read_only = driver.read_only
        self.topics: list[str] = []
        self.open = False
        self.pid = os.getpid()
        self.connection: apsw.Connection

    async def __aenter__(self) -> Self:
        """Take the turn and begin."""
        self.connection = self.driver.file.begin()
        self.open = True
        self.driver.file.turn.block = self
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Commit, or roll back after an exception."""
        self.open = False
        self.driver.file.turn.block = None
        try:
            if self.pid != os.getpid():
                return  # a forked child leaves its parent's transaction alone
        except BaseException:  # Ctrl-C: others would wait until this thread writes again
            self.driver.file.abandon(self.connection)
            raise
        if kind is not None:
            self.driver.file.abandon(self.connection)
            return
        self.driver.file.commit(self.connection)
        for topic in self.topics:
            await self.driver.announce(topic)

    def _check(self) -> None:
        if not self.open or self.pid != os.getpid():
            raise Closed("this transaction has ended, or belongs to another process; use the Memory it came from")
        check_open(self.connection, self.driver.file.name)

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement in this transaction."""
        self._check()
        try:
            return execute(self.connection, statement, params)
        except FAILURES as error:
            raise translate(error, statement, self.driver.file.name) from error

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters."""
        self._check()
        try:
            return execute_batch(self.connection, statement, rows)
        except FAILURES as error:
            raise translate(error, statement, self.driver.file.name) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[BlockingTransaction]:
        """A savepoint."""
        self._check()
        with translated(None, self.driver.file.name):
            self.connection.execute("savepoint inner")
        marked = len(self.topics)
        try:
            yield self
        except BaseException:
            del self.topics[marked:]
            if self.connection.in_transaction:  # a full disk may have ended it
                self.connection.execute("rollback to inner; release inner")
            raise
        with translated(None, self.driver.file.name):
            self.connection.execute("release inner")

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Refused: it would hold every other writer up."""
        raise Unsupported(f"waiting for {topic!r} inside a transaction would block every other writer; wait outside it")

    async def announce(self, topic: str) -> None:
        """Remember to announce after the commit."""
        self._check()
        if topic not in self.topics:
            self.topics.append(topic)

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it here."""
        return function(*args)

    async def script(self, sql: str) -> None:
        """Run several statements in this transaction."""
        self._check()
        with translated(None, self.driver.file.name):
            self.connection.execute(sql).fetchall()

    async def state(self) -> dict[str, Any]:
        """The file's state."""
        return await self.driver.state()

    async def close(self) -> None:
        """A transaction ends with its block, not by closing."""

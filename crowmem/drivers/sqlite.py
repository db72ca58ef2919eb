"""SQLite in the caller's thread; under an event loop it is `crowmem.drivers.sqlite_async`."""

from __future__ import annotations

import os
import weakref
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from crowmem.drivers.sqlite_errors import FAILURES, translate, translated
from crowmem.drivers.sqlite_file import SqliteFile, check_open, execute, execute_batch
from crowmem.drivers.sqlite_wait import Changes
from crowmem.errors import Closed, Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

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

    def transaction(self) -> _Block:
        """An immediate transaction on the writing connection."""
        return _Block(self)

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


class _Block:
    """Begins a transaction and ends it.

    Where Ctrl-C comes before the first line of the end, the transaction goes with this object, which nobody but the
    block refers to.
    """

    def __init__(self, driver: BlockingSqlite) -> None:
        self._file = driver.file
        self._inner = BlockingTransaction(driver)

    async def __aenter__(self) -> BlockingTransaction:
        """Take the turn and begin."""
        inner = self._inner
        inner.watch = weakref.ref(self, partial(_drop, inner))  # a __del__ would swallow a Ctrl-C that came as it began
        inner.connection = self._file.begin()
        inner.open = True
        self._file.turn.block = inner
        return inner

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Commit, or roll back after an exception."""
        inner = self._inner
        inner.open = False
        inner.watch = self._file.turn.block = None
        try:
            if inner.pid != os.getpid():
                return  # a forked child leaves its parent's transaction alone
            if kind is not None:
                self._file.abandon(inner.connection)
                return
            self._file.commit(inner.connection)
        except BaseException:
            if self._file.turn.held:  # Ctrl-C as one of them was called, or others would wait
                self._file.abandon(inner.connection)
            raise
        for topic in inner.topics:
            await inner.driver.announce(topic)


def _drop(inner: BlockingTransaction, _: object) -> None:
    """Roll back what nobody is left to end."""
    if inner.open and inner.pid == os.getpid():
        inner.open = False
        if inner.driver.file.turn.held:
            with suppress(apsw.ConnectionClosedError):
                inner.driver.file.abandon(inner.connection)


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
        self.watch: object = None  # what is called when the block has gone

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

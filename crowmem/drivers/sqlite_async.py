"""SQLite under an event loop: one thread writes, a few read; the loop itself never blocks."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from crowmem.drivers.sqlite_errors import translated
from crowmem.drivers.sqlite_file import SqliteFile, check_open, execute, execute_batch
from crowmem.drivers.sqlite_wait import Changes
from crowmem.errors import Closed, Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    import apsw

    from crowmem.statement import Statement

T = TypeVar("T")
INTERRUPT_S = 0.05  # between interrupts: a statement may begin just after one
READERS = 4  # threads that read at once under an event loop


class AsyncSqlite:
    """SQLite under an event loop: one thread writes, a few read; the loop itself never blocks."""

    dialect = "sqlite"
    in_transaction = False
    schema = "main"

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.read_only = file.read_only
        self.marks = file.turn.marks
        self.changes = Changes(file)
        self._pid = -1
        self._start()

    def _start(self) -> None:
        """Make what belongs to one process: threads do not survive a fork."""
        if self._pid != self.file.pid:
            self._pid = self.file.pid
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="crowmem-write")
            self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="crowmem-read")
            self._lock = asyncio.Lock()  # whoever has waited for it looks again whether the store was closed

    def _check(self) -> None:
        self.file.check()
        self._start()

    async def connect(self) -> None:
        """Make the file if it is missing and reach it."""
        await self._call(self._writer, lambda _: self.file.connect())

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement; it commits alone."""
        self._check()
        if statement.writes or self.file.path is None:
            async with self._lock:
                self.file.check()
                return await self._call(self._writer, self._run_writing, statement, params)
        return await self._call(self._readers, self._run_reading, statement, params)

    def _run_writing(self, running: _Running, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        running.connection = self.file.take()
        try:
            return self.file.run_writing(running.connection, statement, params)
        finally:
            self.file.turn.release()

    def _run_reading(self, running: _Running, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        running.connection = self.file.borrow()
        return self.file.run_reading(running.connection, statement, params)

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters, in one transaction."""
        async with self.transaction() as inner:
            return await inner.run_batch(statement, rows)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """An immediate transaction on the writing thread."""
        self._check()
        async with self._lock:
            self.file.check()
            begun: list[apsw.Connection] = []
            try:
                await self._call(self._writer, lambda _running: begun.append(self.file.begin()))
                inner = AsyncTransaction(self, begun[0])
                try:
                    yield inner
                finally:
                    inner.open = False
            except BaseException:
                if begun:  # a task may be cancelled while its transaction begins
                    await self._finish(partial(self.file.abandon, begun[0]))
                raise
            await self._finish(partial(self.file.commit, begun[0]))
        for topic in inner.topics:
            await self.announce(topic)

    async def _finish(self, end: Callable[[], object]) -> None:
        """End a transaction even when the task is being cancelled: a half-ended one would block every writer."""
        future = asyncio.get_running_loop().run_in_executor(self._writer, end)
        cancelled = False
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                cancelled = True
            except BaseException:  # raised again below, from the future itself
                break
        future.result()
        if cancelled:
            raise asyncio.CancelledError

    async def _call(self, executor: ThreadPoolExecutor, function: Callable[..., T], *args: Any) -> T:
        """Run on a worker thread; a cancelled task interrupts the statement and waits until it has stopped."""
        running = _Running()
        job = executor.submit(function, running, *args)
        future = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not job.cancel() and not job.done():  # it has begun
                self.file.interrupt(running.connection)
                with suppress(asyncio.CancelledError):  # some frameworks cancel again until the task has ended
                    await asyncio.wait({future}, timeout=INTERRUPT_S)
            future.add_done_callback(_see)
            raise

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Sleep until a topic is announced in this process, or another process wrote."""
        self._check()
        await self.changes.wait_async(topic, timeout_s, look)

    async def announce(self, topic: str) -> None:
        """Wake this process's waiters."""
        self.changes.announce(topic)

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it on a reading thread."""
        self._check()
        return await asyncio.get_running_loop().run_in_executor(self._readers, function, *args)

    async def script(self, sql: str) -> None:
        """Run several statements, each committing alone."""
        self._check()
        async with self._lock:
            self.file.check()
            await self._call(self._writer, lambda _: self.file.script(sql))

    async def use_on_connect(self, sql: str) -> None:
        """Run a script on every connection."""
        self._check()
        async with self._lock:
            self.file.check()
            await self._call(self._writer, lambda _: self.file.use_on_connect(sql))

    async def state(self) -> dict[str, Any]:
        """Journal, log size, durability."""
        self._check()
        return await self._call(self._readers, lambda _: self.file.state())

    async def close(self) -> None:
        """Close the connections and end the threads."""
        if self.file.closed:
            return
        self._check()
        self.changes.close()
        async with self._lock:
            if not self.file.closed:
                await self._call(self._writer, lambda _: self.file.close())
        self._writer.shutdown(wait=False)
        self._readers.shutdown(wait=False)


def _see(future: asyncio.Future[Any]) -> None:
    """Take note of how a call ended that nobody waits for any more: the cancellation is what its caller got."""
    if not future.cancelled():
        future.exception()


class _Running:
    """The connection that a worker thread is using right now, so that a cancelled task can interrupt it."""

    connection: apsw.Connection | None = None


class AsyncTransaction:
    """An open transaction under an event loop: each statement hops to the writing thread."""

    dialect = "sqlite"
    in_transaction = True
    schema = "main"

    def __init__(self, driver: AsyncSqlite, connection: apsw.Connection) -> None:
        self.driver = driver
        self.read_only = driver.read_only
        self.connection = connection
        self.topics: list[str] = []
        self.open = True
        self.pid = os.getpid()

    async def _call(self, function: Callable[[], T]) -> T:
        if not self.open or self.pid != os.getpid():
            raise Closed("this transaction has ended, or belongs to another process; use the Memory it came from")

        def work(running: _Running) -> T:
            running.connection = self.connection
            check_open(self.connection, self.driver.file.name)
            return function()

        return await self.driver._call(self.driver._writer, work)

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement in this transaction."""

        def work() -> list[Any]:
            with translated(statement, self.driver.file.name):
                return execute(self.connection, statement, params)

        return await self._call(work)

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters."""

        def work() -> list[Any]:
            with translated(statement, self.driver.file.name):
                return execute_batch(self.connection, statement, rows)

        return await self._call(work)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """A savepoint."""
        await self.script("savepoint inner")
        marked = len(self.topics)
        try:
            yield self
        except BaseException:
            del self.topics[marked:]
            await self.driver._finish(self._roll_back_to_savepoint)
            raise
        await self.script("release inner")

    def _roll_back_to_savepoint(self) -> None:
        if self.connection.in_transaction:  # a full disk may have ended it
            self.connection.execute("rollback to inner; release inner")

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Refused: it would hold every other writer up."""
        raise Unsupported(f"waiting for {topic!r} inside a transaction would block every other writer; wait outside it")

    async def announce(self, topic: str) -> None:
        """Remember to announce after the commit."""
        if topic not in self.topics:
            self.topics.append(topic)

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it on a reading thread."""
        return await self.driver.offload(function, *args)

    async def script(self, sql: str) -> None:
        """Run several statements in this transaction."""

        def work() -> None:
            with translated(None, self.driver.file.name):
                self.connection.execute(sql).fetchall()

        await self._call(work)

    async def state(self) -> dict[str, Any]:
        """The file's state."""
        return await self.driver.state()

    async def close(self) -> None:
        """A transaction ends with its block, not by closing."""

"""PostgreSQL under both colours, over psycopg's pools.

Single statements run in autocommit: one round trip, one commit. No session state outlives a checkout, and nothing is
ever rolled back on the good path, since a rollback empties psycopg's prepared statements.
"""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import AsyncRawCursor, RawCursor, pq
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from crowmem.drivers.postgres_batch import execute_batch, execute_batch_async
from crowmem.drivers.postgres_errors import FAILURES, translate, translated
from crowmem.drivers.postgres_run import run_prepared
from crowmem.drivers.postgres_settings import POOL, Settings, configure, records, seems_alive, values
from crowmem.drivers.postgres_wait import Listener
from crowmem.errors import Closed, CrowmemError, OutcomeUnknown, PoolExhausted, Unavailable, Unsupported
from crowmem.marks import Marks
from crowmem.statement import in_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from crowmem.statement import Statement

T = TypeVar("T")
_left_behind: list[Any] = []  # pools of a parent process: never closed, never finalised in the child


class BlockingPostgres:
    """PostgreSQL in the caller's thread."""

    dialect = "postgres"
    in_transaction = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.schema = settings.schema
        self.read_only = settings.read_only
        self.marks = Marks()
        self.closed = False
        self._pid = os.getpid()
        self._pool: ConnectionPool[Any] | None = None
        self.listener = Listener(settings)

    def _open_pool(self) -> ConnectionPool[Any]:
        """The pool of this process; a forked child gets its own."""
        if self.closed:
            raise Closed(f"the store {self.settings.name} was closed; open it again")
        if self._pid != os.getpid():
            _left_behind.append((self._pool, self.listener))
            self._pid, self._pool, self.listener = os.getpid(), None, Listener(self.settings)
        if self._pool is None:
            self._pool = ConnectionPool(
                self.settings.pool_conninfo,
                kwargs={**self.settings.pool_arguments, "cursor_factory": RawCursor},
                min_size=0,  # with one, the first caller would find it on its way and have a second one made
                max_size=self.settings.pool_size,
                open=True,
                configure=self._configure,
                check=self._check,
                reconnect_failed=_try_on,
                **POOL,
            )
        return self._pool

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        pool, connection = self._borrow()
        try:
            yield connection
        finally:
            _give_back(pool, connection)

    def _borrow(self) -> tuple[ConnectionPool[Any], psycopg.Connection[Any]]:
        """A connection, and the pool it goes back to."""
        pool = self._open_pool()
        try:
            return pool, pool.getconn()
        except FAILURES as error:
            raise unavailable(error, pool, self.settings.name) from error

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        """Refuse a connection that ended. Those beside it mostly ended with it, when the server restarted: all are
        looked at here, since the pool pauses 1, 2, 4, 8 seconds between one that it finds and the next."""
        try:
            _check(connection)
        except FAILURES:
            if self._pool is not None:
                self._pool.check()
            raise

    def _configure(self, connection: psycopg.Connection[Any]) -> None:
        configure(connection)
        if self.settings.wraps_reads:
            connection.read_only = True

    async def connect(self) -> None:
        """Reach the server once, outside the pool, so that what is wrong is said at once and exactly."""
        with translated(None, self.settings.name):
            psycopg.connect(**self.settings.arguments).close()

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement; it commits alone."""
        pool, connection = self._borrow()
        try:
            if self.settings.wraps_reads:
                with connection.transaction():
                    return _execute(connection, self.settings, statement, params)
            if not self.settings.prepare:
                return _execute(connection, self.settings, statement, params)
            running = run_prepared(connection, self.settings, statement, values(statement, params))
            return records(statement, connection.wait(running))
        except FAILURES as error:
            raise translate(error, statement, self.settings.name) from error
        finally:
            _give_back(pool, connection)

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters, in one transaction."""
        async with self.transaction() as inner:
            return await inner.run_batch(statement, rows)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[BlockingTransaction]:
        """A transaction on one connection."""
        with self._connection() as connection:
            inner = BlockingTransaction(self, connection)
            block = connection.transaction()
            with translated(None, self.settings.name):
                block.__enter__()
            try:
                yield inner
                check_whole(connection, self.settings.name)
            except BaseException as error:
                inner.open = False
                with lost_rollback():
                    block.__exit__(type(error), error, error.__traceback__)
                raise
            inner.open = False
            with committed(self.settings.name):
                block.__exit__(None, None, None)
        for topic in inner.topics:
            await self.announce(topic)

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Sleep until a topic is announced by any process."""
        self._open_pool()
        self.listener.wait(topic, timeout_s, look)

    async def announce(self, topic: str) -> None:
        """Wake those who wait for a topic, in every process; costs the caller no round trip."""
        self._open_pool()
        self.listener.announce(topic)

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it here."""
        return function(*args)

    async def script(self, sql: str) -> None:
        """Run several statements in one implicit transaction."""
        with self._connection() as connection, translated(None, self.settings.name):
            psycopg.Cursor(connection).execute(in_schema(sql, self.schema).encode(), prepare=False)

    async def use_on_connect(self, sql: str) -> None:
        """Nothing is kept on a connection here."""

    async def state(self) -> dict[str, Any]:
        """Pool sizes, durability."""
        return pool_state(self._open_pool(), self.settings)

    async def close(self) -> None:
        """Close the pool and the listener."""
        if not self.closed:
            self.closed = True
            if self._pid == os.getpid():
                self.listener.close()
                if self._pool is not None:
                    self._pool.close()


class BlockingTransaction:
    """An open transaction in the caller's thread."""

    dialect = "postgres"
    in_transaction = True

    def __init__(self, driver: BlockingPostgres, connection: psycopg.Connection[Any]) -> None:
        self.driver = driver
        self.schema = driver.schema
        self.read_only = driver.read_only
        self.connection = connection
        self.topics: list[str] = []
        self.open = True
        self.pid = os.getpid()

    def _check(self) -> None:
        if not self.open or self.pid != os.getpid():
            raise Closed("this transaction has ended, or belongs to another process; use the Memory it came from")

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement in this transaction."""
        self._check()
        try:
            return _execute(self.connection, self.driver.settings, statement, params)
        except FAILURES as error:
            raise translate(error, statement, self.driver.settings.name, alone=False) from error

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters, pipelined."""
        self._check()
        parameters = [values(statement, row) for row in rows]
        if not parameters:
            return []
        settings = self.driver.settings
        with translated(statement, settings.name, alone=False):
            sql, returning = settings.sql(statement), statement.shape != "none"
            return records(statement, execute_batch(self.connection, sql, parameters, returning=returning))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[BlockingTransaction]:
        """A savepoint."""
        self._check()
        marked = len(self.topics)
        block = self.connection.transaction()
        with translated(None, self.driver.settings.name, alone=False):
            block.__enter__()
        try:
            yield self
        except BaseException as error:
            del self.topics[marked:]
            with lost_rollback():
                block.__exit__(type(error), error, error.__traceback__)
            raise
        with translated(None, self.driver.settings.name, alone=False):
            block.__exit__(None, None, None)

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Refused: it would hold a transaction open."""
        raise Unsupported(f"waiting for {topic!r} inside a transaction would hold its rows; wait outside it")

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
        with translated(None, self.driver.settings.name, alone=False):
            psycopg.Cursor(self.connection).execute(in_schema(sql, self.schema).encode(), prepare=False)

    async def state(self) -> dict[str, Any]:
        """The pool's state."""
        return await self.driver.state()

    async def close(self) -> None:
        """A transaction ends with its block, not by closing."""


class AsyncPostgres:
    """PostgreSQL under an event loop."""

    dialect = "postgres"
    in_transaction = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.schema = settings.schema
        self.read_only = settings.read_only
        self.marks = Marks()
        self.closed = False
        self._pid = os.getpid()
        self._pool: AsyncConnectionPool[Any] | None = None
        self.listener = Listener(settings)

    async def _open_pool(self) -> AsyncConnectionPool[Any]:
        """The pool of this process; a forked child gets its own."""
        if self.closed:
            raise Closed(f"the store {self.settings.name} was closed; open it again")
        if self._pid != os.getpid():
            _left_behind.append((self._pool, self.listener))
            self._pid, self._pool, self.listener = os.getpid(), None, Listener(self.settings)
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                self.settings.pool_conninfo,
                kwargs={**self.settings.pool_arguments, "cursor_factory": AsyncRawCursor},
                min_size=0,  # with one, the first caller would find it on its way and have a second one made
                max_size=self.settings.pool_size,
                open=False,
                configure=self._configure,
                check=self._check,
                reconnect_failed=_try_on_async,
                **POOL,
            )
            await self._pool.open()
        return self._pool

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        pool, connection = await self._borrow()
        try:
            yield connection
        finally:
            await _give_back_async(pool, connection)

    async def _borrow(self) -> tuple[AsyncConnectionPool[Any], psycopg.AsyncConnection[Any]]:
        """A connection, and the pool it goes back to."""
        pool = await self._open_pool()
        try:
            return pool, await pool.getconn()
        except FAILURES as error:
            raise unavailable(error, pool, self.settings.name) from error

    async def _check(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """As that of `BlockingPostgres`."""
        try:
            await _check_async(connection)
        except FAILURES:
            if self._pool is not None:
                await self._pool.check()
            raise

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        configure(connection)
        if self.settings.wraps_reads:
            await connection.set_read_only(True)

    async def connect(self) -> None:
        """Reach the server once, outside the pool, so that what is wrong is said at once and exactly."""
        with translated(None, self.settings.name):
            connection = await psycopg.AsyncConnection.connect(**self.settings.arguments)
            await connection.close()

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement; it commits alone."""
        pool, connection = await self._borrow()
        try:
            if self.settings.wraps_reads:
                async with connection.transaction():
                    return await _execute_async(connection, self.settings, statement, params)
            if not self.settings.prepare:
                return await _execute_async(connection, self.settings, statement, params)
            running = run_prepared(connection, self.settings, statement, values(statement, params))
            return records(statement, await connection.wait(running))
        except FAILURES as error:
            raise translate(error, statement, self.settings.name) from error
        finally:
            await _give_back_async(pool, connection)

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters, in one transaction."""
        async with self.transaction() as inner:
            return await inner.run_batch(statement, rows)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """A transaction on one connection."""
        async with self._connection() as connection:
            inner = AsyncTransaction(self, connection)
            block = connection.transaction()
            with translated(None, self.settings.name):
                await block.__aenter__()
            try:
                yield inner
                check_whole(connection, self.settings.name)
            except BaseException as error:
                inner.open = False
                with lost_rollback():
                    await block.__aexit__(type(error), error, error.__traceback__)
                raise
            inner.open = False
            with committed(self.settings.name):
                await block.__aexit__(None, None, None)
        for topic in inner.topics:
            await self.announce(topic)

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Sleep until a topic is announced by any process."""
        await self._open_pool()
        await self.listener.wait_async(topic, timeout_s, look)

    async def announce(self, topic: str) -> None:
        """Wake those who wait for a topic, in every process; costs the caller no round trip."""
        self.listener.announce(topic)

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it on a thread."""
        import asyncio

        return await asyncio.to_thread(function, *args)

    async def script(self, sql: str) -> None:
        """Run several statements in one implicit transaction."""
        async with self._connection() as connection:
            with translated(None, self.settings.name):
                await psycopg.AsyncCursor(connection).execute(in_schema(sql, self.schema).encode(), prepare=False)

    async def use_on_connect(self, sql: str) -> None:
        """Nothing is kept on a connection here."""

    async def state(self) -> dict[str, Any]:
        """Pool sizes, durability."""
        return pool_state(await self._open_pool(), self.settings)

    async def close(self) -> None:
        """Close the pool and the listener."""
        if not self.closed:
            self.closed = True
            if self._pid == os.getpid():
                await self.offload(self.listener.close)
                if self._pool is not None:
                    await self._pool.close()


class AsyncTransaction:
    """An open transaction under an event loop."""

    dialect = "postgres"
    in_transaction = True

    def __init__(self, driver: AsyncPostgres, connection: psycopg.AsyncConnection[Any]) -> None:
        self.driver = driver
        self.schema = driver.schema
        self.read_only = driver.read_only
        self.connection = connection
        self.topics: list[str] = []
        self.open = True
        self.pid = os.getpid()

    def _check(self) -> None:
        if not self.open or self.pid != os.getpid():
            raise Closed("this transaction has ended, or belongs to another process; use the Memory it came from")

    async def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement in this transaction."""
        self._check()
        try:
            return await _execute_async(self.connection, self.driver.settings, statement, params)
        except FAILURES as error:
            raise translate(error, statement, self.driver.settings.name, alone=False) from error

    async def run_batch(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Run one statement for each set of parameters, pipelined."""
        self._check()
        parameters = [values(statement, row) for row in rows]
        if not parameters:
            return []
        settings = self.driver.settings
        with translated(statement, settings.name, alone=False):
            sql, returning = settings.sql(statement), statement.shape != "none"
            found = await execute_batch_async(self.connection, sql, parameters, returning=returning)
            return records(statement, found)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """A savepoint."""
        self._check()
        marked = len(self.topics)
        block = self.connection.transaction()
        with translated(None, self.driver.settings.name, alone=False):
            await block.__aenter__()
        try:
            yield self
        except BaseException as error:
            del self.topics[marked:]
            with lost_rollback():
                await block.__aexit__(type(error), error, error.__traceback__)
            raise
        with translated(None, self.driver.settings.name, alone=False):
            await block.__aexit__(None, None, None)

    async def wait(self, topic: str, timeout_s: float, look: Statement | None = None) -> None:
        """Refused: it would hold a transaction open."""
        raise Unsupported(f"waiting for {topic!r} inside a transaction would hold its rows; wait outside it")

    async def announce(self, topic: str) -> None:
        """Remember to announce after the commit."""
        self._check()
        if topic not in self.topics:
            self.topics.append(topic)

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it on a thread."""
        return await self.driver.offload(function, *args)

    async def script(self, sql: str) -> None:
        """Run several statements in this transaction."""
        self._check()
        with translated(None, self.driver.settings.name, alone=False):
            await psycopg.AsyncCursor(self.connection).execute(in_schema(sql, self.schema).encode(), prepare=False)

    async def state(self) -> dict[str, Any]:
        """The pool's state."""
        return await self.driver.state()

    async def close(self) -> None:
        """A transaction ends with its block, not by closing."""


def _execute(
    connection: psycopg.Connection[Any], settings: Settings, statement: Statement, params: Mapping[str, Any]
) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(settings.sql(statement), values(statement, params))
        return records(statement, cursor.fetchall()) if statement.shape != "none" else []


async def _execute_async(
    connection: psycopg.AsyncConnection[Any], settings: Settings, statement: Statement, params: Mapping[str, Any]
) -> list[Any]:
    async with connection.cursor() as cursor:
        await cursor.execute(settings.sql(statement), values(statement, params))
        return records(statement, await cursor.fetchall()) if statement.shape != "none" else []


def _check(connection: psycopg.Connection[Any]) -> None:
    if not seems_alive(connection, getattr(connection, "idle_since", None)):
        ConnectionPool.check_connection(connection)


async def _check_async(connection: psycopg.AsyncConnection[Any]) -> None:
    if not seems_alive(connection, getattr(connection, "idle_since", None)):
        await AsyncConnectionPool.check_connection(connection)


def _try_on(pool: ConnectionPool[Any]) -> None:
    """Try again as long as somebody waits: the pool gives up after a few seconds and tries again for the next caller
    only, so those who were waiting failed though the server was back."""
    if pool.get_stats().get("requests_waiting"):
        pool.check()


async def _try_on_async(pool: AsyncConnectionPool[Any]) -> None:
    """As `_try_on`."""
    if pool.get_stats().get("requests_waiting"):
        await pool.check()


def _give_back(pool: ConnectionPool[Any], connection: Any) -> None:
    connection.idle_since = time.monotonic()  # read by _check
    pool.putconn(connection)


async def _give_back_async(pool: AsyncConnectionPool[Any], connection: Any) -> None:
    connection.idle_since = time.monotonic()  # read by _check_async
    await pool.putconn(connection)


def unavailable(error: Exception, pool: ConnectionPool[Any] | AsyncConnectionPool[Any], name: str) -> CrowmemError:
    """Why a pool gave no connection: all of them are in use, or the server cannot be reached."""
    if not isinstance(error, PoolTimeout):
        return translate(error, None, name)
    stats = pool.get_stats()
    if stats.get("pool_size", 0) >= pool.max_size and not stats.get("pool_available", 0):
        return PoolExhausted(
            f"{name}: all {pool.max_size} connections were in use for {pool.timeout:g} s; raise pool_size or "
            "shorten transactions"
        )
    return Unavailable(f"{name}: the server could not be reached for {pool.timeout:g} s; nothing happened")


@contextmanager
def committed(name: str) -> Iterator[None]:
    """A commit whose answer was lost may have been carried out."""
    try:
        with translated(None, name):
            yield
    except Unavailable as error:
        if isinstance(error.__cause__, psycopg.OperationalError) and error.__cause__.sqlstate is None:
            raise OutcomeUnknown(
                f"{name}: the connection broke during the commit; look before you repeat it"
            ) from error
        raise


def check_whole(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], store: str) -> None:
    """Refuse to commit after a failed statement: the server would roll back and call it a commit."""
    if connection.pgconn.transaction_status != pq.TransactionStatus.INTRANS:
        raise Unavailable(
            f"{store}: the transaction is rolled back as a whole, since one of its statements was stopped or failed; "
            "begin it again"
        )


@contextmanager
def lost_rollback() -> Iterator[None]:
    """A connection that is gone needs no rollback: the server does it. The caller raises what went wrong before."""
    try:
        yield
    except psycopg.Error:
        return


def pool_state(pool: ConnectionPool[Any] | AsyncConnectionPool[Any], settings: Settings) -> dict[str, Any]:
    """The part of `Status` that a pool knows."""
    stats = pool.get_stats()
    sizes = {
        "size": stats.get("pool_size", 0),
        "available": stats.get("pool_available", 0),
        "waiting": stats.get("requests_waiting", 0),
        "most": pool.max_size,
    }
    return {"journal": "", "log_bytes": 0, "durability": settings.durability, "pool": sizes}

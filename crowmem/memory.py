"""Memory and AsyncMemory: two doors on the same operations.

A door holds a driver and one repository for each group of operations. A transaction is a Memory on one connection;
nothing takes a ``connection=`` argument.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crowmem.errors import Closed
from crowmem.opening import Options, async_driver, blocking_driver, prepared
from crowmem.operation import drive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from crowmem.drivers import Driver
    from crowmem.operation import Async, Sync
    from crowmem.records import Status
    from crowmem.repositories.agents import Agents
    from crowmem.repositories.checkpoints import Checkpoints
    from crowmem.repositories.images import Images
    from crowmem.repositories.imports import Imports
    from crowmem.repositories.leases import Leases
    from crowmem.repositories.mailbox import Mailbox
    from crowmem.repositories.messages import Messages
    from crowmem.repositories.payloads import Payloads
    from crowmem.repositories.prompts import Prompts
    from crowmem.repositories.search import Search
    from crowmem.repositories.sessions import Sessions
    from crowmem.repositories.store import Stores
    from crowmem.repositories.tapes import Tapes
    from crowmem.repositories.tasks import Tasks
    from crowmem.store import Store


def _group(memory: Memory | AsyncMemory, name: str, *, blocking: bool) -> Any:
    """Make a repository and keep it with its door: importing all of them takes longer than opening a store."""
    kind = Memory.__annotations__.get(name, "").partition("[")[0]
    if not kind:
        raise AttributeError(f"{type(memory).__name__} has no attribute {name!r}")
    module = import_module(f"crowmem.repositories.{name}")
    made = getattr(module, kind)(memory._driver, memory._store, blocking=blocking)
    return memory.__dict__.setdefault(name, made)  # two threads may both have made one


class Memory:
    """A store, called with plain calls. Safe to share between threads."""

    agents: Agents[Sync]
    checkpoints: Checkpoints[Sync]
    images: Images[Sync]
    imports: Imports[Sync]
    leases: Leases[Sync]
    mailbox: Mailbox[Sync]
    messages: Messages[Sync]
    payloads: Payloads[Sync]
    prompts: Prompts[Sync]
    search: Search[Sync]
    sessions: Sessions[Sync]
    tapes: Tapes[Sync]
    tasks: Tasks[Sync]

    def __init__(self, driver: Driver, store: Store) -> None:
        """Use `Memory.open` instead."""
        self._driver = driver
        self._store = store

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A group of operations, loaded when it is first used."""
            return _group(self, name, blocking=True)

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        read_only: bool = False,
        config: str | Path | None = None,
        images: Any = None,
        durability: str | None = None,
        pool_size: int | None = None,
        busy_timeout_s: float = 5.0,
        schema: str = "public",
        stem: bool | None = None,
        max_attempts: int | None = None,
        prepare: bool = True,
    ) -> Self:
        """Open a store, making or upgrading it unless ``read_only``.

        Args:
            url: a path or sqlite URI, or a postgresql URI; None: CROW_DB_URI, then the configuration, then the
                default file.
            read_only: refuse every write; the database itself enforces it.
            config: path of a config.yaml, or a folder that holds one.
            images: a folder or an image store object.
            durability: "full" (an acknowledged write survives power loss) or "normal".
            pool_size: most connections to PostgreSQL, 1 to 1,000; 10 by default.
            busy_timeout_s: how long a SQLite writer waits for others, 0 to 86,400 seconds.
            schema: the PostgreSQL schema that holds the store.
            stem: index word stems; fixed when a store is made. None takes what the store has.
            max_attempts: leases of one delivery before it is dead, 1 to 1,000,000; 5 by default.
            prepare: prepare statements; off behind a transaction-pooling PgBouncer. PostgreSQL only.

        Raises:
            ConfigError: a setting is wrong.
            SchemaMismatch: the database is not a store of ours (SchemaTooOld, SchemaTooNew: of another version).
            Unavailable: it cannot be reached.
        """
        options = Options.of(
            url,
            read_only=read_only,
            config=config,
            images=images,
            durability=durability,
            pool_size=pool_size,
            busy_timeout_s=busy_timeout_s,
            schema=schema,
            stem=stem,
            max_attempts=max_attempts,
            prepare=prepare,
        )
        driver = blocking_driver(options)
        try:
            return cls(driver, drive(prepared(driver, options)))
        except BaseException:
            drive(driver.close())
            raise

    def __enter__(self) -> Self:
        """Use the store in a block that closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def transaction(self) -> AbstractContextManager[Memory]:
        """A Memory on one connection: it commits at the end of the block and rolls back on an exception.

        Inside the block use what it yields, not the outer object. A transaction inside one is a savepoint.
        """
        return _Transaction(self._driver, self._store)

    def _about(self) -> Stores[Sync]:
        from crowmem.repositories.store import Stores

        return Stores(self._driver, self._store, blocking=True)

    def status(self) -> Status:
        """How the store is doing; holds no secret."""
        return self._about().status()

    def check(self, deep: bool = False) -> list[str]:
        """A list of problems, empty when all is well.

        Args:
            deep: read everything, which takes as long as that takes.
        """
        return self._about().check(deep)

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of a SQLite store to a new file, mode 0600, while others go on writing.

        Args:
            path: the file, in a folder that is there. A leading ``~`` is the home folder.

        Raises:
            Unsupported: on PostgreSQL; use pg_dump.
            Conflict: the target exists.
            NotFound: its folder does not.
        """
        self._about().backup(path)

    def close(self) -> None:
        """Close the store; a second close does nothing. Later use raises Closed."""
        self._store.closed |= not self._driver.in_transaction  # a transaction ends with its block
        drive(self._driver.close())

    def __repr__(self) -> str:
        """Where it is, without secrets."""
        return f"<{type(self).__name__} {self._store.where}>"


class _Transaction:
    """A block of `Memory.transaction`. No generator: Ctrl-C between its `yield` and the block would leave it open."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self._context = driver.transaction()
        self._store = store

    def __enter__(self) -> Memory:
        inner = drive(self._context.__aenter__())
        try:
            return Memory(inner, self._store)
        except BaseException as error:
            drive(self._context.__aexit__(type(error), error, error.__traceback__))
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(drive(self._context.__aexit__(kind, error, trace)))


class AsyncMemory:
    """A store, awaited. Belongs to the event loop it was opened in."""

    agents: Agents[Async]
    checkpoints: Checkpoints[Async]
    images: Images[Async]
    imports: Imports[Async]
    leases: Leases[Async]
    mailbox: Mailbox[Async]
    messages: Messages[Async]
    payloads: Payloads[Async]
    prompts: Prompts[Async]
    search: Search[Async]
    sessions: Sessions[Async]
    tapes: Tapes[Async]
    tasks: Tasks[Async]

    def __init__(self, driver: Driver, store: Store) -> None:
        """Use `AsyncMemory.open` instead."""
        self._driver = driver
        self._store = store

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A group of operations, loaded when it is first used."""
            return _group(self, name, blocking=False)

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        read_only: bool = False,
        config: str | Path | None = None,
        images: Any = None,
        durability: str | None = None,
        pool_size: int | None = None,
        busy_timeout_s: float = 5.0,
        schema: str = "public",
        stem: bool | None = None,
        max_attempts: int | None = None,
        prepare: bool = True,
    ) -> Opening:
        """Open a store: ``async with AsyncMemory.open(...) as memory`` or ``memory = await AsyncMemory.open(...)``.

        Arguments and errors are those of `Memory.open`; errors are raised when it is awaited.
        """
        arguments: dict[str, Any] = {
            "read_only": read_only,
            "config": config,
            "images": images,
            "durability": durability,
            "pool_size": pool_size,
            "busy_timeout_s": busy_timeout_s,
            "schema": schema,
            "stem": stem,
            "max_attempts": max_attempts,
            "prepare": prepare,
        }
        return Opening(url, arguments)

    async def __aenter__(self) -> Self:
        """Use the store in a block that closes it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        await self.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncMemory]:
        """An AsyncMemory on one connection; as `Memory.transaction`."""
        async with self._driver.transaction() as inner:
            yield AsyncMemory(inner, self._store)

    def _about(self) -> Stores[Async]:
        from crowmem.repositories.store import Stores

        return Stores(self._driver, self._store, blocking=False)

    async def status(self) -> Status:
        """As `Memory.status`."""
        return await self._about().status()

    async def check(self, deep: bool = False) -> list[str]:
        """As `Memory.check`."""
        return await self._about().check(deep)

    async def backup(self, path: str | Path) -> None:
        """As `Memory.backup`."""
        await self._about().backup(path)

    async def close(self) -> None:
        """As `Memory.close`."""
        self._store.closed |= not self._driver.in_transaction
        await self._driver.close()

    def __repr__(self) -> str:
        """Where it is, without secrets."""
        return f"<{type(self).__name__} {self._store.where}>"


class Opening:
    """A store about to be opened: await it, or use it in an ``async with`` block."""

    def __init__(self, url: str | Path | None, arguments: dict[str, Any]) -> None:
        self._url = url
        self._arguments = arguments
        self._memory: AsyncMemory | None = None

    def __await__(self) -> Generator[Any, Any, AsyncMemory]:
        """Open the store."""
        return self._open().__await__()

    async def _open(self) -> AsyncMemory:
        options = Options.of(self._url, **self._arguments)
        driver = async_driver(options)
        try:
            return AsyncMemory(driver, await prepared(driver, options))
        except BaseException:
            await driver.close()
            raise

    async def __aenter__(self) -> AsyncMemory:
        """Open the store for a block."""
        self._memory = await self._open()
        return self._memory

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        if self._memory is None:
            raise Closed
        await self._memory.close()

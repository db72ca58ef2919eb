"""One holder at a time for a session, across processes and machines.

On PostgreSQL an advisory lock on a connection of its own: whoever comes first gets it first, and a holder that is
killed lets go at once. On SQLite a lease that is renewed: a holder that is killed lets go when it ends. Both are used
in the same way and fail with the same errors.
"""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
from typing import TYPE_CHECKING, Protocol

from crowmem.errors import Busy, Conflict, CrowmemError, LeaseLost, LockTimeout, ReadOnly, Unsupported
from crowmem.holding import WAIT_S, Hold, check_colour, patience
from crowmem.leasing import LOCK
from crowmem.operation import drive
from crowmem.statement import statement

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from crowmem.drivers import Driver
    from crowmem.drivers.postgres_own import AsyncOwnConnection, OwnConnection
    from crowmem.drivers.postgres_settings import Settings
    from crowmem.store import Store

TRY = statement("lock_try")
TRY_TRANSACTION = statement("lock_try_transaction")
PATIENCE = statement("lock_patience")
WAIT = statement("lock_wait")
WAIT_TRANSACTION = statement("lock_wait_transaction")
FREE = statement("lock_free")

LEASE_S = 10.0  # on SQLite a holder that was killed keeps the lock so long
_held: set[tuple[object, ...]] = set()  # by whom in this process: waiting for oneself for ever would never end


class _Way(Protocol):
    """How one database locks."""

    @property
    def must_stop(self) -> bool: ...
    async def take(self, timeout_s: float) -> None: ...
    async def give_back(self, failed: bool) -> None: ...


class SessionLock:
    """A session held in a block, by ``with`` or ``async with``; made by ``sessions.lock``.

    A holder that loses its connection or lease loses the lock. It learns so from ``must_stop`` and ``check()``, and at
    the latest at the end of the block, which then raises LeaseLost.
    """

    def __init__(
        self, database: Driver, store: Store, session_id: str, timeout_s: float | None, *, blocking: bool
    ) -> None:
        """Nothing is taken before the block begins."""
        self.session_id = session_id
        self._timeout_s = patience("timeout_s", timeout_s)
        self._blocking = blocking
        self._what = (store.where, database.schema, session_id)
        self._holder: tuple[object, ...] | None = None
        if database.in_transaction:
            raise Unsupported(f"locking {session_id!r} inside a transaction would hold its rows too; do it outside")
        if database.read_only:
            raise ReadOnly(f"locking {session_id!r} needs a store that may be written; open it without read_only")
        self._way: _Way = (
            _Advisory(database, session_id, blocking)
            if database.dialect == "postgres"
            else _Leased(database, store, session_id, blocking)
        )

    @property
    def must_stop(self) -> bool:
        """Whether the lock is lost, or may be before the next step is done."""
        return self._holder is None or self._holder[0] != os.getpid() or self._way.must_stop

    def check(self) -> None:
        """Raise LeaseLost when the lock is lost."""
        if self.must_stop:
            raise LeaseLost(f"the lock on session {self.session_id!r} is not held any more; stop working on it")

    async def _enter(self, *, blocking: bool) -> Self:
        check_colour(self._blocking, used_blocking=blocking)
        holder = (*_caller(blocking), *self._what)
        if self._holder is not None or (holder in _held and self._timeout_s >= WAIT_S):
            raise Conflict(f"session {self.session_id!r} is already held here; a second lock would wait for the first")
        await self._way.take(self._timeout_s)
        _held.add(holder)
        self._holder = holder
        return self

    async def _exit(self, failed: bool) -> None:
        holder, self._holder = self._holder, None
        _held.discard(holder or ())
        if holder is not None and holder[0] == os.getpid():  # a forked child leaves the block; the lock is its parent's
            await self._way.give_back(failed)

    def __enter__(self) -> Self:
        """Wait for the lock."""
        return drive(self._enter(blocking=True))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back."""
        drive(self._exit(kind is not None))

    async def __aenter__(self) -> Self:
        """Wait for the lock."""
        return await self._enter(blocking=False)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back."""
        await self._exit(kind is not None)

    def __repr__(self) -> str:
        """Its session, and whether it is held."""
        return f"<SessionLock on {self.session_id!r}{'' if self._holder else ', not held'}>"


class _Leased:
    """A lease under a reserved name."""

    def __init__(self, database: Driver, store: Store, session_id: str, blocking: bool) -> None:
        self._session_id = session_id
        self._make: Any = lambda timeout_s: Hold(
            database,
            store,
            LOCK + session_id,
            f"process {os.getpid()}, {uuid.uuid4().hex[:12]}",
            LEASE_S,
            timeout_s,
            blocking=blocking,
            keep=False,  # nobody sees this lease's token, and a session's name goes with the session
        )
        self._hold: Hold | None = None

    @property
    def must_stop(self) -> bool:
        return self._hold is None or self._hold.must_stop

    async def take(self, timeout_s: float) -> None:
        hold: Hold = self._make(timeout_s)
        try:
            await hold.begin()
        except LockTimeout:
            raise _late(self._session_id, timeout_s) from None
        self._hold = hold

    async def give_back(self, failed: bool) -> None:
        if self._hold is not None:
            await self._hold.end(failed)


class _Advisory:
    """A 64-bit advisory lock; behind a pooler that shares sessions one of a transaction, in the same lock space."""

    def __init__(self, database: Driver, session_id: str, blocking: bool) -> None:
        self._settings: Settings = database.settings  # type: ignore[attr-defined]  # both PostgreSQL drivers have them
        self._session_id = session_id
        self._blocking = blocking
        self._own: OwnConnection | AsyncOwnConnection | None = None
        name = f"crowmem session lock\0{database.schema}\0{session_id}"
        self._key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)

    @property
    def must_stop(self) -> bool:
        return self._own is None or not self._own.alive

    async def take(self, timeout_s: float) -> None:
        from crowmem.drivers.postgres_own import own_connection

        own = own_connection(self._settings, blocking=self._blocking)
        try:
            await own.connect()
            if not self._settings.prepare:
                await own.begin()
            await self._wait(own, timeout_s)
        except BaseException:
            await own.close()
            raise
        self._own = own

    async def _wait(self, own: OwnConnection | AsyncOwnConnection, timeout_s: float) -> None:
        lasting = self._settings.prepare
        milliseconds = 0 if timeout_s >= WAIT_S else min(round(timeout_s * 1000), 2**31 - 1)
        await own.run(PATIENCE, {"timeout_ms": str(milliseconds), "local": not lasting})
        [[free]] = await own.run(TRY if lasting else TRY_TRANSACTION, {"key": self._key})
        if free:
            return
        if timeout_s < 0.001:
            raise _late(self._session_id, timeout_s)
        try:
            await own.run(WAIT if lasting else WAIT_TRANSACTION, {"key": self._key})
        except Busy as error:
            raise _late(self._session_id, timeout_s) from error

    async def give_back(self, failed: bool) -> None:
        own, self._own = self._own, None
        if own is None:
            return
        held, cause = False, None
        try:
            # the lock of a transaction ends with its connection
            held = own.alive and (not self._settings.prepare or (await own.run(FREE, {"key": self._key}))[0][0])
        except CrowmemError as error:
            cause = error
        finally:
            await own.close()
        if not held and not failed:
            told = f"the lock on session {self._session_id!r} was lost on the way; look what others did"
            raise LeaseLost(told) from cause


def _late(session_id: str, timeout_s: float) -> LockTimeout:
    return LockTimeout(f"session {session_id!r} was not free within {timeout_s:g} s; nothing happened")


def _caller(blocking: bool) -> tuple[object, ...]:
    """Who would wait: this thread, or this task."""
    if blocking:
        return os.getpid(), threading.get_ident()
    import asyncio

    return os.getpid(), id(asyncio.current_task())

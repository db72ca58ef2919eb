"""A lease held for the length of a block: renewed in the background, and honest about when it may be lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from crowmem import leasing
from crowmem.errors import Conflict, CrowmemError, LeaseLost, LockTimeout, OutcomeUnknown, Unavailable, Unsupported
from crowmem.operation import drive
from crowmem.values import check_seconds

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from crowmem.drivers import Driver
    from crowmem.drivers.background import Background
    from crowmem.records import Lease
    from crowmem.store import Store

MARGIN = 0.1  # of a lease: so much before its end the holder must stop
RENEWALS = 3  # a lease
LONGEST_NAP_S = 0.25  # a waiter looks at least so often, whatever was announced
WAIT_S = 1e9


class Hold:
    """A lease in a block, by ``with`` or ``async with``.

    While the block runs the lease is renewed three times in its length. The end is reckoned on a clock of this machine
    that nobody sets, from before each request was sent: when the database is out of reach, ``must_stop`` turns True a
    tenth of the lease before the database can give it to somebody else. Look at it between steps that cannot be undone,
    and guard writes with ``tx.leases.check(held.lease)``.
    """

    def __init__(
        self,
        database: Driver,
        store: Store,
        name: str,
        owner: str,
        lease_s: float,
        timeout_s: float | None,
        *,
        blocking: bool,
        keep: bool = True,
    ) -> None:
        """Made by ``leases.hold``; nothing is taken before the block begins."""
        self._database = database
        self._settings = store
        self._name = name
        self._owner = owner
        self._lease_s = lease_s
        self._timeout_s = patience("timeout_s", timeout_s)
        self._blocking = blocking
        self._keep = keep
        self._lease: Lease | None = None
        self._ends_s = 0.0
        self._lost: CrowmemError | None = None
        self._pid = 0
        self._renewing: Background | None = None
        if database.in_transaction:
            raise Unsupported(f"holding {name!r} inside a transaction would hold its rows too; do it outside")

    @property
    def lease(self) -> Lease:
        """The lease as it was last renewed.

        Raises:
            LeaseLost: it is not held: the block has not begun or has ended.
        """
        if self._lease is None:
            raise LeaseLost(f"{self._name!r} is not held here")
        return self._lease

    @property
    def token(self) -> int:
        """The fencing token: send it with every write the lease guards."""
        return self.lease.token

    @property
    def remaining_s(self) -> float:
        """Seconds until work must stop, unless the lease is renewed before; 0 when it must stop now."""
        from crowmem.drivers.background import elapsed_s

        if self._lost is not None or self._lease is None or self._pid != os.getpid():
            return 0.0
        return max(self._ends_s - self._lease_s * MARGIN - elapsed_s(), 0.0)

    @property
    def must_stop(self) -> bool:
        """Whether to stop now: the lease is lost, or may be before the next step is done."""
        return self.remaining_s == 0.0

    def check(self) -> None:
        """Raise LeaseLost when work must stop."""
        if self.must_stop:
            raise LeaseLost(f"{self._name!r} is no longer held by {self._owner!r}; stop working on it") from self._lost

    async def begin(self) -> None:
        """Wait for the lease and begin to renew it; what the block does at its start."""
        from crowmem.drivers.background import elapsed_s, start

        if self._lease is not None:
            raise Conflict(f"{self._name!r} is held by this object already; make another")
        until_s = elapsed_s() + self._timeout_s
        while True:
            began_s = elapsed_s()
            taken = await leasing.acquire(self._database, self._settings, self._name, self._owner, self._lease_s)
            if taken is not None:
                break
            await self._wait_free(until_s)
        self._lease, self._lost, self._pid = taken, None, os.getpid()
        self._ends_s = began_s + self._lease_s
        self._renewing = await start(
            self._renew, self._lease_s / RENEWALS, blocking=self._blocking, name=f"crowmem renews {self._name[:40]}"
        )

    async def _wait_free(self, until_s: float) -> None:
        """Return when the lease looks free; looking is a read and hinders nobody."""
        from crowmem.drivers.background import elapsed_s

        nap_s = 0.01
        while True:
            left_s = until_s - elapsed_s()
            if left_s <= 0:
                raise LockTimeout(f"{self._name!r} was not free within {self._timeout_s:g} s; nothing happened")
            await self._database.wait(leasing.topic(self._name), min(nap_s, left_s))
            ends_s = await leasing.left_s(self._database, self._settings, self._name)
            if ends_s is None:
                return
            nap_s = min(nap_s * 2, LONGEST_NAP_S, ends_s + 0.001)

    async def _renew(self) -> float | None:
        """One renewal; seconds until the next, None when there is nothing left to renew."""
        from crowmem.drivers.background import elapsed_s

        began_s = elapsed_s()
        try:
            self._lease = await leasing.renew(self._database, self._settings, self.lease, self._lease_s)
        except (Unavailable, OutcomeUnknown) as error:
            if elapsed_s() < self._ends_s:
                return min(self._lease_s / RENEWALS / 10, 1.0)
            self._lost = error
            return None
        except CrowmemError as error:
            self._lost = error
            return None
        self._ends_s = began_s + self._lease_s
        return self._lease_s / RENEWALS

    async def end(self, failed: bool) -> None:
        """Give the lease back, what the block does at its end; LeaseLost if it was lost, unless something failed."""
        if self._pid != os.getpid():  # a forked child leaves the block; the lease is its parent's
            self._lease = None
            return
        if self._renewing is not None:
            await self._renewing.stop()
        lease, in_time, self._lease = self.lease, not self.must_stop, None
        try:  # a renewal still under way does no harm: it finds the lease released
            held = self._lost is None and await leasing.release(self._database, self._settings, lease, keep=self._keep)
        except (Unavailable, OutcomeUnknown) as error:  # out of reach: the lease ends by itself
            held, self._lost = in_time, error
        if not held and not failed:
            raise leasing.lost(lease) from self._lost

    def __enter__(self) -> Self:
        """Wait for the lease and begin to renew it."""
        check_colour(self._blocking, used_blocking=True)
        drive(self.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back."""
        drive(self.end(kind is not None))

    async def __aenter__(self) -> Self:
        """Wait for the lease and begin to renew it."""
        check_colour(self._blocking, used_blocking=False)
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back."""
        await self.end(kind is not None)

    def __repr__(self) -> str:
        """Its name, owner and whether it is held."""
        return f"<{type(self).__name__} {self._name!r} of {self._owner!r}{'' if self._lease else ', not held'}>"


def patience(name: str, timeout_s: float | None) -> float:
    """How long to wait; None is for ever."""
    return WAIT_S if timeout_s is None else check_seconds(name, timeout_s, 0, WAIT_S)


def check_colour(blocking: bool, *, used_blocking: bool) -> None:
    """Refuse ``with`` on an AsyncMemory's block and ``async with`` on a Memory's."""
    if blocking != used_blocking:
        raise TypeError(f"use {'`with`' if blocking else '`async with`'} here")

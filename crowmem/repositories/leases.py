"""Leases: names that one owner holds for a while, with fencing tokens that only ever grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem import leasing
from crowmem.holding import Hold
from crowmem.operation import M, Repository, operation
from crowmem.records import Lease
from crowmem.statement import statement
from crowmem.values import check_range, check_text

if TYPE_CHECKING:
    import builtins

LIST = statement("lease_list", Lease)
CHECK = statement("lease_check", Lease)

MOST = 100_000  # rows of one page


class Leases(Repository[M]):
    """Leases: acquire, renew, release, check, hold."""

    @operation
    async def acquire(self, name: str, owner: str, *, lease_s: float = 30.0) -> Lease | None:
        """Take a lease if nobody has it.

        Args:
            name: what is leased, 1 to 2,600 bytes; names that begin with ``crowmem:`` are kept.
            owner: who takes it.
            lease_s: seconds until it ends by itself, 0.01 to 2,592,000, by the database's clock.

        Returns:
            The lease, its token larger than any before; None while somebody has it, be it the same owner.

        Raises:
            OutcomeUnknown: the connection broke; what it may have taken ends after ``lease_s``.
        """
        who = check_text("owner", owner)
        return await leasing.acquire(
            self._driver, self._store, leasing.check_name(name), who, leasing.check_lease_s(lease_s)
        )

    @operation
    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> Lease:
        """Let a lease that is still held last for ``lease_s`` seconds from now; its token stays.

        Args:
            lease: as `acquire` or the last `renew` returned it.
            lease_s: as for `acquire`.

        Raises:
            LeaseLost: it has ended, or somebody else has it; nothing changed.
        """
        return await leasing.renew(self._driver, self._store, lease, leasing.check_lease_s(lease_s))

    @operation
    async def release(self, lease: Lease) -> bool:
        """End a lease, so that others can take it at once.

        Args:
            lease: as `acquire` or `renew` returned it.

        Returns:
            Whether it was still held; False when it was lost before, and then nothing changed.
        """
        return await leasing.release(self._driver, self._store, lease)

    @operation
    async def get(self, name: str) -> Lease | None:
        """Who has a lease now; None when nobody has.

        Args:
            name: the lease's name.
        """
        return await leasing.current(self._driver, self._store, check_text("name", name))

    @operation
    async def list(self, *, limit: int = 1000, offset: int = 0) -> builtins.list[Lease]:
        """One page of the leases that somebody has now, sorted by the UTF-8 bytes of their names.

        Args:
            limit: most leases to return, 1 to 100,000.
            offset: how many to pass over.
        """
        return await self._many(
            LIST,
            limit=check_range("limit", limit, 1, MOST),
            offset=check_range("offset", offset, 0, 2**62),
            now=self._store.now_us,
        )

    @operation
    async def check(self, lease: Lease) -> Lease:
        """Make sure that a lease is still held; in a transaction, that nobody else gets it before that ends.

        Call it in the transaction whose writes the lease guards, before or after them: ``tx.leases.check(lease)``. They
        are committed only if the lease was held, and no newer owner can have been let in meanwhile. Outside a
        transaction it tells how things stand at that moment, no more.

        Args:
            lease: as `acquire` or `renew` returned it.

        Returns:
            The lease as it stands, perhaps renewed.

        Raises:
            LeaseLost: it has ended, or somebody else has it.
        """
        rows = await self._many(CHECK, **leasing.held_by(lease), now=self._store.now_us)
        if not rows:
            raise leasing.lost(lease)
        return rows[0]  # type: ignore[no-any-return]

    def hold(self, name: str, owner: str, *, lease_s: float = 30.0, timeout_s: float | None = None) -> Hold:
        """A block during which a lease is held and renewed in the background.

        ``with memory.leases.hold(...) as held`` or ``async with memory.leases.hold(...) as held``; see `Hold`.

        Args:
            name: what is leased.
            owner: who holds it.
            lease_s: how long the lease outlives a holder that is killed; it is renewed every third of that.
            timeout_s: seconds to wait until it is free, 0 for no waiting; None waits for ever.

        Raises:
            LockTimeout: it was not free in time.
            LeaseLost: at the end of the block, when the lease was lost on the way and nothing else went wrong.
            Unsupported: in a transaction, which would hold its rows while waiting.
        """
        return Hold(
            self._driver,
            self._store,
            leasing.check_name(name),
            check_text("owner", owner),
            leasing.check_lease_s(lease_s),
            timeout_s,
            blocking=self._blocking,
        )

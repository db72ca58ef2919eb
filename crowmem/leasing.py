"""Leases as the database keeps them: what repositories, renewals and locks have in common.

The database's clock decides alone. A lease is named by its row's token: whoever comes with an older one has lost it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.errors import InvalidValue, LeaseLost
from crowmem.records import Lease
from crowmem.statement import statement
from crowmem.values import check_seconds, check_text, micros

if TYPE_CHECKING:
    from crowmem.drivers import Driver
    from crowmem.store import Store

ACQUIRE = statement("lease_acquire", Lease)
RENEW = statement("lease_renew", Lease)
RELEASE = statement("lease_release")
DROP = statement("lease_drop")
GET = statement("lease_get", Lease)
LEFT = statement("lease_left")

LOCK = "crowmem:lock:"  # stands before a session's name in the name of the lease that locks it
RESERVED = "crowmem:"
SHORTEST_S, LONGEST_S = 0.01, 30 * 86_400.0


def check_name(name: str) -> str:
    """The name of a lease, refused when it is kept for our own."""
    checked = check_text("name", name)
    if checked.startswith(RESERVED):
        raise InvalidValue(f"name {name!r} begins with {RESERVED!r}, which crowmem keeps for itself: choose another")
    return checked


def check_lease_s(lease_s: float) -> float:
    """How long a lease lasts."""
    return check_seconds("lease_s", lease_s, SHORTEST_S, LONGEST_S)


def topic(name: str) -> str:
    """What is announced when a lease is free again."""
    return f"lease {name}"


async def acquire(driver: Driver, store: Store, name: str, owner: str, lease_s: float) -> Lease | None:
    """Take a lease if nobody has it."""
    params = {"name": name, "owner": owner, "lease_us": micros(lease_s), "now": store.now_us}
    rows = await driver.run(ACQUIRE, params)
    return rows[0] if rows else None


async def renew(driver: Driver, store: Store, lease: Lease, lease_s: float) -> Lease:
    """Let a lease last for so long from now, or raise LeaseLost."""
    rows = await driver.run(RENEW, {**held_by(lease), "lease_us": micros(lease_s), "now": store.now_us})
    if not rows:
        raise lost(lease)
    return rows[0]  # type: ignore[no-any-return]


async def release(driver: Driver, store: Store, lease: Lease, *, keep: bool = True) -> bool:
    """End a lease, and its row with it unless that is to be kept; whether it was still held."""
    rows = await driver.run(RELEASE if keep else DROP, {**held_by(lease), "now": store.now_us})
    if rows:
        await driver.announce(topic(lease.name))
    return bool(rows)


async def current(driver: Driver, store: Store, name: str) -> Lease | None:
    """Who has a lease now."""
    rows = await driver.run(GET, {"name": name, "now": store.now_us})
    return rows[0] if rows else None


async def left_s(driver: Driver, store: Store, name: str) -> float | None:
    """In how many seconds a lease ends if it is not renewed; None when nobody has it."""
    rows = await driver.run(LEFT, {"name": name, "now": store.now_us})
    return rows[0][0] / 1_000_000 if rows else None


def held_by(lease: Lease) -> dict[str, object]:
    """What tells a lease from any other of its name."""
    if not isinstance(lease, Lease):
        raise InvalidValue(f"lease is of type {type(lease).__name__}, expected the Lease that acquire returned")
    return {"name": lease.name, "owner": lease.owner, "token": lease.token}


def lost(lease: Lease) -> LeaseLost:
    """The error for who comes too late."""
    return LeaseLost(
        f"the lease {lease.name!r} with token {lease.token} of {lease.owner!r} has ended or has a newer owner; "
        "stop working on what it guarded"
    )

"""Messages and their images together: blobs first, then the message, and no collector in between.

A collector removes what no message names. It could remove a blob that a writer has just found in the store, before the
writer's message names it. So it condemns images in the database first, in a transaction that no open transaction of a
writer of images overlaps, and only then removes them. A writer puts its blobs, begins its transaction, holds collectors
off, and looks whether one of them was condemned: then it puts them again before it goes on. Whichever comes first, a
message that is committed has its blobs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from crowmem.blobs.many import get_all, put_all
from crowmem.errors import Busy, CrowmemError, ReadOnly
from crowmem.images import hydrate, references
from crowmem.statement import statement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from crowmem.blobs import Store as Blobs
    from crowmem.drivers import Driver
    from crowmem.store import Store

HOLD = statement("image_hold")
CONDEMNED = statement("image_condemned")
SETTING_GET = statement("setting_get")

TOPIC = "images"
LOOK_S = 0.02
HOLD_S = 120.0  # how long images are condemned; writers that want one of them wait so long for a collector that died
AT_ONCE = 64  # blobs in memory beside the messages they go into

T = TypeVar("T")


async def keep(driver: Driver, store: Store, blobs: Mapping[str, bytes], write: Callable[[Driver], Awaitable[T]]) -> T:
    """Put blobs and then run a write that names them, in one transaction with the certainty that they are there.

    Args:
        driver: any driver; inside a transaction the write is part of that.
        store: has the image store.
        blobs: the images taken out of what is written.
        write: gets the transaction. Called once, or not at all when an error is raised.

    Raises:
        Busy: inside a transaction, when one of the images is being removed from a bucket at this very moment.
    """
    seen: set[Any] = set()
    since: dict[Any, float] = {}
    while True:
        await put(driver, store, blobs)
        async with driver.transaction() as tx:
            await tx.run(HOLD, {})
            condemned = await _condemned(tx, blobs, since) if blobs else set()
            if _is_settled(store, condemned, seen):
                return await write(tx)
        seen = condemned
        await _pause(driver, store, condemned)


async def keep_alone(driver: Driver, store: Store, blobs: Mapping[str, bytes]) -> None:
    """Put blobs that no message names yet. A store whose own removal is exact needs no word with collectors."""
    await put(driver, store, blobs)
    seen: set[Any] = set()
    since: dict[Any, float] = {}
    while not is_exact(store.images):
        condemned = await _condemned(driver, blobs, since)
        if _is_settled(store, condemned, seen):
            return
        seen = condemned
        await _pause(driver, store, condemned)
        await put(driver, store, blobs)


async def put(driver: Driver, store: Store, blobs: Mapping[str, bytes]) -> None:
    """Put blobs, after making this store known as a user of the image store.

    Raises:
        ReadOnly: the store is.
    """
    if not blobs:
        return
    check_writable(driver, store)
    await join(driver, store)
    await driver.offload(put_all, store.images, blobs)


async def join(driver: Driver, store: Store) -> None:
    """Make this store known as a user of the image store, so that no other store's collector removes what it names."""
    if store.images_joined:
        return
    note = getattr(store.images, "join", None)
    if note is not None:
        [[user]] = await driver.run(SETTING_GET, {"name": "store_id"})
        await driver.offload(note, user)
    store.images_joined = True


async def try_to_join(driver: Driver, store: Store) -> None:
    """As `join`, for a store that is being opened and names images; that it fails is no reason not to open."""
    try:
        await join(driver, store)
    except CrowmemError as error:
        import logging  # loaded by few: it takes as long as the rest of this module

        log = logging.getLogger("crowmem")
        log.warning("%s is not noted as a user of its images; others may collect them: %s", store.where, error)


def check_writable(driver: Driver, store: Store) -> None:
    """Raise ReadOnly for a store that is."""
    if driver.read_only:
        raise ReadOnly(f"{store.where} was opened read-only; open it without read_only")


async def put_back(driver: Driver, store: Store, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with their images back in place; a reference whose blob is missing stays.

    Raises:
        BlobDamaged: an image's bytes are damaged and there is no good copy.
        Unavailable: the image store cannot be asked.
    """
    if store.images is None:
        return messages
    whole: list[dict[str, Any]] = []
    for group, keys in _groups(messages):
        blobs = await driver.offload(get_all, store.images, keys) if keys else {}
        whole += [hydrate(message, blobs) for message in group] if keys else group
    return whole


def _groups(messages: list[dict[str, Any]]) -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """Messages in their order, in groups that name no more images than may be in memory beside them."""
    group: list[dict[str, Any]] = []
    keys: dict[str, None] = {}
    for message in messages:
        named = references(message)
        if keys and len(keys) + len(named) > AT_ONCE:
            yield group, list(keys)
            group, keys = [], {}
        group.append(message)
        keys.update(dict.fromkeys(named))
    yield group, list(keys)


def is_exact(images: Blobs | None) -> bool:
    """Whether a store never removes what was put meanwhile."""
    return bool(getattr(images, "exact", False))


async def _condemned(driver: Driver, blobs: Mapping[str, bytes], since: dict[Any, float]) -> set[Any]:
    """Those of the blobs that are condemned or were of late: key, how often, whether their removal may go on.

    By this process's own clock too, which begins when it first sees one: the other may have been set back.
    """
    now = time.monotonic()
    rows = await driver.run(CONDEMNED, {"keys": list(blobs)})
    return {
        (key, times, int(going_on and now - since.setdefault((key, times), now) <= HOLD_S))
        for key, times, going_on in rows
    }


def _is_settled(store: Store, condemned: set[Any], seen: set[Any]) -> bool:
    """Whether the blobs are there: none is condemned, or those that are were before they were put again."""
    if condemned != seen:
        return not condemned
    return is_exact(store.images) or not any(going_on for _key, _times, going_on in condemned)


async def _pause(driver: Driver, store: Store, condemned: set[Any]) -> None:
    """Wait for a collector that is removing; one that died has two minutes."""
    if is_exact(store.images) or not any(going_on for _key, _times, going_on in condemned):
        return
    if driver.in_transaction:
        raise Busy(f"{store.where}: an image of this message is being removed just now; try the transaction again")
    await driver.wait(TOPIC, LOOK_S)

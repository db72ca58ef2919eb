"""Removes images that no message names; see `crowmem.image_keeping` for why no writer loses one."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from crowmem.blobs import Collectable
from crowmem.errors import Conflict, Unsupported
from crowmem.image_keeping import HOLD_S, SETTING_GET, TOPIC, is_exact
from crowmem.statement import statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crowmem.blobs.files import Found
    from crowmem.drivers import Driver
    from crowmem.store import Store

HOLD_ALL = statement("image_hold_all")
CONDEMN = statement("image_condemn")
GONE = statement("image_gone")
DROP = statement("image_condemned_drop")

BATCH = 100  # images condemned at once
REMOVING_S = 20.0  # of HOLD_S, how long a living collector goes on: its last image's requests may take the rest
FORGET_S = 86_400.0
TRIES = 200
LOOK_S = 0.01


async def collect(driver: Driver, store: Store, grace_s: float) -> int:
    """Remove what no message names and was last put more than ``grace_s`` seconds ago. Returns how many images."""
    images = await _collectable(driver, store)
    await driver.offload(images.tidy)
    await driver.run(DROP, {"age_us": int(FORGET_S * 1e6)})
    before = time.time() - grace_s
    pages = images.survey()
    removed = 0
    while page := await driver.offload(next, pages, None):
        old = [found for found in page if found.written_at < before]
        for start in range(0, len(old), BATCH):
            removed += await _remove(driver, images, old[start : start + BATCH], before)
    return removed


async def _collectable(driver: Driver, store: Store) -> Collectable:
    images = store.images
    if not isinstance(images, Collectable):
        raise Unsupported(
            f"{store.where}: its image store {images!r} does not tell the age of images: nothing to collect"
        )
    [[own]] = await driver.run(SETTING_GET, {"name": "store_id"})
    others = [user for user in await driver.offload(images.users) if user != own]
    if others:
        raise Conflict(
            f"{images!r} is used by {len(others)} more store(s), the first is {others[0]}: what this one does not name "
            "they may; give each a place of its own, or remove the names of those that are gone from .stores there"
        )
    return images


async def _remove(driver: Driver, images: Collectable, old: Sequence[Found], before: float) -> int:
    """Condemn some images and remove them, as far as the time goes.

    All of them are then done with, also those that stayed: one that was missing has been removed by another collector,
    and a writer who put it before that must still be told. But after a failure only those that were looked at are: a
    server may still work off a request that nobody waits for any more, and so does a thread.
    """
    moments = {found.key: _moment(images, found, before) for found in old}
    condemned = await _condemn(driver, list(moments))
    done: dict[str, bool] = {}
    if condemned:
        try:
            await driver.offload(_discard, images, {key: moments[key] for key in condemned}, done)
        except BaseException:
            await _let_go(driver, list(done))
            raise
        await _let_go(driver, condemned)
    return sum(done.values())


def _moment(images: Collectable, found: Found, before: float) -> float:
    """An image that was put after this moment stays. An exact store's mark is that of its last put, whatever the clocks
    of those who put: any later mark is of a writer who may have been told that the image is condemned.
    """
    return min(before, math.nextafter(found.written_at, math.inf)) if is_exact(images) else before


async def _let_go(driver: Driver, keys: list[str]) -> None:
    await driver.run(GONE, {"keys": keys})
    await driver.announce(TOPIC)


async def _condemn(driver: Driver, keys: Sequence[str]) -> list[str]:
    """Condemn those that nothing names, in a moment when no writer of images is between its look and its commit."""
    for _ in range(TRIES):
        async with driver.transaction() as tx:
            [[alone]] = await tx.run(HOLD_ALL, {})
            if alone:
                found = await tx.run(CONDEMN, {"keys": list(keys), "hold_us": int(HOLD_S * 1e6)})
                return [key for (key,) in found]
        await driver.wait(TOPIC, LOOK_S)
    return []


def _discard(images: Collectable, moments: Mapping[str, float], done: dict[str, bool]) -> None:
    """Remove blobs one after another, and note of each whether it is gone; stops when the time is up."""
    limit = time.monotonic() + REMOVING_S
    wall_limit = time.time() + REMOVING_S  # the other clock stands while a computer sleeps
    for key, before in moments.items():
        if time.monotonic() > limit or time.time() > wall_limit:
            return
        done[key] = images.discard(key, before)

"""How the images of a store are doing: for `memory.status` and `memory.check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.blobs.many import status_of
from crowmem.errors import BlobDamaged, ReadOnly
from crowmem.statement import statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.blobs import Store as Blobs
    from crowmem.drivers import Driver
    from crowmem.store import Store

COUNT = statement("image_refs_count")
KEYS = statement("image_keys")
LACKING = statement("image_refs_lacking")
MESSAGES = statement("image_messages")

PAGE = 200


async def image_status(driver: Driver, store: Store) -> dict[str, Any]:
    """The image store in use, what waits in its spool, and how many images are named how often; no secret."""
    [[named, references]] = await driver.run(COUNT, {})
    return {**await driver.offload(status_of, store.images), "named": named, "references": references}


async def image_problems(driver: Driver, store: Store) -> list[str]:
    """Every image that a message names and that is missing, damaged or unreadable; each one is read.

    Raises:
        Unavailable: the image store cannot be asked.
    """
    found: list[str] = []
    [[lacking, first]] = await driver.run(LACKING, {})
    if lacking:
        found.append(
            f"images: {lacking:,} messages name one whose use is not noted, so that `crowmem gc` would remove it; the "
            f"first is {first}; run `crowmem reindex`"
        )
    after = ""
    while store.images is not None:
        keys = [key for (key,) in await driver.run(KEYS, {"after": after, "limit": PAGE})]
        if not keys:
            break
        for key, problem in await driver.offload(_look, store.images, keys):
            rows = await driver.run(MESSAGES, {"key": key, "after_id": 0, "limit": 1})
            if rows:  # the message may have been deleted meanwhile
                found.append(f"image {key}: {problem}; the first message that names it is {rows[0][0]}")
        after = keys[-1]
    return found


def _look(images: Blobs, keys: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for key in keys:
        try:
            if images.get(key) is None:
                found.append((key, "missing"))
        except BlobDamaged as error:
            found.append((key, f"damaged ({error})"))
        except ReadOnly as error:
            found.append((key, f"unreadable ({error})"))
    return found

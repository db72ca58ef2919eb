"""How the messages of a SQLite file are doing: each is read, for `memory.check`. PostgreSQL takes nothing but JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.errors import StoreCorrupt
from crowmem.indexing import BATCH
from crowmem.statement import statement
from crowmem.values import INTEGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.drivers import Driver

AFTER = statement("search_after")
IDS = statement("copy_message_ids")


async def message_problems(driver: Driver) -> list[str]:
    """Messages that cannot be read, in plain words."""
    if driver.dialect == "postgres":
        return []
    bad: list[int] = []
    after = 0
    while ids := [key for (key,) in await driver.run(IDS, {"after": after, "upto": INTEGER[1], "limit": BATCH})]:
        bad += await _bad(driver, ids)
        after = ids[-1]
    if not bad:
        return []
    return [
        f"messages: {len(bad):,} cannot be read, the first is {bad[0]}; put a backup in the store's place, or delete "
        "the session that has it"
    ]


async def _bad(driver: Driver, ids: Sequence[int]) -> list[int]:
    """Those of a run of messages that are damaged; where they cannot be read together, one half after the other."""
    try:
        rows = await driver.run(AFTER, {"after_id": ids[0] - 1, "most": len(ids)})
    except StoreCorrupt:
        if len(ids) == 1:
            return list(ids)
        half = len(ids) // 2
        return await _bad(driver, ids[:half]) + await _bad(driver, ids[half:])
    return [row[0] for row in rows if row[0] <= ids[-1] and not _is_json(row[4])]


def _is_json(text: Any) -> bool:
    try:
        json.loads(text)
    except (ValueError, TypeError):
        return False
    except RecursionError:  # nested deeper than Python reads, which is no damage
        return True
    return True

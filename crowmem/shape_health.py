"""Whether a store still has the indexes and triggers that its schema steps made, for `memory.check`."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from crowmem.resources import sql_root
from crowmem.statement import statement

if TYPE_CHECKING:
    from crowmem.drivers import Driver

OBJECTS = statement("store_objects")

_MADE = re.compile(r"^CREATE (?:UNIQUE )?(INDEX|TRIGGER) (\w+)", re.MULTILINE)


async def missing_objects(driver: Driver) -> list[str]:
    """Indexes and triggers that are not there, in plain words."""
    has = {name for (name,) in await driver.run(OBJECTS, {})}
    return [
        f"{kind} {name} is missing; `crowmem copy` into a new store makes one that has it"
        for kind, name in _made(driver.dialect)
        if name not in has
    ]


@functools.cache
def _made(dialect: str) -> list[tuple[str, str]]:
    text = (sql_root() / dialect / "schema.sql").read_text(encoding="utf-8")  # generated from the steps, and tested
    return [(kind.lower(), name) for kind, name in _MADE.findall(text)]

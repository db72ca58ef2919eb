"""Every statement that the package binds, wherever in it."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

import crowmem
from crowmem.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

APART = ("crowmem.mcp", "crowmem.commands", "crowmem.importers")  # bind none; an extra may be needed to import them


def bound_statements() -> dict[str, Statement]:
    """Statements by name, also from lists, dicts and records that stand at the top of a module."""
    found: dict[str, Statement] = {}
    for module in pkgutil.walk_packages(crowmem.__path__, "crowmem."):
        if not module.name.startswith(APART):
            for value in vars(importlib.import_module(module.name)).values():
                found |= {one.name: one for one in _statements(value)}
    return found


def _statements(value: Any) -> Iterator[Statement]:
    if isinstance(value, Statement):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _statements(inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _statements(getattr(value, field.name))

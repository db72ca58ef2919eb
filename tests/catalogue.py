"""Every statement that the package binds, wherever in it."""

from __future__ import annotations

import importlib
import pkgutil

import crowmem
from crowmem.statement import Statement

APART = ("crowmem.mcp", "crowmem.commands", "crowmem.importers")  # bind none; an extra may be needed to import them


def bound_statements() -> dict[str, Statement]:
    """Statements by name."""
    found: dict[str, Statement] = {}
    for module in pkgutil.walk_packages(crowmem.__path__, "crowmem."):
        if module.name.startswith(APART):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            several = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
            found |= {one.name: one for one in several if isinstance(one, Statement)}
    return found

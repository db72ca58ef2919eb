"""Every statement that the package binds; only repositories, the schema and the opening of a store may."""

from __future__ import annotations

import importlib
import pkgutil

from crowmem import repositories
from crowmem.statement import Statement


def bound_statements() -> dict[str, Statement]:
    """Statements by name."""
    names = [module.name for module in pkgutil.iter_modules(repositories.__path__, "crowmem.repositories.")]
    found: dict[str, Statement] = {}
    for name in (*names, "crowmem.schema", "crowmem.opening", "crowmem.branches", "crowmem.leasing", "crowmem.locks"):
        for value in vars(importlib.import_module(name)).values():
            for one in (
                value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
            ):
                if isinstance(one, Statement):
                    found[one.name] = one
    return found

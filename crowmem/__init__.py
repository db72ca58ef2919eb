"""crowmem: the memory of AI agents in plain SQL, on SQLite or PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crowmem import blobs, errors, ids
    from crowmem.memory import AsyncMemory, Memory

__version__ = "0.1.0"
__all__ = ["AsyncMemory", "Memory", "__version__", "blobs", "errors", "ids"]


def __getattr__(name: str) -> object:
    """Load a door when it is first asked for: the command line answers `--version` without it."""
    from importlib import import_module

    if name in ("AsyncMemory", "Memory"):
        return getattr(import_module("crowmem.memory"), name)
    if name in ("blobs", "errors", "ids"):
        return import_module(f"crowmem.{name}")
    raise AttributeError(f"module 'crowmem' has no attribute {name!r}")

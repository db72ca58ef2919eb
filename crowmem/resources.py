"""Finds sql/: inside the package when installed, at the top of the checkout when editable."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@functools.cache
def sql_root() -> Traversable:
    """The folder that holds ``common``, ``postgres`` and ``sqlite``."""
    inside = files("crowmem") / "sql"
    if inside.is_dir():
        return inside
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "sql").is_dir():
        return checkout / "sql"
    raise FileNotFoundError("crowmem's sql files are missing: the installation is broken, install it again")

"""Finds sql/: inside the package when installed, at the top of the checkout when editable."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@functools.cache
def sql_root() -> Traversable:
    """The folder that holds ``common``, ``postgres`` and ``sqlite``."""
    here = Path(__file__).resolve().parent
    for folder in (here / "sql", here.parent / "sql"):
        if folder.is_dir():
            return folder
    from importlib.resources import files  # 5 ms, and only a package inside an archive needs it

    inside = files("crowmem") / "sql"
    if inside.is_dir():
        return inside
    raise FileNotFoundError("crowmem's sql files are missing: the installation is broken, install it again")

"""Records of a shape that nobody has seen yet: they cost themselves, and are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.importers.items import Item, Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crowmem.importers.source import Source

# what reading a value as something that it is not raises
ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError)


def guarded(made: Iterable[Item], source: Source, line: int) -> Iterator[Item]:
    """The items made of one record, and a skip if it turns out to be of an unknown shape."""
    try:
        yield from made
    except ODD as error:
        yield odd(source, line, error)


def odd(source: Source, line: int, error: Exception) -> Skip:
    """The skip that tells of a record of an unknown shape."""
    return Skip(str(source.path), line, f"a record of an unknown shape ({type(error).__name__}: {str(error)[:120]})")

"""What commands print: lines and tables for people, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from crowmem.terminal import Paint, clean_json, columns_of, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence


def put_line(text: str = "") -> None:
    """Print one line of data; stored text in it must have been cleaned."""
    sys.stdout.write(text + "\n")


def put_note(text: str) -> None:
    """Print one line about the data, for people: to stderr."""
    sys.stderr.write(text + "\n")


def put_json(value: Any) -> None:
    """Print one value as a line of JSON: records by field, times in ISO 8601, what a terminal obeys escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_encoded)
    sys.stdout.write(clean_json(text) + "\n")


def _encoded(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        public = [field.name for field in fields(value) if not field.name.startswith("_")]
        return {name: getattr(value, name) for name in public}
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def put_records(
    args: argparse.Namespace,
    records: Iterable[Any],
    titles: Sequence[str],
    cells: Callable[[Any], Sequence[str | int]],
    *,
    empty: str = "",
) -> None:
    """Print records: JSON lines with ``--json``, else a table.

    Args:
        args: with ``json``.
        records: what to print.
        titles: of the table's columns; the last may be cut.
        cells: a record's values, text or whole numbers.
        empty: said on stderr in place of an empty table.
    """
    if args.json:
        for record in records:
            put_json(record)
        return
    rows = [cells(record) for record in records]
    if not rows:
        put_note(empty)
        return
    for line in table(titles, rows, paint=Paint.of(sys.stdout), columns=columns_of(sys.stdout)):
        put_line(line)


def counted(count: int, things: str, further: str = "") -> str:
    """A number with what it counts: ``1 agent``, ``2 agents``.

    Args:
        count: how many.
        things: in the plural.
        further: what follows.
    """
    one = f"{things[:-3]}y" if things.endswith("ies") else things[:-1]
    return f"{count:,} {one if count == 1 else things}{further and ' '}{further}"


def local_time(moment: datetime) -> str:
    """A time for people, in their own zone, to the minute; "-" for none."""
    try:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment.year > 1 else "-"
    except (OverflowError, OSError):
        return moment.strftime("%Y-%m-%d %H:%M")

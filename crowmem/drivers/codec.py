"""Between column values and Python values, the same for both databases.

Drivers hand JSON and the crow tables' times over as text; which field of a record is what stands in its type hints.
"""

from __future__ import annotations

import json
import typing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from crowmem.values import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def record_maker(record: type[Any]) -> Callable[[Sequence[Any]], Any]:
    """A function from a row to a record of a dataclass."""
    maker = _makers.get(record)
    if maker is None:
        maker = _makers[record] = _maker(record)
    return maker


_makers: dict[type[Any], Callable[[Sequence[Any]], Any]] = {}


def _maker(record: type[Any]) -> Callable[[Sequence[Any]], Any]:
    from dataclasses import fields  # here, as a store opens without it

    hints = typing.get_type_hints(record)
    converters = [
        (index, found) for index, field in enumerate(fields(record)) if (found := _converter(hints[field.name]))
    ]
    if not converters:
        return lambda row: record(*row)

    def make(row: Sequence[Any]) -> Any:
        values = list(row)
        for index, convert in converters:
            if values[index] is not None:
                values[index] = convert(values[index])
        return record(*values)

    return make


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    kinds = typing.get_args(hint) if typing.get_origin(hint) not in (dict, list) else (hint,)
    for kind in kinds or (hint,):
        if kind is datetime:
            return moment
        if kind is bool:
            return bool
        if typing.get_origin(kind) in (dict, list):
            return decoded
    return None


_read = json.JSONDecoder().raw_decode  # half of what `json.loads` takes for a short text is not reading it


def decoded(text: Any) -> Any:
    """The value of a column that holds JSON."""
    if not isinstance(text, str):
        return text
    try:
        found, end = _read(text)
    except json.JSONDecodeError:
        end = -1
    return found if end == len(text) else json.loads(text)  # blanks around it, or an error that says where

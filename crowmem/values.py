"""One rule for values, whatever the database: what may be stored, and how it is written.

A message is kept as JSON text that Python loads to an equal value. What JSON cannot carry is refused before anything is
written, with the path inside the message. Columns that are plain text refuse what one of the databases cannot hold.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from crowmem.errors import InvalidValue, StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

MESSAGE_BYTES = 256 * 1024 * 1024  # most bytes of one message's JSON text
DEPTH = 200  # deepest nesting of one message; Python's own JSON reader stops near a thousand
PATH_BYTES = 1 << 16
TEXT_BYTES = 2600  # most bytes of an id or address: both are indexed, and a PostgreSQL index row ends at 2,704
INTEGER = (-(2**63), 2**63 - 1)
DIGITS = 4300  # most of one integer: Python reads and writes no longer ones unless it is told to

_TWO_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_TOO_LONG = 10**DIGITS
_PATH_SHOWN = 200
_VALUE_SHOWN = 80


def _encoder(*, ensure_ascii: bool) -> Callable[[Any], str]:
    """What writes JSON. A ring is refused before, for its depth.

    `json.JSONEncoder.encode` sets its C encoder up anew for each call, which takes as long as a short message.
    """
    plain = json.JSONEncoder(ensure_ascii=ensure_ascii, separators=(",", ":"), allow_nan=False, check_circular=False)
    try:
        text = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
        pieces: Any = json.encoder.c_make_encoder(None, plain.default, text, None, ":", ",", False, False, False)  # type: ignore[attr-defined]
        pieces({"": 0.5}, 0)
    except (AttributeError, TypeError):  # another Python makes it in another way
        return plain.encode
    return lambda value: "".join(pieces(value, 0))


_encode, _encode_escaping = _encoder(ensure_ascii=False), _encoder(ensure_ascii=True)


def encode_object(value: Any, what: str = "message") -> str:
    """The JSON text of an object.

    Args:
        value: a dict with text keys, nested at most 200 deep.
        what: how errors call it.

    Raises:
        InvalidValue: it is no dict, holds something JSON cannot carry (the error names the path), or is over 256 MiB.
    """
    if type(value) is not dict and not isinstance(value, dict):
        raise InvalidValue(f"{what} is {_kind(value)}, expected a dict with text keys")
    content = value.get("content")
    if type(content) is str and content.isascii():
        _check(value, what, 0)
        text = _encode_escaping(value)  # the same for ASCII, in half the time
        if ("\\" not in text or "\\u" not in text) and len(text) <= MESSAGE_BYTES:
            return text
    return encode_json(value, what)


def check_object(value: Any, what: str) -> None:
    """Refuse what `encode_object` refuses for what it holds, without writing it; for text that is stored as it came.

    Raises:
        InvalidValue: it is no dict, or holds something JSON cannot carry; the error names the path.
    """
    if not isinstance(value, dict):
        raise InvalidValue(f"{what} is {_kind(value)}, expected a dict with text keys")
    _check(value, what, 0)


def encode_json(value: Any, what: str) -> str:
    """The JSON text of any JSON value; the same rules as `encode_object`."""
    _check(value, what, 0)
    text = _encode(value)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:  # a lone surrogate cannot be sent as text, its escape can
        if _TWO_HALVES.search(text):
            _check_halves(value, what)
        text = _encode_escaping(value)
        size = len(text)
    if size > MESSAGE_BYTES:
        raise InvalidValue(f"{what} is {size:,} bytes of JSON; at most {MESSAGE_BYTES:,} can be stored: split it")
    return text


def _check(value: Any, path: str, depth: int) -> None:
    """Refuse what would not load equal: exact types only, since subclasses lose themselves."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if not -_TOO_LONG < value < _TOO_LONG:
            raise InvalidValue(f"{_short(path)} is an integer of more than {DIGITS:,} digits: store it as text")
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidValue(f"{_short(path)} is {value}, which JSON cannot carry: store it as text or null")
    elif kind is dict:
        if depth >= DEPTH:
            raise InvalidValue(f"{_short(path)} is nested more than {DEPTH} deep")
        for key, inner in value.items():
            if type(key) is not str:
                raise InvalidValue(f"{_short(path)} has the key {key!r} ({_kind(key)}): keys must be text")
            if type(inner) is not str:
                _check(inner, f"{path}.{key}", depth + 1)
    elif kind is list:
        if depth >= DEPTH:
            raise InvalidValue(f"{_short(path)} is nested more than {DEPTH} deep")
        for index, inner in enumerate(value):
            if type(inner) is not str:
                _check(inner, f"{path}[{index}]", depth + 1)
    elif isinstance(value, (str, int, float, dict, list)):
        _check(_plain(value), path, depth)
    else:
        raise InvalidValue(
            f"{_short(path)} is {_kind(value)}, which JSON cannot carry: use text, numbers, lists, dicts, null"
        )


def _check_halves(value: Any, path: str) -> None:
    """Refuse two halves side by side: JSON writes them as it writes the whole character, and reads that."""
    if isinstance(value, str):
        if found := _TWO_HALVES.search(value):
            whole = found[0].encode("utf-16", "surrogatepass").decode("utf-16")
            raise InvalidValue(
                f"{_short(path)} holds two halves of a character at position {found.start()}, which JSON cannot tell "
                f"from the whole: store {whole!r} in their place"
            )
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_halves(key, f"the key {_shown(key)} of {path}")
            _check_halves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_halves(inner, f"{path}[{index}]")


def _plain(value: Any) -> Any:
    """A subclass instance (an enum member, an OrderedDict) as the plain value it equals."""
    bases: tuple[Any, ...] = (str, int, float, dict, list)
    return next(base(value) for base in bases if isinstance(value, base))


def check_text(name: str, value: Any, *, empty: bool = False, limit: int = TEXT_BYTES) -> str:
    """A text that goes into a plain column.

    Args:
        name: how errors call it.
        value: the text.
        empty: whether "" is allowed.
        limit: most UTF-8 bytes.

    Raises:
        InvalidValue: it is not text, empty, too long, or holds NUL or half a character.
    """
    if not isinstance(value, str):
        raise InvalidValue(f"{name} is {_kind(value)}, expected text")
    if not value and not empty:
        raise InvalidValue(f"{name} is empty, expected text")
    if "\0" in value:
        raise InvalidValue(f"{name} {_shown(value)} holds a NUL at position {value.index(chr(0))}: remove it")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue(
            f"{name} {_shown(value)} holds half a character at position {error.start}: remove it"
        ) from None
    if size > limit:
        raise InvalidValue(f"{name} {_shown(value)} is {size:,} bytes, at most {limit:,} are allowed")
    return str.__str__(value)  # an enum member's own __str__ gives its name, not its text


def check_optional_text(name: str, value: Any, *, empty: bool = True, limit: int = TEXT_BYTES) -> str | None:
    """As `check_text`, or None."""
    return None if value is None else check_text(name, value, empty=empty, limit=limit)


def check_together(**texts: str | None) -> None:
    """Checked texts that stand in one index row: what is allowed to one is allowed to all of them.

    Raises:
        InvalidValue: they have more bytes together; the error names them.
    """
    given = {name: text for name, text in texts.items() if text}
    if sum(map(len, given.values())) * 4 <= TEXT_BYTES:  # a character has at most 4
        return
    size = sum(len(text.encode()) for text in given.values())
    if size > TEXT_BYTES:
        raise InvalidValue(
            f"{' and '.join(given)} are {size:,} bytes together, at most {TEXT_BYTES:,} are allowed: shorten one"
        )


def check_range(name: str, value: Any, low: int, high: int) -> int:
    """A whole number within bounds.

    Raises:
        InvalidValue: not a whole number, or outside ``low`` to ``high``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} is {_kind(value)}, expected a whole number from {low:,} to {high:,}")
    if not low <= value <= high:
        shown = f"{value:,}" if abs(value) < 10**30 else "a number of over 30 digits"
        raise InvalidValue(f"{name} is {shown}, expected {low:,} to {high:,}")
    return int(value)


def check_seconds(name: str, value: Any, low: float, high: float) -> float:
    """A number of seconds within bounds.

    Raises:
        InvalidValue: not a number, not finite, or outside ``low`` to ``high``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValue(f"{name} is {_kind(value)}, expected seconds from {low:g} to {high:g}")
    if not low <= value <= high:  # NaN fails every comparison
        raise InvalidValue(f"{name} is {_shown(value)}, expected {low:g} to {high:g} seconds")
    return float(value)


def check_list(name: str, values: Any, most: int = 1_000_000) -> list[Any]:
    """A list (or other sized collection) of at most ``most`` items; text is not a list of characters.

    Raises:
        InvalidValue: something else, or too many.
    """
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
        raise InvalidValue(f"{name} is {_kind(values)}, expected a list")
    found = list(values)
    if len(found) > most:
        raise InvalidValue(f"{name} has {len(found):,} items, at most {most:,} are allowed")
    return found


def check_texts(name: str, values: Any) -> list[str]:
    """A list of texts for plain columns."""
    return [check_text(f"{name}[{index}]", value, empty=True) for index, value in enumerate(check_list(name, values))]


def check_path(name: str, value: Any) -> Path:
    """A path of a file, ``~`` expanded.

    Raises:
        InvalidValue: it is no path, empty, or names no user's home.
    """
    from pathlib import Path

    try:
        text = os.fspath(value)
    except TypeError:
        raise InvalidValue(f"{name} is {_kind(value)}, expected a path") from None
    if isinstance(text, bytes):
        raise InvalidValue(f"{name} is of type bytes, expected text or a Path")
    try:
        return Path(check_text(name, text, limit=PATH_BYTES)).expanduser()
    except RuntimeError as error:
        raise InvalidValue(f"{name} is {_shown(text)}: {error}") from None


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words.

    Raises:
        InvalidValue: none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValue(f"{name} is {_shown(value)}, expected one of {', '.join(map(repr, allowed))}")
    return value


def now_text() -> str:
    """This moment as the crow tables write it."""
    seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
    return f"{_second_text(seconds)}.{micros:06}+00:00"


@functools.lru_cache(maxsize=1)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def time_text(name: str, value: Any) -> str:
    """A moment as the crow tables write it: ISO 8601 in UTC with microseconds and ``+00:00``, so that text sorts as
    time.

    Args:
        name: how errors call it.
        value: an aware datetime, or ISO 8601 text. Without an offset it is taken as UTC.

    Raises:
        InvalidValue: neither, or outside the years 1 to 9999.
    """
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise InvalidValue(f"{name} is {_kind(value)}, expected a datetime or ISO 8601 text")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except InvalidValue:
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"{name} is {_shown(value)}, expected a time such as '2026-01-31T12:00:00+00:00'") from error


def optional_time_text(name: str, value: Any) -> str | None:
    """As `time_text`, or None."""
    return None if value is None else time_text(name, value)


def moment(text: str | float | datetime) -> datetime:
    """What a database holds as a time → an aware datetime in UTC.

    Text that another program wrote in some other form than ISO 8601 becomes the first moment of year 1: a strange
    stamp must not hide the row that carries it.
    """
    if type(text) is not str:
        if isinstance(text, datetime):
            return text.astimezone(UTC) if text.tzinfo else text.replace(tzinfo=UTC)
        if isinstance(text, (int, float)):
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(text))
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is UTC:
            return found
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def decode_stored(texts: Iterable[str], what: str) -> list[Any]:
    """The values of stored JSON texts.

    Args:
        texts: as they stand in a column.
        what: what they are, for the error.

    Raises:
        StoreCorrupt: one is no JSON, as in a file with a damaged page.
    """
    try:
        return [json.loads(text) for text in texts]
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"{what} is no JSON ({error}); `crowmem check --deep` looks for more") from error


def micros(seconds: float) -> int:
    """Seconds as whole microseconds, the unit of every duration in SQL."""
    return round(seconds * 1_000_000)


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = _kind(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"


def _short(path: str) -> str:
    return path if len(path) <= _PATH_SHOWN else f"{path[:_PATH_SHOWN]}…"

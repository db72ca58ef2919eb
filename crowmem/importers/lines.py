"""JSON lines as they are found on disk: half written, glued together, filled with NULs, commented, megabytes long.

A bad line costs what cannot be read of it and nothing else, and each loss is said with its line and reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

from crowmem.importers.document import raw_decode
from crowmem.importers.items import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.source import Source

LINE_LIMIT = 256 * 1024 * 1024  # bytes; the store takes no larger message
CUT = "cut at the end of the file; it is read again when the rest has been written"

_PIECE = 1024 * 1024
_BLANK = "\0 \t\r\n\ufeff"
_START = re.compile(r'\{\s*"')
_NEAR = 64  # characters looked at behind an object: a part of a record is followed by a comma or a bracket
_EFFORT = 16 * 1024 * 1024  # characters scanned in vain inside one broken line before it is given up
_COUNTED = 32  # so much faster than it scans does json count the lines before an error, each time from the beginning

IsRecord: TypeAlias = Callable[[dict[str, Any]], bool]


class Line(NamedTuple):
    """One record."""

    number: int  # from 1
    offset: int  # of the line's first byte
    value: Any  # an object, or an array where the format has such


def read_lines(source: Source, is_record: IsRecord, *, arrays: bool = False) -> Iterator[Line | Skip]:
    """The records of a file from the source's offset on, and what had to be skipped.

    ``source.offset`` and ``source.line`` stand behind the last line that was yielded. A last line that is cut stays
    before them, so that it is read again when it is whole.

    Args:
        source: the file.
        is_record: whether an object is a record of the format; asked only for objects found inside a broken line, where
        a part of a record could be taken for a whole one. arrays: whether a line may also be a JSON array.

    Raises:
        OSError: the file cannot be read.
    """
    kinds = (dict, list) if arrays else (dict,)
    with source.open() as stream:
        if source.offset:
            stream.seek(source.offset)
        while piece := stream.readline(_PIECE):
            start, number = source.offset, source.line + 1
            length, data = len(piece), piece
            if length == _PIECE and not piece.endswith(b"\n"):
                length, data = _long_line(stream, piece)
            found: Any
            if source.begun and source.begun[0][0] == data:
                found = source.begun.popleft()[1]
            else:
                found = parse(data, kinds) if data else None
            if found is not None:
                source.offset, source.line = start + length, number
                yield Line(number, start, found)
                continue
            records, reason = _recover(data, is_record) if data else _too_long(length)
            if reason and data and not data.endswith(b"\n"):
                yield Skip(str(source.path), number, CUT)
                return
            source.offset, source.line = start + length, number
            yield from (Line(number, start, record) for record in records)
            if reason:
                yield Skip(str(source.path), number, reason)


def _long_line(stream: IO[bytes], first: bytes) -> tuple[int, bytes]:
    """The rest of a line; its length, and its bytes, b"" when it is over the limit: it is never held as a whole."""
    pieces: list[bytes] = [first]
    length = len(first)
    piece = first
    while piece and not piece.endswith(b"\n"):
        piece = stream.readline(_PIECE)
        length += len(piece)
        if length <= LINE_LIMIT:
            pieces.append(piece)
        else:
            pieces.clear()
    return length, b"".join(pieces) if length <= LINE_LIMIT else b""


def _too_long(length: int) -> tuple[list[dict[str, Any]], str]:
    return [], f"a line of {length:,} bytes; at most {LINE_LIMIT:,} are read"


def parse(data: bytes, kinds: tuple[type, ...] = (dict, list)) -> Any:
    """The value that makes up a whole line, or None."""
    try:
        text = data.decode()
        value, end = raw_decode(
            text, 0 if text.startswith(("{", "[")) else len(text) - len(text.lstrip("\ufeff \t\r\n"))
        )
    except (ValueError, RecursionError):
        return None
    rest = len(text) - end
    whole = rest == 1 or not rest or not text[end:].strip()
    return value if whole and isinstance(value, kinds) else None


def _recover(data: bytes, is_record: IsRecord) -> tuple[list[dict[str, Any]], str]:
    """Whole records inside a line that is none, and what was lost of it; "" when nothing was."""
    text = data.decode(errors="surrogateescape")
    bare = text.strip(_BLANK)
    nulls = text.count("\0")
    if not bare:
        return [], f"a block of {nulls:,} NUL bytes" if nulls else ""
    if bare.startswith("//"):
        return [], "a comment, not a JSON record"
    records, covered = _whole_records(bare, is_record)
    lost = len(bare) - covered
    if not records:
        return [], _fault(bare)
    following = (
        "the whole record in the same line was read" if len(records) == 1 else f"{len(records)} whole ones were read"
    )
    if lost:
        return records, f"a cut record of {lost:,} characters; {following}"
    if nulls:
        return records, f"a block of {nulls:,} NUL bytes; {following}"
    if not text.isascii() and any("\udc80" <= character <= "\udcff" for character in text):
        return records, "bytes that are not UTF-8, kept as half characters"
    return records, ""


def _whole_records(text: str, is_record: IsRecord) -> tuple[list[dict[str, Any]], int]:
    """The records found in a text, and how many of its characters they and the blanks between them take."""
    found: list[dict[str, Any]] = []
    at = covered = in_vain = 0
    while in_vain < _EFFORT:
        match = _START.search(text, at)
        if match is None:
            break
        begin = match.start()
        try:
            value, end = raw_decode(text, begin)
        except json.JSONDecodeError as error:
            in_vain += error.pos - begin + error.pos // _COUNTED
            at = begin + 1
            continue
        except (ValueError, RecursionError):
            break
        rest = text[end : end + _NEAR].lstrip(_BLANK)
        if (begin == 0 and end == len(text)) or (is_record(value) and (not rest or rest[0] == "{")):
            covered += end - begin + (begin - at if not text[at:begin].strip(_BLANK) else 0)
            found.append(value)
        at = end  # an object that is whole holds no other record
    return found, covered


def _fault(text: str) -> str:
    try:
        value, _end = raw_decode(text)
    except json.JSONDecodeError as error:
        return f"not JSON ({error.msg} at character {error.pos + 1:,})"
    except (ValueError, RecursionError) as error:
        return f"not readable ({type(error).__name__}: {str(error)[:80]})"
    if isinstance(value, dict):
        return "a JSON object that is no record of this format, with more text after it"
    return f"a JSON value that is no object ({type(value).__name__})"

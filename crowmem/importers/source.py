"""A file to be read: where to begin, what was counted on the way, and its first records, by which a format is
recognised.
"""

from __future__ import annotations

import codecs
import gzip
import json
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cached_property
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, cast

from crowmem.importers.document import members
from crowmem.importers.lines import parse

if TYPE_CHECKING:
    from pathlib import Path

HEAD_BYTES = 64 * 1024
HEAD_RECORDS = 20
HEAD_BUDGET = 16 * 1024 * 1024  # most bytes read to recognise a file: one line with a picture may take megabytes
ZSTANDARD = b"\x28\xb5\x2f\xfd"
GZIP = b"\x1f\x8b"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # as Windows' shells write what a program prints
_PIECE = 1024 * 1024


@dataclass(slots=True)
class Source:
    """One file being imported.

    ``offset``, ``line`` and ``state`` are where a former run stopped; a parser keeps them true while it reads, so that
    a `Mark` and the state of that moment are enough to go on later.
    """

    path: Path
    offset: int = 0
    line: int = 0
    state: dict[str, Any] = field(default_factory=dict)  # small, JSON
    former: dict[str, Any] = field(default_factory=dict)  # the state of the last run, also when the file is read anew
    records: int = 0  # records of the source that carry a message, or a part of one
    passed: Counter[str] = field(default_factory=Counter)  # records known and left out, by kind
    begun: deque[tuple[bytes, dict[str, Any]]] = field(default_factory=deque)  # its first lines, parsed already

    def open(self) -> IO[bytes]:
        """The file's bytes from the start, decompressed, in UTF-8."""
        return open_bytes(self.path)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; gzip and UTF-16 are undone, Zstandard where Python can (3.14 and later).

    Raises:
        OSError: as `open` does; also for a compressed file that this Python cannot read.
    """
    stream = path.open("rb")
    start = stream.peek(4)[:4]
    if start != ZSTANDARD and not start.startswith((GZIP, *UTF_16)):
        return stream
    if start.startswith(UTF_16):
        with stream:
            return _utf_8(stream)
    stream.close()
    if start.startswith(GZIP):
        return cast("IO[bytes]", gzip.open(path))
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise OSError(
            "compressed with Zstandard, which Python reads from 3.14 on: decompress it with `unzstd`"
        ) from None
    opened: IO[bytes] = zstd.open(path, "rb")
    return opened


def _utf_8(stream: IO[bytes]) -> IO[bytes]:
    """A file in UTF-16 as UTF-8, kept beside memory when it is large; halves of characters become those of UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    made = SpooledTemporaryFile(max_size=16 * _PIECE)  # noqa: SIM115  # who asked for the stream closes it
    try:
        while piece := stream.read(_PIECE):
            made.write(decoder.decode(piece).encode(errors="surrogatepass"))
    except BaseException:
        made.close()
        raise
    made.seek(0)
    return made


class Head:
    """The beginning of a file, parsed no further than recognising it takes."""

    def __init__(self, path: Path) -> None:
        """Read the first bytes.

        Raises:
            OSError: the file cannot be read.
        """
        self.path = path
        self.begun: deque[tuple[bytes, dict[str, Any]]] = deque()  # lines that were parsed as they are
        with open_bytes(path) as stream:
            self.raw = stream.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")

    @cached_property
    def text(self) -> str:
        """The first bytes as text."""
        return self.raw.decode(errors="replace")

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The JSON objects among the first lines; empty unless at least one line is a whole object."""
        found: list[dict[str, Any]] = []
        budget = HEAD_BUDGET
        with open_bytes(self.path) as stream:
            for _ in range(2 * HEAD_RECORDS):
                line = stream.readline(budget)
                budget -= len(line)
                if not line or budget <= 0 or len(found) == HEAD_RECORDS:
                    break
                value = parse(line)
                if isinstance(value, dict):
                    self.begun.append((line, value))
                elif value is None:
                    value = _anyhow(line)
                if isinstance(value, dict):
                    found.append(value)
        return found

    @cached_property
    def document(self) -> dict[str, Any] | list[Any] | None:
        """The file as one JSON document, its arrays cut to their first few elements; None when it is none.

        A file of one line is both a document and a list of records.
        """
        if self.raw.lstrip(b"\0 \t\r\n")[:1] not in (b"{", b"["):
            return None
        shape: dict[str, Any] = {}
        elements: list[Any] = []
        top: dict[str, Any] | list[Any] | None = None
        with open_bytes(self.path) as stream:
            for member in members(stream):
                if member.broken or member.end > HEAD_BUDGET:
                    break
                if member.key is None:
                    top = elements
                    elements.append(member.value)
                    if len(elements) == HEAD_RECORDS:
                        break
                else:
                    top = shape
                    _keep(shape, member.key, member.index, member.value)
        if top is None and self.raw.strip() in (b"{}", b"[]"):
            return json.loads(self.raw)  # type: ignore[no-any-return]
        return top

    @property
    def object(self) -> dict[str, Any]:
        """The document when it is an object, else an empty one."""
        return self.document if isinstance(self.document, dict) else {}

    @property
    def elements(self) -> list[Any]:
        """The first elements of the document when it is an array, else none."""
        return self.document if isinstance(self.document, list) else []


def _anyhow(line: bytes) -> Any:
    """The value of a line behind a mark, between NULs or with halves of characters; None when it is none."""
    try:
        return json.loads(line.removeprefix(b"\xef\xbb\xbf").strip(b"\0 \t\r\n"))
    except (ValueError, RecursionError):
        return None


def _keep(shape: dict[str, Any], key: str, index: int | None, value: Any) -> None:
    if index is None:
        shape[key] = value
    else:
        kept = shape.setdefault(key, [])
        if len(kept) < HEAD_RECORDS:
            kept.append(value)

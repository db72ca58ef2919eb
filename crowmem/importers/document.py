"""JSON documents read piece by piece, so that a list of a million conversations takes the memory of the largest one.

Python's own reader wants the whole text at once. Here a document is walked as its top level has it: the elements of an
array, the members of an object, and of a member that is an array each element for itself.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from math import isfinite
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ELEMENT_LIMIT = 256 * 1024 * 1024  # most characters of one element; the store takes no larger message
_CHUNK = 256 * 1024
_TAIL = 3  # characters that must follow a number to know that it has ended: "1" may go on as "1e+5"
_SPACE = " \t\r\n\0"


def _no_number(_name: str) -> None:
    """NaN and the infinities are no JSON; they become null, as JavaScript writes them."""


def _number(text: str) -> float | None:
    """A number with a fraction or an exponent; one that no float holds, such as 1e999, becomes null as well."""
    value = float(text)
    return value if isfinite(value) else None


raw_decode = json.JSONDecoder(parse_constant=_no_number, parse_float=_number).raw_decode


class Broken(Exception):
    """The text ends or goes wrong here; the message says how."""


@dataclass(frozen=True, slots=True)
class Member:
    """One piece of a document.

    ``key`` is None for an element of a top-level array, else the name of the member; ``index`` is the element's
    position in its array, None for a member that is no array. An empty array comes as one member with the value ``[]``.
    """

    key: str | None
    index: int | None
    value: Any
    line: int  # of its first character, from 1
    end: int  # characters read so far
    broken: str = ""  # why the document cannot be read on; always the last piece


def members(stream: IO[bytes]) -> Iterator[Member]:
    """The pieces of a JSON document, in order.

    Args:
        stream: the document's bytes, in UTF-8; bytes that are none come as half characters (surrogateescape).
    """
    text = _Text(stream)
    try:
        opening = text.peek()
        if opening == "[":
            for index, (line, value) in enumerate(_elements(text)):
                yield Member(None, index, value, line, text.read)
        elif opening == "{":
            yield from _object(text)
        else:
            raise Broken("neither a JSON object nor an array")
        if text.peek():
            raise Broken("more text after the end of the JSON document")
    except Broken as error:
        yield Member(None, None, None, text.line, text.read, str(error))


def _object(text: _Text) -> Iterator[Member]:
    text.take("{")
    while text.peek() != "}":
        key = text.value()
        if not isinstance(key, str):
            raise Broken("a member without a name")
        text.take(":")
        if text.peek() == "[":
            index = -1
            for index, (line, value) in enumerate(_elements(text)):
                yield Member(key, index, value, line, text.read)
            if index < 0:
                yield Member(key, None, [], text.line, text.read)
        else:
            line = text.line
            yield Member(key, None, text.value(), line, text.read)
        if text.peek() != "}":
            text.take(",")
    text.take("}")


def _elements(text: _Text) -> Iterator[tuple[int, Any]]:
    text.take("[")
    while text.peek() != "]":
        line = text.line
        yield line, text.value()
        if text.peek() != "]":
            text.take(",")
    text.take("]")


class _Text:
    """The part of the text that is in memory, and the place in it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._text = ""
        self._at = 0
        self._before = 0  # characters before the part in memory
        self._lines = 0  # line ends before _counted
        self._counted = 0
        self._ended = False

    @property
    def read(self) -> int:
        """Characters passed so far."""
        return self._before + self._at

    @property
    def line(self) -> int:
        """The line of the next character, from 1."""
        self._lines += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._lines + 1

    def peek(self) -> str:
        """The next character that is no white space; "" at the end."""
        while True:
            while self._at < len(self._text):
                character = self._text[self._at]
                if character not in _SPACE:
                    return character
                self._at += 1
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Pass one character.

        Raises:
            Broken: another one stands there.
        """
        found = self.peek()
        if found != expected:
            raise Broken(f"{found!r} where {expected!r} was expected" if found else "cut at the end of the file")
        self._at += 1

    def value(self) -> Any:
        """Pass one JSON value.

        Raises:
            Broken: it is cut, damaged, over the limit, or nested too deeply.
        """
        self.peek()
        while True:
            try:
                value, end = raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > ELEMENT_LIMIT:
                    raise Broken(f"an element of over {ELEMENT_LIMIT:,} characters") from error
                if not self._more():
                    raise Broken(f"not JSON ({error.msg})") from error
            except (ValueError, RecursionError) as error:  # an integer of over 4,300 digits; nested a thousand deep
                raise Broken(f"not readable ({type(error).__name__}: {error})") from error
            else:
                length = end - self._at
                whole = self._text[self._at] in '{["' or len(self._text) - end >= _TAIL
                if whole or not self._more():
                    self._at += length
                    return value

    def _more(self) -> bool:
        """Read on: as much again as is in memory, so that a long value is tried few times."""
        if self._ended:
            return False
        _ = self.line
        rest = self._text[self._at :]
        data = self._stream.read(max(_CHUNK, len(rest)))
        self._ended = not data
        self._before += self._at
        self._text = rest + self._decoder.decode(data, final=self._ended)
        self._at = self._counted = 0
        return len(self._text) > len(rest) or not self._ended

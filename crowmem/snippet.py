"""A piece of a message around its matches, made from the stored text: the same on both databases."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from crowmem.lexer import TOKEN_BYTES, cut, located

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crowmem.query import Phrase

LENGTH = 200  # characters of the text shown, marks and ellipses not counted
BEFORE = 40  # characters shown before the first match
OPEN, CLOSE, MORE = "«", "»", "…"

_MATCHES = 40  # of one word; the best place among these is shown
_PIECE, _READ = 1 << 12, 1 << 18  # characters read at once, and at most, of text that is not ASCII or has stems
_BLANK = re.compile(r"\s+")
_HALF = re.compile("[\0\ud800-\udfff]")

Span = tuple[int, int, int]  # first and past the last character, and which term


def snippet(text: str, terms: Iterable[Phrase], *, stem: bool = False) -> str:
    """The part of a text with the most different terms in it, each match between « and ».

    Args:
        text: the message's search text.
        terms: single tokens, prefixes among them.
        stem: whether the tokens are stems.

    Returns:
        At most 200 characters of the text on one line, with marks, and ellipses where it goes on. NUL and half
        characters become U+FFFD.
    """
    wanted = {term.tokens[0]: term.prefix or len(term.tokens[0].encode()) > TOKEN_BYTES - 4 for term in terms}
    spans = sorted(_plain(text, wanted) if text.isascii() and not stem else _read(text, wanted, stem))
    start = _start(text, spans)
    end = min(len(text), start + LENGTH)
    if end < len(text):
        end = _border(text, end, -1, start)
    shown = "".join(_marked(text, start, end, spans))
    shown = _BLANK.sub(" ", _HALF.sub("\ufffd", shown)).strip()
    return (MORE if start else "") + shown + (MORE if end < len(text) else "")


def _plain(text: str, wanted: dict[str, bool]) -> Iterator[Span]:
    """Matches in ASCII text, whose tokens are its runs of letters and digits."""
    lower = text.lower()
    for number, (token, prefix) in enumerate(wanted.items()):
        place = lower.find(token) if token.isascii() else -1
        left = _MATCHES
        while place >= 0 and left:
            end = place + len(token)
            if not (place and lower[place - 1].isalnum()):
                while prefix and end < len(lower) and lower[end].isalnum():
                    end += 1
                if not (end < len(lower) and lower[end].isalnum()):
                    yield place, end, number
                    left -= 1
            place = lower.find(token, end)


def _read(text: str, wanted: dict[str, bool], stem: bool) -> Iterator[Span]:
    """Matches in any text, up to the end of the first piece that has one."""
    numbers = {token: number for number, token in enumerate(wanted)}
    prefixes = tuple(token for token, prefix in wanted.items() if prefix)

    def matches(token: str) -> bool:
        return token in numbers or token.startswith(prefixes)

    before = 0
    for piece in cut(text, _PIECE):
        found = list(located(piece, matches, stem=stem))
        for token, start, end in found:
            number = numbers.get(token)
            if number is None:
                number = next(numbers[prefix] for prefix in prefixes if token.startswith(prefix))
            yield before + start, before + end, number
        before += len(piece)
        if found or before >= _READ:
            return


def _start(text: str, spans: list[Span]) -> int:
    """Where to begin so that the most different terms are shown, the earliest such place."""
    best, most = 0, 0
    starts = [span[0] for span in spans]
    for place, (start, _, _) in enumerate(spans):
        until = bisect_right(starts, start + LENGTH - BEFORE)
        found = len({number for _, _, number in spans[place:until]})
        if found > most:
            best, most = start, found
    if best <= BEFORE:
        return 0
    return _border(text, best - BEFORE, 1, best)


def _border(text: str, place: int, step: int, limit: int) -> int:
    """The nearest place in one direction, 20 characters at most, where no word is cut; the place itself if none is."""
    for other in range(place, place + 20 * step, step):
        if other == limit or other <= 0:
            break
        if text[other - 1].isspace():
            return other
    return place


def _marked(text: str, start: int, end: int, spans: list[Span]) -> Iterator[str]:
    """The text with marks; matches that touch share theirs."""
    place = start
    opened = False
    for first, past, _ in spans:
        if first < place or first >= end:
            continue
        if opened and first > place:
            yield CLOSE
            opened = False
        yield text[place:first]
        if not opened:
            yield OPEN
            opened = True
        place = min(past, end)
        yield text[first:place]
    if opened:
        yield CLOSE
    yield text[place:end]

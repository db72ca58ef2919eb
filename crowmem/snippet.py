"""A piece of a message around its matches, made from the stored text: the same on both databases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from crowmem.lexer import TOKEN_BYTES, cut, located

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crowmem.query import Phrase

LENGTH = 200  # characters of the text shown, marks and ellipses not counted
BEFORE = 40  # characters shown before the first match
OPEN, CLOSE, MORE = "«", "»", "…"

_MATCHES = 40  # of one word; the best place among these is shown
_TRIES = 4000  # places of one word's letters looked at, within other words too: "banana" has three of an "a"
_PIECE, _READ = 1 << 12, 1 << 18  # characters read at once, and at most, of text that is not ASCII or has stems
_EDGE = 20  # characters looked at for a place where no word is cut
_SPACE, _LAST_SPACE = re.compile(r"\s"), re.compile(r".*\s", re.DOTALL)
_HALF = re.compile("[\0\ud800-\udfff]")

Span = tuple[int, int, int]  # first and past the last character, and which term


class Snippets:
    """Makes the snippets of one search.

    Args:
        terms: single tokens, prefixes among them.
        stem: whether the tokens are stems.
    """

    def __init__(self, terms: Iterable[Phrase], *, stem: bool = False) -> None:
        self._stem = stem
        # a token of nearly 128 bytes may be the beginning of a longer word
        self._wanted = {term.tokens[0]: term.prefix or len(term.tokens[0].encode()) > TOKEN_BYTES - 4 for term in terms}

    def of(self, text: str) -> str:
        """The part of a text with the most different terms in it, each match between « and ».

        Returns:
            At most 200 characters of the text on one line, with marks, and ellipses where it goes on. NUL and half
            characters become U+FFFD.
        """
        plain = text.isascii()
        spans = _plain(text, self._wanted) if plain and not self._stem else list(_read(text, self._wanted, self._stem))
        spans.sort()
        start = _start(text, spans)
        end = _end(text, start)
        shown = _marked(text, start, end, spans)
        if not plain or "\0" in shown:
            shown = _HALF.sub("\ufffd", shown)
        shown = " ".join(shown.split())
        return f"{MORE if start else ''}{shown}{MORE if end < len(text) else ''}"


def _plain(text: str, wanted: dict[str, bool]) -> list[Span]:
    """Matches in ASCII text, whose tokens are its runs of letters and digits."""
    found: list[Span] = []
    lower = text.lower() + " "  # which stands after the last character, and before the first
    alone = len(wanted) == 1
    for number, (token, prefix) in enumerate(wanted.items()):
        end, left = 0, _MATCHES
        for _ in range(_TRIES):
            place = lower.find(token, end)
            if place < 0:
                break
            end = place + len(token)
            if lower[place - 1].isalnum() or (not prefix and lower[end].isalnum()):
                continue
            while prefix and end < place + LENGTH and lower[end].isalnum():
                end += 1
            found.append((place, end, number))
            left -= 1
            if not left or (alone and place > found[0][0] + LENGTH):  # alone: the first is shown, and none past the end
                break
    return found


def _read(text: str, wanted: dict[str, bool], stem: bool) -> Iterator[Span]:
    """Matches in any text, up to the end of the first piece that has one."""
    numbers = {token: number for number, token in enumerate(wanted)}
    prefixes = tuple(token for token, prefix in wanted.items() if prefix)

    def matches(token: str) -> bool:
        return token in numbers or token.startswith(prefixes)

    before = 0
    for piece in cut(text[:_READ], _PIECE):
        found = list(located(piece, matches, stem=stem))
        for token, start, end in found:
            number = numbers.get(token)
            if number is None:
                number = next(numbers[prefix] for prefix in prefixes if token.startswith(prefix))
            yield before + start, before + end, number
        before += len(piece)
        if found:
            return


def _start(text: str, spans: list[Span]) -> int:
    """Where to begin so that the most different terms are shown, the earliest such place."""
    if not spans:
        return 0
    best, most = spans[0][0], 1
    counts = dict.fromkeys([number for _, _, number in spans], 0)
    if len(counts) > 1:
        found = past = 0  # different terms, and the first span past those shown, beginning at the place tried
        for start, _, number in spans:
            while past < len(spans) and spans[past][0] <= start + LENGTH - BEFORE:
                term = spans[past][2]
                found += not counts[term]
                counts[term] += 1
                past += 1
            if found > most:
                best, most = start, found
                if most == len(counts):
                    break
            counts[number] -= 1
            found -= not counts[number]
    if best <= BEFORE:
        return 0
    space = _SPACE.search(text, best - BEFORE - 1, best - BEFORE - 1 + _EDGE)
    return space.end() if space else best - BEFORE


def _end(text: str, start: int) -> int:
    """Where to end, so that no word is cut if it is a short one."""
    end = start + LENGTH
    if end >= len(text):
        return len(text)
    space = _LAST_SPACE.match(text, max(start, end - _EDGE), end)
    return space.end() if space else end


def _marked(text: str, start: int, end: int, spans: list[Span]) -> str:
    """The text with marks; matches that touch share theirs."""
    parts: list[str] = []
    place, opened = start, False
    for first, past, _ in spans:
        if first < place:
            continue
        if first >= end:
            break
        if opened and first > place:
            parts.append(CLOSE)
            opened = False
        parts.append(text[place:first])
        if not opened:
            parts.append(OPEN)
            opened = True
        place = min(past, end)
        parts.append(text[first:place])
    if opened:
        parts.append(CLOSE)
    parts.append(text[place:end])
    return "".join(parts)

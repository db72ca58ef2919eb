"""Keeps answers small: what an agent reads costs it attention, and clients cut what is too long wherever they like.

Long texts are cut so that short ones stay whole, and a page that would still be too large ends early. Either way the
answer says where the rest begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.mcp.answers import Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.transcript import Part

TEXT = 40_000  # characters of all messages' texts of an answer
WHOLE = 80_000  # characters of an answer, roughly: a page ends before it gets larger
EXCERPT = 3_000  # characters of one message that a search found
LEAST = 200  # characters of a message that are always shown
PARTS = 2_000  # of all messages of an answer: each has a kind, and may have a name
FEWEST = 4  # parts of a message that are always shown
AROUND = 200  # characters that stand around a message: its number, time and so on


def cap(lengths: Sequence[int], names: int = 0) -> int:
    """The most characters of each text so that all of them fit: what short texts leave over goes to the long ones.

    Args:
        lengths: of the texts.
        names: characters of ids and the like, which are never cut.
    """
    left = len(lengths)
    room = min(TEXT, WHOLE - names - left * AROUND)
    for length in sorted(lengths):
        if length * left > room:
            return max(LEAST, room // left)
        room -= length
        left -= 1
    return max(LEAST, *lengths, 0)


def count_that_fit(costs: Sequence[int]) -> int:
    """How many things of these costs, in their order, fit into an answer; the first always does."""
    room = WHOLE
    for number, cost in enumerate(costs):
        room -= cost
        if room < 0:
            return max(1, number)
    return len(costs)


def cost(length: int, names: int) -> int:
    """Characters that something takes at least: its text as far as it is always shown, and what stands around it.

    Args:
        length: of its text.
        names: characters of ids and the like, which are never cut.
    """
    return AROUND + names + min(length, LEAST)


def part_cap(messages: int) -> int:
    """The most parts of each of so many messages."""
    return max(FEWEST, PARTS // max(1, messages))


def pieces(parts: Sequence[Part], start: int, most: int, most_parts: int) -> list[Piece]:
    """A piece of a message: some characters of its parts, as if they were one text.

    Args:
        parts: all of it.
        start: the first character.
        most: how many characters.
        most_parts: how many parts they may be of.
    """
    found: list[Piece] = []
    end, place = start + most, 0
    for part in parts:
        if place >= end or len(found) == most_parts:
            break
        text = part.text[max(0, start - place) : end - place]
        place += len(part.text)
        if text:
            found.append(Piece(part.kind, text, part.name or None, part.is_error or None))
    return found


def beginning(parts: Sequence[Part], most: int, word: str) -> int:
    """Where a piece of a message begins that shows a word: at the start if that holds it.

    Args:
        parts: all of the message.
        most: how many characters the piece has.
        word: as it stands in the text; "" for the start.
    """
    place = 0
    for part in parts:
        found = part.text.find(word) if word else -1
        if found >= 0:
            place += found
            break
        place += len(part.text)
    else:
        return 0
    length = sum(len(part.text) for part in parts)
    return 0 if place + len(word) <= most else max(0, min(place - most // 4, length - most))

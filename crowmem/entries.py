"""Entries of tapes: JSON objects in the shape agentkit writes, kept as the text they came in.

An entry may be any object. Only anchors mean something here: a handoff anchor begins the window that a model is shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from crowmem.errors import StoreCorrupt
from crowmem.values import check_list, encode_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

POSITIONS = 2**32 - 1  # more entries than one tape can hold
PART_ENTRIES = 10_000  # one statement carries at most so many entries,
PART_CHARACTERS = 16 * 1024 * 1024  # or so much text; PostgreSQL takes 1 GB at once
_DECODED = 1000  # entries handed to the JSON reader at once: fewer calls, and little text held twice


@dataclass(slots=True)
class Batch:
    """Entries ready to be written.

    Attributes:
        texts: their JSON.
        handoffs: the places of handoff anchors among them, from 0.
    """

    texts: list[str] = field(default_factory=list)
    handoffs: list[int] = field(default_factory=list)

    def add(self, text: str, entry: Mapping[str, Any]) -> None:
        """Take one more entry, as text and as the object it loads to."""
        if is_handoff(entry):
            self.handoffs.append(len(self.texts))
        self.texts.append(text)

    def parts(self) -> Iterator[Batch]:
        """The same entries in as few batches as statements may carry; one batch when there are none."""
        if len(self.texts) <= PART_ENTRIES and sum(map(len, self.texts)) <= PART_CHARACTERS:
            yield self
            return
        start, size = 0, 0
        for place, text in enumerate(self.texts):
            size += len(text)
            if size > PART_CHARACTERS or place - start == PART_ENTRIES:
                if place > start:
                    yield self._cut(start, place)
                start, size = place, len(text)
        yield self._cut(start, len(self.texts))

    def _cut(self, start: int, stop: int) -> Batch:
        handoffs = [place - start for place in self.handoffs if start <= place < stop]
        return Batch(self.texts[start:stop], handoffs)


def encoded(entries: Sequence[Mapping[str, Any]]) -> Batch:
    """Entries as the text that is stored.

    Raises:
        InvalidValue: an entry is no JSON object; the error names its place in the list and the path inside it.
    """
    given = check_list("entries", entries)
    texts = [encode_object(entry, f"entries[{number}]") for number, entry in enumerate(given)]
    handoffs = [number for number, entry in enumerate(given) if entry.get("kind") == "anchor" and is_handoff(entry)]
    return Batch(texts, handoffs)


def decoded(texts: Sequence[str]) -> list[dict[str, Any]]:
    """The objects that stored texts load to."""
    rest = iter(texts)
    found: list[dict[str, Any]] = []
    try:
        if len(texts) <= _DECODED:
            return json.loads(f"[{','.join(texts)}]")  # type: ignore[no-any-return]
        while part := list(islice(rest, _DECODED)):
            found += json.loads(f"[{','.join(part)}]")
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a stored entry or state is no JSON ({error})") from error
    return found


def is_handoff(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is an anchor that begins a new window.

    Today's anchors say so in ``anchor_type``; older ones in ``meta.is_handoff``, the oldest in ``meta.anchor_type``.
    ``topic_initial`` and ``topic_finalized``, the old names of topic anchors, begin none.
    """
    if entry.get("kind") != "anchor":
        return False
    meta = entry.get("meta")
    if not isinstance(meta, dict):
        meta = {}
    if entry.get("anchor_type") == "handoff" or bool(meta.get("is_handoff")):
        return True
    return meta.get("anchor_type") == "handoff" and "is_handoff" not in meta

"""A draft of a tape: what an agent adds during one turn, kept apart until it is saved or dropped."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from crowmem.entries import Batch, decoded
from crowmem.errors import AlreadyFinal
from crowmem.values import encode_object

if TYPE_CHECKING:
    from collections.abc import Mapping


class TapeDraft:
    """An independent continuation of a tape, in memory; made by ``tapes.begin``.

    What others append to the tape meanwhile is not seen here, and what is appended here is not seen there. The base's
    entries are not copied: ``tapes.load(draft)`` reads them with the added ones behind.

    Attributes:
        draft_id: unique; the store finds by it that a draft was saved although the answer was lost.
        tape_id: the base, under whose id the added entries are saved.
        base_length: how many entries the base had when the draft was begun.
        batch: the added entries, as they will be saved.
        sent: whether an attempt to save may have been carried out; the store is asked before it is repeated.
        ended: "committed", "rolled back", or None while the draft is open.
    """

    def __init__(self, tape_id: str, base_length: int) -> None:
        """Begin a draft; ``tapes.begin`` knows the base's length."""
        self.draft_id = str(uuid.uuid4())
        self.tape_id = tape_id
        self.base_length = base_length
        self.batch = Batch()
        self.ended: str | None = None
        self.sent = False

    def __len__(self) -> int:
        """How many entries the tape would have: the base's and the added ones."""
        return self.base_length + len(self.batch.texts)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The added entries."""
        return decoded(self.batch.texts)

    @property
    def final(self) -> bool:
        """Whether the draft was committed or rolled back."""
        return self.ended is not None

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add an entry; later changes of the dict do not reach the draft.

        Raises:
            InvalidValue: it is no JSON object; the error names the path.
            AlreadyFinal: the draft was committed or rolled back.
        """
        self.check_open()
        self.batch.add(encode_object(entry, "entry"), entry)

    def check_open(self) -> None:
        """Raise AlreadyFinal when the draft was committed or rolled back."""
        if self.ended is not None:
            raise AlreadyFinal(f"the draft of tape {self.tape_id!r} was {self.ended} already; begin a new one")

    def __repr__(self) -> str:
        """Its base and how much was added."""
        return f"<TapeDraft of {self.tape_id!r}: {self.base_length} + {len(self.batch.texts)}>"

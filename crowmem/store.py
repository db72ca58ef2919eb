"""What the repositories of one open store share beside its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.frequencies import Frequencies

if TYPE_CHECKING:
    from crowmem.blobs import Store as Blobs
    from crowmem.marks import Marks


class Store:
    """Settings of one open store.

    Attributes:
        where: the file's path or the server's URL without password, as errors and status show it.
        stem: whether the index holds word stems; fixed when the store was made.
        max_attempts: leases of one delivery before it is dead.
        now_us: stands in for the database's clock in tests of leases, microseconds since 1970; None: the clock itself.
        marks: where claims begin to look.
        tapes: those that were seen to be there; some may be gone.
        frequencies: how common the words are that searches asked for.
        images: where the bytes of images are; None leaves images in their messages.
        images_joined: whether the image store knows that this store uses it.
        closed: whether the store was closed; what needs no database asks it.
    """

    def __init__(
        self, where: str, marks: Marks, *, stem: bool = False, max_attempts: int = 5, images: Blobs | None = None
    ) -> None:
        self.where = where
        self.stem = stem
        self.max_attempts = max_attempts
        self.now_us: int | None = None
        self.marks = marks
        self.tapes: set[str] = set()
        self.frequencies = Frequencies()
        self.images = images
        self.images_joined = False
        self.closed = False

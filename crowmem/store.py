"""What the repositories of one open store share beside its driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crowmem.marks import Marks

if TYPE_CHECKING:
    from crowmem.blobs import Store as Blobs


@dataclass(slots=True)
class Store:
    """Settings of one open store.

    Attributes:
        where: the file's path or the server's URL without password, as errors and status show it.
        stem: whether the index holds word stems; fixed when the store was made.
        max_attempts: leases of one delivery before it is dead.
        now_us: stands in for the database's clock in tests of leases, microseconds since 1970; None: the clock itself.
        marks: where claims begin to look.
        images: where the bytes of images are; None leaves images in their messages.
        images_joined: whether the image store knows that this store uses it.
    """

    where: str
    stem: bool = False
    max_attempts: int = 5
    marks: Marks = field(default_factory=Marks, repr=False)
    images: Blobs | None = None
    images_joined: bool = False
    now_us: int | None = None

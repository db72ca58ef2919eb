"""Images in the folder beside a crow.db: read with the messages that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.blobs.keys import is_key
from crowmem.importers.items import Item, Mark
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.source import Head, Source


def sniff(head: Head) -> bool:
    """A file that is named by its content, in a folder of such beside a database."""
    path = head.path
    return is_key(path.name) and path.parent.name == "images" and any(path.parent.parent.glob("*.db"))


def read(source: Source) -> Iterator[Item]:
    """Nothing: the image comes in with the messages that name it."""
    source.passed["an image, read with the messages that name it"] += 1
    yield Mark(0, 0)


FORMAT = Format(name="crow-image", title="Images beside a crow.db", sniff=sniff, read=read)

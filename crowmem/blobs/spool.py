"""What a folder still owes to a bucket: one empty file, named by its key, for each blob that waits for its upload.

The blob itself is in the folder like any other, so that readers who know nothing of the spool find it. The note is
written before the blob and removed after the upload: a crash leaves at worst a note without a blob, which the next sync
removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.blobs.faults import file_errors
from crowmem.blobs.folders import flush_folder, make_folder, names_in
from crowmem.blobs.keys import is_key

if TYPE_CHECKING:
    from pathlib import Path


class Spool:
    """The notes of one folder.

    Args:
        folder: where the notes are; made with the first one.
    """

    def __init__(self, folder: Path) -> None:
        """Remember where; nothing is made yet."""
        self.folder = folder

    def add(self, key: str) -> None:
        """Note that a blob must be uploaded; durable on return."""
        path = self.folder / key
        with file_errors("write", path):
            try:
                path.touch(0o600)
            except FileNotFoundError:
                make_folder(self.folder)
                path.touch(0o600)
            flush_folder(self.folder)

    def remove(self, key: str) -> None:
        """Forget a note, if there is one."""
        path = self.folder / key
        with file_errors("delete", path):
            path.unlink(missing_ok=True)

    def waiting(self) -> list[str]:
        """The blobs that wait, sorted."""
        with file_errors("list", self.folder):
            try:
                return sorted(filter(is_key, names_in(self.folder)))
            except FileNotFoundError:
                return []

    def holds(self, key: str) -> bool:
        """Whether a blob waits."""
        return self.stamp(key) is not None

    def stamp(self, key: str) -> int | None:
        """When its note was last made, in nanoseconds since 1970; None when there is none."""
        with file_errors("look up", self.folder):
            try:
                return (self.folder / key).stat().st_mtime_ns
            except FileNotFoundError:
                return None

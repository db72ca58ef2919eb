"""Where a backup is written: beside its target, which appears only once the copy is whole."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from crowmem.blobs.folders import flush_folder
from crowmem.errors import Conflict
from crowmem.jsonl import file_errors

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}  # as some file systems answer a hard link


class Place(NamedTuple):
    """One backup under way.

    Attributes:
        target: the file it shall be.
        folder: a private one beside it; what a killed program leaves there is never taken for a backup.
        copy: the file to write, empty and only its owner's.
    """

    target: Path
    folder: Path
    copy: Path


def begin(target: Path) -> Place:
    """Make the place.

    Raises:
        Conflict: the target exists.
        NotFound: its folder does not; ReadOnly: no right to write there.
    """
    with file_errors(target):
        if os.path.lexists(target):
            raise _exists(target)
        folder = Path(tempfile.mkdtemp(prefix=".crowmem-backup-", dir=target.parent))
        copy = folder / "crow.db"
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    return Place(target, folder, copy)


def finish(place: Place) -> None:
    """Let the whole copy appear under its name, durably; never over a file that came meanwhile."""
    with file_errors(place.target):
        try:
            os.link(place.copy, place.target)
        except FileExistsError as error:
            raise _exists(place.target) from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(place.target):
                raise _exists(place.target) from error
            place.copy.rename(place.target)
        flush_folder(place.target.parent)


def clear(place: Place) -> None:
    """Remove the place with what is still in it."""
    shutil.rmtree(place.folder, ignore_errors=True)


def _exists(target: Path) -> Conflict:
    return Conflict(f"{target} exists already; name another file")

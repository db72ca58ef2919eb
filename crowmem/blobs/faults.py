"""Errors of the file system, told as crowmem's own."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from crowmem.errors import ConfigError, CrowmemError, ReadOnly, StoreFull, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_MISPLACED = {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}


def file_error(error: OSError, doing: str, path: Path) -> CrowmemError:
    """The crowmem error for an error of the file system.

    Args:
        error: what the system reported.
        doing: the verb, such as ``"write"``.
        path: the file or folder.
    """
    reason = error.strerror or type(error).__name__
    if error.errno in _FULL:
        return StoreFull(f"cannot {doing} {path}: {reason}; free some space, then try again")
    if error.errno in _DENIED:
        return ReadOnly(f"cannot {doing} {path}: {reason}; give this user the right, or take another folder")
    if error.errno in _MISPLACED:
        return ConfigError(f"cannot {doing} {path}: {reason}; a folder is needed, or a path where one can be made")
    return Unavailable(f"cannot {doing} {path}: {reason}")


@contextmanager
def file_errors(doing: str, path: Path) -> Iterator[None]:
    """Raise errors of the file system inside the block as crowmem's own."""
    try:
        yield
    except OSError as error:
        raise file_error(error, doing, path) from error

"""Folders that hold what must not be lost: made private, listed, flushed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from crowmem.errors import ConfigError


def folder_path(folder: str | os.PathLike[str], what: str = "the images folder") -> Path:
    """A folder as an absolute path, ``~`` expanded.

    Args:
        folder: the path.
        what: how errors call it.

    Raises:
        ConfigError: no path, empty, with a NUL, or the home of an unknown user.
    """
    text = os.fspath(folder) if isinstance(folder, os.PathLike) else folder
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"{what} is {text!r}, expected a path")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{what} is {text!r}: {error}") from error


def names_in(folder: Path) -> list[str]:
    """The names of all entries of a folder, without making a path object of each."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner may read, and flush its name into the parent."""
    missing = not folder.parent.is_dir()
    if missing:
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    flush_folder(folder.parent)


def flush_folder(folder: Path) -> None:
    """Make renames and removals in a folder survive power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some network mounts flush names by themselves
            raise
    finally:
        os.close(handle)

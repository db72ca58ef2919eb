"""Files on disk: which there are below some paths, and whether one is what it was when it was read last."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from crowmem.importers.items import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crowmem.importers.source import Source

PASSED_BY = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"}
"""Folders that hold no histories, and often a hundred thousand files."""

_EDGE = 64 * 1024  # bytes at either end of what was read that are fingerprinted


@dataclass(frozen=True, slots=True)
class Place:
    """A file as it was found."""

    path: str  # absolute
    size: int  # bytes
    modified_us: int


def find(paths: Iterable[str | os.PathLike[str]], own: str) -> tuple[list[Place], list[Skip]]:
    """The files at and below some paths, and the paths where there is nothing to read.

    Files of a folder come before those of its folders, each sorted, so that a session precedes its sub-agents.

    Args:
        paths: files and folders. Links to folders are followed only when they are named here.
        own: the memory's own file, which is passed over: opening it would drop the locks this process has on it.
    """
    found: dict[str, Place] = {}
    missing: list[Skip] = []
    for given in paths:
        path = Path(os.path.abspath(Path(given).expanduser()))  # noqa: PTH100  # links stay as they are named
        try:
            status = path.stat()
        except OSError as error:
            missing.append(Skip(str(path), 0, error.strerror or str(error)))
            continue
        for place in _below(path, missing) if path.is_dir() else [_place(str(path), status)]:
            if not _is_own(place.path, own):
                found.setdefault(place.path, place)
            elif str(path) == place.path:
                missing.append(Skip(place.path, 0, "this is the memory itself"))
    return list(found.values()), missing


def _below(top: Path, closed: list[Skip] | None = None) -> Iterator[Place]:
    """The files of a folder and its folders; those of them that cannot be listed go into ``closed``."""

    def failed(error: OSError) -> None:
        if closed is not None and not isinstance(error, FileNotFoundError):  # one deleted just now is none
            closed.append(Skip(os.fsdecode(error.filename), 0, error.strerror or str(error)))

    for folder, folders, names in os.walk(top, onerror=failed):
        folders[:] = sorted(name for name in folders if name not in PASSED_BY)
        for name in sorted(names):
            path = os.path.join(folder, name)  # noqa: PTH118  # a hundred thousand of them
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:  # a link to nothing, or a file deleted just now
                continue
            if os.path.isfile(path):  # noqa: PTH113  # no pipe or device, which reading would wait for
                yield _place(path, status)


def _alone(path: Path) -> list[Place]:
    try:
        return [_place(str(path), path.stat())]
    except OSError:
        return []


def _place(path: str, status: os.stat_result) -> Place:
    return Place(path, status.st_size, status.st_mtime_ns // 1000)


def _is_own(path: str, own: str) -> bool:
    """Whether a file is the memory's own, or one of those kept beside it: its log, its locks."""
    real = os.path.realpath(own)
    return any(
        found == name or found.startswith(f"{name}-")
        for found in (path, os.path.realpath(path))
        for name in (own, real)
    )


def fingerprint(source: Source, offset: int, companions: Iterable[Path]) -> str:
    """What tells whether the part of a file that was read is still the same: its length, its two ends, its companions.

    A change in the middle of an append-only file would go unseen; keys keep even that from doubling anything.
    """
    found = blake2b(digest_size=16)
    if offset:
        with source.open() as stream:
            found.update(stream.read(min(offset, _EDGE)))
            stream.seek(max(0, offset - _EDGE))
            found.update(stream.read(min(offset, _EDGE)))
    return f"{found.hexdigest()}{companions_stamp(companions)}"


def companions_stamp(companions: Iterable[Path]) -> str:
    """Number and newest change of files read together with a file; "" when there are none."""
    count = newest = 0
    for top in companions:
        for place in _below(top) if top.is_dir() else _alone(top):
            count += 1
            newest = max(newest, place.modified_us)
    return f"+{count}.{newest}" if count else ""

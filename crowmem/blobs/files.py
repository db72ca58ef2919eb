"""Blobs in a folder, one file each.

A blob is written beside its place, flushed, given its name and the folder flushed: after a crash it is there whole or
not at all, and what `put` returned from survives power loss. Reads verify the hash. Existence alone proves nothing,
since other programs write blobs in place: a `put` over an existing file compares its bytes, so that a damaged copy is
repaired.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from crowmem.blobs.faults import file_errors
from crowmem.blobs.folders import flush_folder, folder_path, make_folder, names_in
from crowmem.blobs.keys import check_blob, check_key, is_key, matches
from crowmem.errors import BlobDamaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

PAGE = 1000
LOOKS = 3  # for a blob: one that a collector moves aside and back meanwhile may be missed once
TRIES = 100  # of a put against others that write or remove the same blob
LEFTOVER_S = 3600.0  # a temporary file this old belongs to a writer that died
USERS = ".stores"
_TEMPORARY = ".tmp"
_HEX = frozenset("0123456789abcdef")
_FLAGS = os.O_CLOEXEC
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_GRAIN_NS = 1000  # marks are of whole microseconds, which most file systems keep
_COARSE_NS = 2_000_000_000  # and some only even seconds

T = TypeVar("T")


class Found(NamedTuple):
    """One blob of a survey; ``written_at`` is the store's clock in seconds since 1970, moved on by every put."""

    key: str
    written_at: float
    size: int


class FileStore:
    """Images as files of one folder, which is made on the first put.

    ``exact``: `discard` never removes what was put meanwhile.

    Args:
        folder: where; ``~`` expands. A folder made here is readable by its owner only.

    Raises:
        ConfigError: no usable path.
    """

    exact = True

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Remember where; nothing is made yet."""
        self.folder = folder_path(folder)
        self._base = f"{self.folder}{os.sep}"

    def __repr__(self) -> str:
        """The folder."""
        return f"FileStore({str(self.folder)!r})"

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under their key, durably.

        Args:
            key: ``<sha256hex>.<ext>``.
            data: the bytes of that hash.

        Raises:
            InvalidValue: no key, or bytes of another hash.
            StoreFull: no room; ReadOnly: no right to write; Unavailable: the disk failed. Nothing is left behind.
        """
        name = check_blob(key, data)
        with file_errors("write", self.folder):
            for _ in range(TRIES):  # again when a writer or a collector was faster
                there = self._refresh(name, data)
                if there or self._write(name, data, damaged=there is None):
                    break
            else:
                raise OSError(errno.EBUSY, f"{name} does not stay there", str(self.folder))
            flush_folder(self.folder)

    def get(self, key: str) -> bytes | None:
        """The bytes of a blob, or None when there is none.

        Raises:
            InvalidValue: no key.
            BlobDamaged: the file's bytes no longer match its name.
        """
        path = self.folder / check_key(key)
        with file_errors("read", path):
            try:
                data = self._wherever(key, _read)
            except OSError as error:
                if error.errno not in (errno.EISDIR, errno.ELOOP):
                    raise
                data = b""  # a folder in its place, or a link in a circle: nothing that can be read
        if data is None:
            return None
        if not matches(key, data):
            raise BlobDamaged(f"{path} is damaged: its {len(data):,} bytes do not match its name; put the image again")
        return data

    def exists(self, key: str) -> bool:
        """Whether there is a file of this key. Raises InvalidValue for what is no key."""
        path = self.folder / check_key(key)
        with file_errors("look up", path):
            return self._wherever(key, os.stat) is not None

    def delete(self, key: str) -> bool:
        """Remove a blob. Returns whether there was one. Raises InvalidValue for what is no key."""
        path = self.folder / check_key(key)
        with file_errors("delete", path):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def keys(self) -> list[str]:
        """All keys, sorted; other files of the folder are passed over."""
        with file_errors("list", self.folder):
            try:
                return sorted(filter(is_key, names_in(self.folder)))
            except FileNotFoundError:
                return []

    def survey(self) -> Iterator[list[Found]]:
        """All blobs by key, in pages of a thousand."""
        names = self.keys()
        for start in range(0, len(names), PAGE):
            with file_errors("list", self.folder):
                yield [found for name in names[start : start + PAGE] if (found := self.look(name)) is not None]

    def discard(self, key: str, before: float) -> bool:
        """Remove a blob that was last put before a moment, in seconds since 1970.

        A put of the same bytes at the same time is never lost: the file is moved aside first, so the put either finds
        it gone and writes it anew, or has touched it, and then it is moved back.

        Returns:
            whether it was removed.
        """
        path, aside = self.folder / check_key(key), self._aside(key)
        with file_errors("delete", path):
            found = self.look(key)
            if found is None or found.written_at >= before:
                return False  # so that what is in use is not moved
            with suppress(FileNotFoundError):  # another collector was faster
                path.rename(aside)
                if aside.stat().st_mtime < before:
                    aside.unlink()
                    return True
            self._move_back(aside, path)
            return False

    def tidy(self) -> int:
        """Clear up after writers that died more than an hour ago.

        Returns:
            how many temporary files went: a whole blob back to its place, anything else away.
        """
        cleared = 0
        with file_errors("tidy", self.folder):
            for name in self._temporary():
                key, path = name[1:].partition("-")[0], self.folder / name
                found = self.look(name)
                if found is None or found.written_at > time.time() - LEFTOVER_S:
                    continue
                with suppress(FileNotFoundError):  # a collector that lives: a blob it moved aside is as old as it was
                    if is_key(key) and matches(key, _read(str(path))):
                        self._move_back(path, self.folder / key)
                    else:
                        path.unlink()
                    cleared += 1
        return cleared

    def join(self, user: str) -> None:
        """Note that a database keeps images here; see `users`."""
        path = self.folder / USERS / user
        with file_errors("write", path):
            if not path.exists():
                make_folder(path.parent)
                path.touch(0o600)

    def users(self) -> list[str]:
        """The databases that keep images here: what one of them does not name, another may."""
        with file_errors("list", self.folder):
            try:
                return sorted(names_in(self.folder / USERS))
            except FileNotFoundError:
                return []

    def status(self) -> dict[str, str]:
        """What is in use, for `memory.status`."""
        return {"kind": "folder", "folder": str(self.folder)}

    def look(self, name: str) -> Found | None:
        """The age and size of a file of this folder, or None when there is none."""
        try:
            status = (self.folder / name).stat()
        except FileNotFoundError:
            return None
        return None if stat.S_ISDIR(status.st_mode) else Found(name, status.st_mtime, status.st_size)

    def _wherever(self, name: str, use: Callable[[str], T]) -> T | None:
        """Use a blob's file, also while a collector has moved it aside to look at its age; None when there is none."""
        for _ in range(LOOKS):
            with suppress(FileNotFoundError):
                return use(f"{self._base}{name}")
            try:
                aside = [found for found in names_in(self.folder) if found.startswith(f".{name}-")]
            except FileNotFoundError:
                return None
            for found in aside:
                with suppress(FileNotFoundError):
                    return use(f"{self._base}{found}")
        return None

    # The two below run on every put, and text paths cost a tenth of what path objects do.

    def _refresh(self, name: str, data: bytes) -> bool | None:
        """Whether the very bytes are there; they are then flushed, as their writer may not have, and marked as used.

        None: something else is, or what cannot be read or marked.
        """
        path = f"{self._base}{name}"
        try:
            with _opened(path) as file:
                if file.read(len(data) + 1) == data:
                    os.fsync(file.fileno())
                    _mark(file.fileno(), os.fstat(file.fileno()).st_mtime_ns)
                    # A collector that saw the old mark had moved the file aside before it looked: it is not here now.
                    return os.path.samestat(os.fstat(file.fileno()), os.stat(path))  # noqa: PTH116  # text path
        except FileNotFoundError:
            return None if os.path.islink(path) else False  # noqa: PTH114  # text path, as above
        except OSError:  # a bad sector, a link in a circle, no right to read, a file of another user
            return None
        return None

    def _write(self, name: str, data: bytes, *, damaged: bool) -> bool:
        """Write a blob; False when there is another file of its name by now than the damaged one.

        That one may have been marked as used since ours was, so ours must not take its place: a collector would go
        by the older mark and remove what the other writer's message is about to name.
        """
        aside = f"{self._base}.{os.urandom(8).hex()}{_TEMPORARY}"
        file = self._create(aside)
        try:
            try:
                written = os.write(file, data)
                while written < len(data):
                    written += os.write(file, memoryview(data)[written:])
                _mark(file)
                os.fsync(file)
            finally:
                os.close(file)
            return self._exchange(aside, name, data) if damaged else _place(aside, f"{self._base}{name}")
        except FileNotFoundError:  # it took so long, or the computer slept, that it was taken for a leftover
            return False
        finally:
            with suppress(FileNotFoundError):
                os.unlink(aside)  # noqa: PTH108  # text path, as above

    def _exchange(self, fresh: str, name: str, data: bytes) -> bool:
        """Put a whole file in the place of a damaged one; False when somebody has repaired that meanwhile.

        The old file goes last: one that merely could not be read just now may be the only copy.
        """
        path, old = self.folder / name, self._aside(name)
        if path.is_dir() and not path.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        try:
            path.rename(old)
        except FileNotFoundError:
            return False
        with suppress(OSError):
            if _read(str(old)) == data:
                _mark(str(old), old.stat().st_mtime_ns)  # refused for another user's, which ours then replaces
                self._move_back(old, path)
                return False
        placed = _place(fresh, str(path))
        old.unlink(missing_ok=True)
        return placed

    def _create(self, path: str) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        except FileNotFoundError:
            make_folder(self.folder)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)

    def _aside(self, name: str) -> Path:
        return self.folder / f".{name}-{os.urandom(8).hex()}{_TEMPORARY}"

    def _move_back(self, aside: Path, path: Path) -> None:
        with suppress(FileNotFoundError):  # somebody else has moved it back
            _place(str(aside), str(path))
            aside.unlink()

    def _temporary(self) -> list[str]:
        try:
            names = names_in(self.folder)
        except FileNotFoundError:
            return []
        return [name for name in names if _is_temporary(name)]


def _is_temporary(name: str) -> bool:
    """Whether a file is one of ours that is being written, or was moved aside."""
    if not name.startswith(".") or not name.endswith(_TEMPORARY):
        return False
    key, dash, mark = name[1 : -len(_TEMPORARY)].rpartition("-")
    return len(mark) == 16 and _HEX.issuperset(mark) and (is_key(key) if dash else True)


def _place(aside: str, path: str) -> bool:
    """Give a file its name, unless there is one of that name."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            return False
        _mark(aside)  # no hard links here: it may replace one that came this instant, with an older mark than that had
        os.replace(aside, path)  # noqa: PTH105  # text paths, as above
        try:
            _mark(path)
        except FileNotFoundError:  # a collector went by the older mark
            return False
    return True


def _mark(file: int | str, last_ns: int = 0) -> None:
    """Mark a blob as used now, and later than it was: the clocks of two machines differ, and one may be set back.

    The kernel's own stamp may be some milliseconds behind, and a collector compares.
    """
    grains = -(-max(time.time_ns(), last_ns + _GRAIN_NS) // _GRAIN_NS)
    mark = grains * _GRAIN_NS
    os.utime(file, ns=(mark, mark))
    if os.stat(file).st_mtime_ns < mark:  # noqa: PTH116  # a number or a text path
        os.utime(file, ns=(mark + _COARSE_NS, mark + _COARSE_NS))


def _opened(path: str | Path) -> BinaryIO:
    """A file to read from; a pipe that stands in a blob's place does not hold its reader for ever."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def _read(path: str) -> bytes:
    with _opened(path) as file:
        return file.read() or b""  # None: a pipe that nothing is in

"""Which files below some folders change: told by the kernel where it can (inotify), else found by looking.

Being told costs nothing while nothing happens. Looking asks for the state of every file, first each second, then less
and less often while nothing changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from crowmem.importers.files import PASSED_BY, find

if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE, _CLOSE_WRITE, _MODIFY, _MOVED_TO = 0x100, 0x8, 0x2, 0x80
_MASK = _CREATE | _CLOSE_WRITE | _MODIFY | _MOVED_TO
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_EVENT = struct.Struct("iIII")
_BUFFER = 64 * 1024
_LOOK_S = (1.0, 10.0)  # between two looks: at first, and at most


class Changes(Protocol):
    """What changes below some paths."""

    def wait(self, timeout_s: float) -> set[str] | None:
        """The files that changed since the last call; waits for one, until the time is up or `wake` is called.

        Returns:
            Paths, none when the time is up; None when everything has to be looked at.
        """

    def follow(self) -> None:
        """Follow also what has come unnoticed, such as a folder that was missing; before everything is looked at."""

    def wake(self) -> None:
        """Let `wait` return; may be called by another thread or a signal handler."""

    def close(self) -> None:
        """Give back what the kernel holds."""


def changes(paths: Iterable[str | os.PathLike[str]]) -> Changes:
    """Follow files and folders, by the kernel's word where possible."""
    tops = [os.path.abspath(Path(path).expanduser()) for path in paths]  # noqa: PTH100  # links stay as named
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return Told(tops)
    return Looked(tops)


class _Waking:
    """A pipe that ends a wait."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self._write_end, False)

    def wake(self) -> None:
        """Let the wait end; a full pipe will do so anyway."""
        with contextlib.suppress(OSError):
            os.write(self._write_end, b"!")

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self.read_end, 64):
                pass

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self._write_end)


class Told:
    """Changes as the kernel tells them."""

    def __init__(self, tops: list[str]) -> None:
        """Watch every folder.

        Raises:
            OSError: the kernel does not, or not so many.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._waking = _Waking()
        self._tops = tops
        self._folders: dict[int, str] = {}
        self._single: set[str] = set()  # files named by themselves; their folders are watched for them alone
        self._wanted: set[str] = set()  # folders whose files all count
        try:
            for top in tops:
                self._watch(top)
        except OSError:
            self.close()
            raise

    def _watch(self, top: str) -> list[str]:
        """Watch a folder and all below it; the files that are in them."""
        if os.path.isfile(top):  # noqa: PTH113
            self._single.add(top)
            self._add(os.path.dirname(top))  # noqa: PTH120
            return [top]
        files: list[str] = []
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name not in PASSED_BY]
            self._wanted.add(folder)
            self._add(folder)
            files += [os.path.join(folder, name) for name in names]  # noqa: PTH118
        return files

    def _add(self, folder: str) -> None:
        number = self._libc.inotify_add_watch(self._file, os.fsencode(folder), _MASK)
        if number >= 0:
            self._folders[number] = folder
        elif ctypes.get_errno() not in (2, 13, 20):  # gone meanwhile, closed to us, or no folder
            raise OSError(ctypes.get_errno(), f"inotify_add_watch {folder}")

    def follow(self) -> None:
        """As `Changes.follow`; where the kernel gives no more watches, `wait` does not tell."""
        for top in self._tops:
            with contextlib.suppress(OSError):
                self._watch(top)

    def wait(self, timeout_s: float) -> set[str] | None:
        """As `Changes.wait`."""
        ready, _, _ = select.select([self._file, self._waking.read_end], [], [], timeout_s)
        if self._waking.read_end in ready:
            self._waking.drain()
        return self._read() if self._file in ready else set()

    def _read(self) -> set[str] | None:
        found: set[str] = set()
        complete = True
        while True:
            try:
                data = os.read(self._file, _BUFFER)
            except BlockingIOError:
                return found if complete else None
            at = 0
            while at < len(data):
                number, mask, _cookie, length = _EVENT.unpack_from(data, at)
                name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                at += _EVENT.size + length
                complete = self._event(number, mask, name, found) and complete

    def _event(self, number: int, mask: int, name: str, found: set[str]) -> bool:
        """Take one event; False when some were lost."""
        if mask & _IGNORED:
            self._folders.pop(number, None)
            return True
        folder = self._folders.get(number)
        if mask & _OVERFLOW or folder is None:
            return not mask & _OVERFLOW
        path = os.path.join(folder, name)  # noqa: PTH118
        if mask & _IS_FOLDER:
            if folder not in self._wanted or name in PASSED_BY:
                return True
            try:
                found.update(self._watch(path))  # what was written into it before it was watched
            except OSError:
                return False
        elif folder in self._wanted or path in self._single:
            found.add(path)
        return True

    def wake(self) -> None:
        """As `Changes.wake`."""
        self._waking.wake()

    def close(self) -> None:
        """As `Changes.close`."""
        os.close(self._file)
        self._waking.close()


class Looked:
    """Changes as a look at all files finds them."""

    def __init__(self, tops: list[str]) -> None:
        self._tops = tops
        self._waking = _Waking()
        self._known = self._look()
        self._pause_s = _LOOK_S[0]

    def _look(self) -> dict[str, tuple[int, int]]:
        places, _missing = find(self._tops, "")
        return {place.path: (place.size, place.modified_us) for place in places}

    def wait(self, timeout_s: float) -> set[str] | None:
        """As `Changes.wait`."""
        until = time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._waking.read_end], [], [], min(left, self._pause_s))
            if ready:
                self._waking.drain()
                return set()
            now = self._look()
            changed = {path for path, state in now.items() if self._known.get(path) != state}
            self._known = now
            if changed:
                self._pause_s = _LOOK_S[0]
                return changed
            self._pause_s = min(self._pause_s * 1.5, _LOOK_S[1])
        return set()

    def follow(self) -> None:
        """As `Changes.follow`: a look misses nothing."""

    def wake(self) -> None:
        """As `Changes.wake`."""
        self._waking.wake()

    def close(self) -> None:
        """As `Changes.close`."""
        self._waking.close()

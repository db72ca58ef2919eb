"""Tapes as files: one entry a line, read and written without changing a byte of an entry."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowmem.entries import PART_CHARACTERS, PART_ENTRIES, Batch
from crowmem.errors import InvalidValue, NotFound, ReadOnly, StoreFull, Unavailable
from crowmem.values import MESSAGE_BYTES, check_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

_BOM = b"\xef\xbb\xbf"


class EntryReader:
    """Reads the entries of a file, a batch at a time; blank lines are passed over.

    Args:
        path: the file. A leading ``~`` is the home folder.

    Raises:
        NotFound: there is no such file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._number = 0
        with file_errors(self.path):
            self._file: BinaryIO = self.path.open("rb")

    def batch(self) -> Batch:
        """The next entries; none at the end.

        Raises:
            InvalidValue: a line is no JSON object that can be stored; the error names file and line.
        """
        found, size = Batch(), 0
        with file_errors(self.path):
            while size < PART_CHARACTERS and len(found.texts) < PART_ENTRIES and (line := self._line()):
                self._number += 1
                if not line.strip():
                    continue
                text = self._text(line.removesuffix(b"\n"))
                found.add(text, self._parsed(text))
                size += len(text)
        return found

    def _line(self) -> bytes:
        line = self._file.readline(MESSAGE_BYTES + 2)
        if len(line) > MESSAGE_BYTES + 1:
            raise InvalidValue(f"{self._place(1)} is longer than {MESSAGE_BYTES:,} bytes: split the entry")
        return line.removeprefix(_BOM) or b"\n" if self._number == 0 and line.startswith(_BOM) else line

    def _text(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(
                f"{self._place()} is not UTF-8 at byte {error.start + 1}: convert the file, or cut the line"
            ) from None

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            entry = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            told = f"{error}"[:120] if isinstance(error, ValueError) else "nested too deep"
            raise InvalidValue(f"{self._place()} is not JSON ({told}): mend or cut the line") from None
        check_object(entry, self._place())
        return entry  # type: ignore[no-any-return]

    def _place(self, further: int = 0) -> str:
        return f"{self.path}:{self._number + further}"

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class EntryWriter:
    """Writes entries to a new file beside its place, and puts it there once it is whole and durable.

    Args:
        path: the file; an existing one is replaced at the end. A leading ``~`` is the home folder.

    Raises:
        InvalidValue: a folder, a device or a pipe is there: root could replace those too, ``/dev/null`` with a file.
        NotFound: there is no such folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        with file_errors(self.path):
            if self.path.exists() and not self.path.is_file():
                raise InvalidValue(f"{self.path} is no file: name one, or a path where there is nothing yet")
            handle, name = tempfile.mkstemp(prefix=f".{self.path.name[:100]}.", dir=self.path.parent)
        self._aside = Path(name)
        self._file: BinaryIO = os.fdopen(handle, "wb")

    def write(self, texts: Sequence[str]) -> None:
        """Write the next entries."""
        with file_errors(self.path):
            self._file.write("".join(f"{text}\n" for text in texts).encode())

    def finish(self) -> None:
        """Put the file in its place."""
        with file_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._aside.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def close(self) -> None:
        """Remove what was not finished; after `finish` there is nothing to do."""
        self._file.close()
        self._aside.unlink(missing_ok=True)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """A block that works on a file of the user's, whose failures are told as errors of ours with its path."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{path}: there is no such file or folder") from error
    except IsADirectoryError as error:
        raise InvalidValue(f"{path} is a folder: name a file") from error
    except PermissionError as error:
        raise ReadOnly(f"{path}: {error.strerror}; choose another file, or change its mode") from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise InvalidValue(f"{path}: {error.strerror}; name another file") from error
        full = error.errno in (28, 122)  # ENOSPC, EDQUOT
        raise (StoreFull if full else Unavailable)(f"{path}: {error.strerror or error}") from error

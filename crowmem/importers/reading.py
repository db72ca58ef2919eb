"""One file on its way into a store: recognised, and read from where it was left.

Everything here is work without a database, so that another process can do it.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from crowmem.content import title
from crowmem.importers import FORMATS, MAIN, Mark, SessionFacts, Skip, Source, StoreRow, Turn, recognise
from crowmem.importers.files import Place, companions_stamp, fingerprint
from crowmem.importers.guard import ODD
from crowmem.importers.rows import plain
from crowmem.importers.wrappers import bare
from crowmem.repositories.imports import ImportFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.places import Format
    from crowmem.records import ImportSource

BY_NAME = {form.name: form for form in FORMATS}
_UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, *ODD)


@dataclass(frozen=True, slots=True)
class Job:
    """A file to be read."""

    place: Place
    before: ImportSource | None  # what is known of it

    @property
    def to_read(self) -> int:
        """How many bytes of it are new."""
        return self.place.size - (self.before.offset_bytes if self.before else 0)


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a file was read; true once the turns before it are stored. Columns of `ImportSource`."""

    columns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """How many bytes of a file have been read."""

    read: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A file has been read: by which format, "" for none; what it had that is no message."""

    form: str = ""
    passed: dict[str, int] = field(default_factory=dict)


Piece: TypeAlias = Turn | ImportFacts | StoreRow | Skip | Progressed | Told | Finished

_TELL = 256  # messages between two words about how far a file was read


def is_unchanged(place: Place, before: ImportSource | None) -> bool:
    """Whether a file is as it was when it was read last, by its size and time."""
    form = BY_NAME.get(before.format) if before else None
    if before is None or form is None:
        return False
    stamp = companions_stamp(form.companions(Path(place.path)))
    same = before.size_bytes == place.size and before.modified_us == place.modified_us
    return same and before.fingerprint.partition("+")[2] == stamp.removeprefix("+")


def read_file(job: Job) -> Iterator[Piece]:
    """The pieces of one file; the last one is `Finished`."""
    reader = _Reader(job)
    try:
        yield from reader.pieces()
    except _UNREADABLE as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or f"{type(error).__name__}: {str(error)[:120]}"
        yield Skip(job.place.path, 0, reason)
    yield reader.finished()


class _Reader:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._place = job.place
        self._source = Source(Path(job.place.path))
        self._form: Format | None = None
        self._seen: set[str] = set()  # sessions
        self._opened: set[str] = set()  # sessions whose first prompt has been seen

    def pieces(self) -> Iterator[Piece]:
        """What the file holds."""
        form = self._form = self._goes_on() or recognise(self._source.path, self._source)
        if form is None:
            return
        for number, item in enumerate(form.read(self._source)):
            if isinstance(item, Turn):
                yield from self._turn(item, form)
                if number % _TELL == 0:
                    yield Told(self._source.offset)
            elif isinstance(item, SessionFacts):
                yield self._facts(form, item.session_id, item.git_branch, title=_line(item.title), parent=item.parent)
            elif isinstance(item, Mark):
                yield self._mark(form, item)
            else:
                yield item

    def finished(self) -> Finished:
        """The last word."""
        return Finished(self._form.name, dict(self._source.passed)) if self._form else Finished()

    def _goes_on(self) -> Format | None:
        """The format of a file whose beginning is what was read of it: then reading goes on behind that."""
        before = self._job.before
        if before is None or before.format not in BY_NAME:
            return None
        source = self._source
        source.former = json.loads(before.state)
        if not before.offset_bytes or before.offset_bytes > self._place.size:
            return None
        if fingerprint(source, before.offset_bytes, ()) != before.fingerprint.partition("+")[0]:
            return None
        source.offset, source.line, source.state = before.offset_bytes, before.lines, source.former
        self._seen |= {before.session_id} - {""}
        return BY_NAME[before.format]

    def _turn(self, turn: Turn, form: Format) -> Iterator[Piece]:
        yield turn
        session = plain(turn.session_id)
        first = session not in self._seen
        prompt = session not in self._opened and turn.agent == MAIN and not turn.injected
        prompt = prompt and turn.message.get("role") == "user"
        if first or prompt:
            self._seen.add(session)
            opening = ""
            if prompt:
                self._opened.add(session)
                opening = _line(turn.message.get("content"))
            yield self._facts(form, session, turn.git_branch, opening=opening)

    def _facts(self, form: Format, session: str, branch: str, **more: str) -> ImportFacts:
        parent = plain(more.pop("parent", ""))
        return ImportFacts(
            plain(session), form.name, plain(self._place.path), git_branch=plain(branch), parent=parent, **more
        )

    def _mark(self, form: Format, mark: Mark) -> Progressed:
        return Progressed(
            {
                "path": plain(self._place.path),
                "format": form.name,
                "session_id": next(iter(self._seen)) if len(self._seen) == 1 else "",
                "size_bytes": self._place.size,
                "modified_us": self._place.modified_us,
                "offset_bytes": mark.offset,
                "lines": mark.line,
                "state": json.dumps(self._source.state, ensure_ascii=True),
                "fingerprint": fingerprint(self._source, mark.offset, form.companions(self._source.path)),
            }
        )


def _line(content: Any) -> str:
    """What a title is made of: one line, a slash command as it was typed."""
    text = " ".join(bare(content).split()) if isinstance(content, str) else content
    return title({"content": text}) or ""

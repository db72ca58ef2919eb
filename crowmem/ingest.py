"""Import: other programs' histories into a memory, each message once, whatever file brings it and however often.

Files are read as streams and added in batches; a batch and the note how far its files were read are one transaction. A
message is known by the keys its parser gives it, so a second import adds nothing, a file that has grown adds what is
new, and a run that was killed goes on where it stopped. New messages are indexed before the next search.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowmem.content import title as title_of
from crowmem.errors import InvalidValue
from crowmem.importers import FORMATS, MAIN, Mark, SessionFacts, Skip, Source, StoreRow, Turn, recognise
from crowmem.importers.files import Place, companions_stamp, find, fingerprint
from crowmem.importers.rows import import_row, modified_text, plain
from crowmem.importers.taking import Taking
from crowmem.importers.wrappers import bare
from crowmem.repositories.imports import ImportFacts, ImportRow

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from crowmem.importers.places import Format
    from crowmem.memory import Memory
    from crowmem.records import ImportSource

    Progress: TypeAlias = Callable[["ImportProgress"], None]

BATCH_ROWS = 2000
BATCH_CHARACTERS = 8 * 1024 * 1024
SKIPS_KEPT = 1000  # of the skips of one run; the others are counted
_TELL = 256  # messages between two reports of progress
_BY_NAME = {found.name: found for found in FORMATS}


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How far a run is; ``path`` is the file being read, "" at the end."""

    path: str
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    messages_added: int


@dataclass(slots=True)
class ImportReport:
    """What a run did.

    Attributes:
        files: files that were read, in whole or from where they were left.
        unchanged: files that have not changed since they were read.
        unrecognised: files that are no histories known here.
        sessions: sessions that got messages.
        messages_added: messages that are new.
        messages_grown: messages that had grown and were replaced.
        messages_known: messages that were there already.
        skipped: parts of files that could not be read.
        skips: the first 1,000 of them, with file, line and reason.
        passed: records known and left out, by format and kind.
        formats: files read, by format.
    """

    files: int = 0
    unchanged: int = 0
    unrecognised: list[str] = field(default_factory=list)
    sessions: int = 0
    messages_added: int = 0
    messages_grown: int = 0
    messages_known: int = 0
    skipped: int = 0
    skips: list[Skip] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)

    def skip(self, skip: Skip) -> None:
        """Note a part of a file that could not be read."""
        self.skipped += 1
        if len(self.skips) < SKIPS_KEPT:
            self.skips.append(skip)


def import_paths(
    memory: Memory, paths: Iterable[str | os.PathLike[str]], *, progress: Progress | None = None
) -> ImportReport:
    """Import files, and all files of folders.

    Args:
        memory: an open store.
        paths: files and folders; a folder is walked, its links to other folders are not followed.
        progress: called for each file, and now and then within it.

    Returns:
        What was done. Files that are no histories, and parts that could not be read, are listed in it and not raised.

    Raises:
        ReadOnly: the store was opened for reading.
        Unavailable: the store failed, as any of its errors; what was added stays, and the next run goes on from there.
    """
    places, missing = find(paths, memory._store.where)
    run = _Run(memory, places, progress)
    for skip in missing:
        run.report.skip(skip)
    for place in places:
        run.file(place)
    run.finish()
    return run.report


class _Run:
    """One run: reads files into batches, and adds these."""

    def __init__(self, memory: Memory, places: list[Place], progress: Progress | None) -> None:
        self.report = ImportReport()
        self.images = memory._store.images is not None
        self.imports = memory.imports
        self._progress = progress
        self._files_total = len(places)
        self._bytes_total = sum(place.size for place in places)
        self._files_done = self._bytes_done = 0
        self._rows: list[ImportRow] = []
        self._characters = 0
        self._sources: dict[str, dict[str, Any]] = {}  # marks of this batch, by path
        self._facts: dict[str, ImportFacts] = {}  # of this batch, by session
        self._sessions: set[str] = set()  # that have rows in this run
        self._changed: set[str] = set()  # those that got messages

    def file(self, place: Place) -> None:
        """Read one file."""
        self._tell(place.path)
        try:
            self._read(place)
        except OSError as error:
            self.report.skip(Skip(place.path, 0, error.strerror or str(error)))
        self._files_done += 1
        self._bytes_done += place.size

    def finish(self) -> None:
        """Add what is left."""
        self.flush()
        self.report.sessions = len(self._changed)
        self._tell("")

    def _read(self, place: Place) -> None:
        path = Path(place.path)
        before = self.imports.source(plain(place.path))
        known = _BY_NAME.get(before.format) if before else None
        if before and known and _is_unchanged(before, place, companions_stamp(known.companions(path))):
            self.report.unchanged += 1
            return
        source, form = Source(path), known
        if before is None or known is None or not _goes_on(before, place, source):
            form = recognise(path)
        if form is None:
            self.report.unrecognised.append(place.path)
            return
        self.report.files += 1
        self.report.formats[form.name] += 1
        _FileReader(self, place, source, form).read()
        for kind, count in source.passed.items():
            self.report.passed[f"{form.name}: {kind}"] += count

    def row(self, row: ImportRow) -> None:
        """Take one message; a full batch is added."""
        self._rows.append(row)
        self._characters += len(row.columns["data"]) + sum(map(len, row.blobs.values()))
        if len(self._rows) >= BATCH_ROWS or self._characters >= BATCH_CHARACTERS:
            self.flush()

    def mark(self, columns: dict[str, Any]) -> None:
        """Note how far a file was read; true once the rows so far are added."""
        self._sources[columns["path"]] = columns

    def fact(self, fact: ImportFacts) -> None:
        """Note something about a session; what is empty does not replace what is known."""
        had = self._facts.get(fact.session_id, fact)
        self._facts[fact.session_id] = replace(
            had,
            title=fact.title or had.title,
            opening=had.opening or fact.opening,
            git_branch=fact.git_branch or had.git_branch,
            parent=fact.parent or had.parent,
        )

    def tell(self, path: str, read: int) -> None:
        """Report progress within a file."""
        self._tell(path, read)

    def _tell(self, path: str, read: int = 0) -> None:
        if self._progress is not None:
            done = min(self._bytes_done + read, self._bytes_total)
            added = self.report.messages_added
            self._progress(ImportProgress(path, self._files_done, self._files_total, done, self._bytes_total, added))

    def flush(self) -> None:
        """Add what was taken so far."""
        rows = self._rows
        self._sessions |= {row.session_id for row in rows}
        facts = [fact for fact in self._facts.values() if self._is_there(fact.session_id)]
        if not rows and not facts and not self._sources:
            return
        added = self.imports.add(rows, facts, list(self._sources.values()))
        self.report.messages_added += added.added
        self.report.messages_grown += added.grown
        self.report.messages_known += added.known
        self._changed |= added.sessions
        for fact in facts:
            del self._facts[fact.session_id]
        self._rows, self._characters = [], 0
        self._sources.clear()

    def _is_there(self, session_id: str) -> bool:
        """Whether a session has messages: facts of one that has none make no session."""
        return session_id in self._sessions or self.imports.session(session_id) is not None


class _FileReader:
    """One file on its way into a run."""

    def __init__(self, run: _Run, place: Place, source: Source, form: Format) -> None:
        self._run = run
        self._place = place
        self._source = source
        self._form = form
        self._time: Any = modified_text(place.modified_us)  # stands for times that a source does not say
        self._taking: Taking | None = None

    def read(self) -> None:
        """Hand the file's items on."""
        seen: set[str] = set()
        opened: set[str] = set()
        for number, item in enumerate(self._form.read(self._source)):
            if isinstance(item, Turn):
                self._turn(item, seen, opened)
                if number % _TELL == 0:
                    self._run.tell(self._place.path, self._source.offset)
            elif isinstance(item, Skip):
                self._run.report.skip(item)
            elif isinstance(item, SessionFacts):
                self._facts(item)
            elif isinstance(item, StoreRow):
                self._take(item)
            else:
                if self._taking is not None:
                    self._run.flush()
                    self._taking.end()
                self._mark(item, next(iter(seen)) if len(seen) == 1 else "")

    def _take(self, row: StoreRow) -> None:
        """A row of a store like ours."""
        if self._taking is None:
            self._run.flush()
            self._taking = Taking(self._run.imports, self._source.path, images=self._run.images)
        found = self._taking.row(row)
        if isinstance(found, Skip):
            self._run.report.skip(found)
        elif found is not None:
            self._run.row(found)
            self._run.fact(
                ImportFacts(
                    found.session_id, self._form.name, plain(self._place.path), opening=self._taking.title(found)
                )
            )

    def _turn(self, turn: Turn, seen: set[str], opened: set[str]) -> None:
        message = turn.message
        if turn.created_at is not None:
            self._time = turn.created_at
        try:
            row = import_row(turn, self._time, images=self._run.images)
        except InvalidValue as error:
            self._run.report.skip(Skip(self._place.path, turn.line, str(error)))
            return
        self._run.row(row)
        session = row.session_id
        if session not in seen:
            seen.add(session)
            self._run.fact(
                ImportFacts(session, self._form.name, plain(self._place.path), git_branch=plain(turn.git_branch))
            )
        if session not in opened and row.agent == MAIN and message.get("role") == "user" and not turn.injected:
            opened.add(session)
            content = message.get("content")
            text = bare(content) if isinstance(content, str) else content
            opening = title_of({"content": " ".join(text.split()) if isinstance(text, str) else text})
            self._run.fact(ImportFacts(session, self._form.name, plain(self._place.path), opening=opening or ""))

    def _facts(self, facts: SessionFacts) -> None:
        self._run.fact(
            ImportFacts(
                plain(facts.session_id),
                self._form.name,
                plain(self._place.path),
                title=title_of({"content": facts.title}) or "",
                git_branch=plain(facts.git_branch),
                parent=plain(facts.parent),
            )
        )

    def _mark(self, mark: Mark, session: str) -> None:
        offset = mark.offset
        companions = self._form.companions(self._source.path)
        self._run.mark(
            {
                "path": plain(self._place.path),
                "format": self._form.name,
                "session_id": session,
                "size_bytes": self._place.size,
                "modified_us": self._place.modified_us,
                "offset_bytes": offset,
                "lines": mark.line,
                "state": json.dumps(self._source.state, ensure_ascii=True),
                "fingerprint": fingerprint(self._source, offset, companions),
            }
        )


def _is_unchanged(before: ImportSource, place: Place, stamp: str) -> bool:
    same = before.size_bytes == place.size and before.modified_us == place.modified_us
    return same and before.fingerprint.partition("+")[2] == stamp.removeprefix("+")


def _goes_on(before: ImportSource, place: Place, source: Source) -> bool:
    """Whether what was read of a file is still its beginning; if so the source goes on from there."""
    source.former = json.loads(before.state)
    if not before.offset_bytes or before.offset_bytes > place.size:
        return False
    if fingerprint(source, before.offset_bytes, ()) != before.fingerprint.partition("+")[0]:
        return False
    source.offset, source.line, source.state = before.offset_bytes, before.lines, source.former
    return True

"""Import: other programs' histories into a memory, each message once, whatever file brings it and however often.

Files are read as streams and added in batches; a batch and the note how far its files were read are one transaction. A
message is known by the keys its parser gives it, so a second import adds nothing, a file that has grown adds what is
new, and a run that was killed goes on where it stopped. New messages are indexed before the next search.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowmem.errors import InvalidValue
from crowmem.importers import Skip, StoreRow, Turn
from crowmem.importers.ahead import Ahead, WorkerLost
from crowmem.importers.files import find
from crowmem.importers.reading import Job, Progressed, Told, is_unchanged, read_file
from crowmem.importers.rows import import_row, modified_text, plain
from crowmem.importers.taking import Taking
from crowmem.repositories.imports import ImportFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime
    from typing import TypeAlias

    from crowmem.importers.files import Place
    from crowmem.importers.reading import Finished, Piece
    from crowmem.memory import Memory
    from crowmem.repositories.imports import ImportRow

    Progress: TypeAlias = Callable[["ImportProgress"], None]

BATCH_ROWS = 2000
BATCH_CHARACTERS = 8 * 1024 * 1024
SKIPS_KEPT = 1000  # of the skips of one run; the others are counted
AHEAD_BYTES = 16 * 1024 * 1024  # to be read in one run, from which on another process is worth its start
OWN_BYTES = 4 * 1024 * 1024  # of that, read here while it starts
AHEAD = 1000  # files it may be asked for before the first is taken, and that are worth its start, whatever their size


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
    _whole: set[str] = field(default_factory=set, repr=False)

    def skip(self, skip: Skip) -> None:
        """Note a part of a file that could not be read."""
        self.skipped += 1
        if skip.line == 0:
            self._whole.add(skip.path)
        if len(self.skips) < SKIPS_KEPT:
            self.skips.append(skip)

    def leave_out_gone(self, named: Collection[str]) -> None:
        """Forget files that were found, but are not there any more: tools write beside and rename."""
        gone = [one for one in self.skips if one.line == 0 and one.path not in named and not os.path.lexists(one.path)]
        self.skips = [one for one in self.skips if one not in gone]
        self.skipped -= len(gone)

    def is_skipped(self, path: str) -> bool:
        """Whether a file could not be read at all."""
        return path in self._whole


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
    with closing(_Reading()) as reader:
        for place, pieces in reader.files(_jobs(run, places)):
            run.file(place, pieces)
    run.finish()
    return run.report


def _jobs(run: _Run, places: list[Place]) -> Iterator[Job]:
    """The files that have to be read, each asked for when its turn comes."""
    for place in places:
        before = run.imports.source(plain(place.path))
        if is_unchanged(place, before):
            run.pass_over(place)
        else:
            yield Job(place, before)


class _Run:
    """One run: takes the pieces of files, and adds them in batches."""

    def __init__(self, memory: Memory, places: list[Place], progress: Progress | None) -> None:
        self.report = ImportReport()
        self._images = memory._store.images is not None
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

    def pass_over(self, place: Place) -> None:
        """Note a file that has not changed."""
        self.report.unchanged += 1
        self._done(place)

    def file(self, place: Place, pieces: Iterable[Piece]) -> None:
        """Take one file."""
        self._tell(place.path)
        taking: Taking | None = None
        time: datetime | str = modified_text(place.modified_us)  # stands for times that a source does not say
        for piece in pieces:
            if isinstance(piece, Turn):
                time = piece.created_at or time
                self._turn(place.path, piece, time)
            elif isinstance(piece, ImportFacts):
                self._fact(piece)
            elif isinstance(piece, Skip):
                self.report.skip(piece)
            elif isinstance(piece, Told):
                self._tell(place.path, piece.read)
            elif isinstance(piece, StoreRow):
                taking = taking or self._begin(place)
                self._take(taking, piece)
            elif isinstance(piece, Progressed):
                if taking is not None:
                    self._flush()
                    taking.end()
                self._sources[piece.columns["path"]] = piece.columns
            else:
                self._finished(place, piece)
        self._done(place)

    def finish(self) -> None:
        """Add what is left."""
        self._flush()
        self.report.sessions = len(self._changed)
        self._tell("")

    def _done(self, place: Place) -> None:
        self._files_done += 1
        self._bytes_done += place.size

    def _finished(self, place: Place, piece: Finished) -> None:
        if not piece.form:
            if not self.report.is_skipped(place.path):
                self.report.unrecognised.append(place.path)
            return
        self.report.files += 1
        self.report.formats[piece.form] += 1
        for kind, count in piece.passed.items():
            self.report.passed[f"{piece.form}: {kind}"] += count

    def _begin(self, place: Place) -> Taking:
        self._flush()
        return Taking(self.imports, Path(place.path), images=self._images)

    def _take(self, taking: Taking, row: StoreRow) -> None:
        """A row of a store like ours."""
        for made in taking.row(row):
            if isinstance(made, Skip):
                self.report.skip(made)
            elif isinstance(made, ImportFacts):
                self._fact(made)
            else:
                self._row(made)

    def _turn(self, path: str, turn: Turn, time: datetime | str) -> None:
        """Take one message as its parser gave it."""
        try:
            row = import_row(turn, time, images=self._images)
        except InvalidValue as error:
            self.report.skip(Skip(path, turn.line, str(error)))
        else:
            self._row(row)

    def _row(self, row: ImportRow) -> None:
        """Take one message; a full batch is added."""
        self._rows.append(row)
        self._characters += len(row.columns["data"]) + sum(map(len, row.blobs.values()))
        if len(self._rows) >= BATCH_ROWS or self._characters >= BATCH_CHARACTERS:
            self._flush()

    def _fact(self, fact: ImportFacts) -> None:
        """Note something about a session; what is empty does not replace what is known."""
        had = self._facts.get(fact.session_id, fact)
        self._facts[fact.session_id] = replace(
            had,
            title=fact.title or had.title,
            opening=had.opening or fact.opening,
            git_branch=fact.git_branch or had.git_branch,
            parent=fact.parent or had.parent,
        )

    def _tell(self, path: str, read: int = 0) -> None:
        if self._progress is not None:
            done = min(self._bytes_done + read, self._bytes_total)
            added = self.report.messages_added
            self._progress(ImportProgress(path, self._files_done, self._files_total, done, self._bytes_total, added))

    def _flush(self) -> None:
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


class _Reading:
    """Reads files: in this process, and where there is much to read, in another one as well, some ahead."""

    def __init__(self) -> None:
        self._ahead: Ahead | None = None

    def files(self, jobs: Iterator[Job]) -> Iterator[tuple[Place, Iterator[Piece]]]:
        """Each file with its pieces."""
        own = self._few(jobs)
        waiting: deque[Job] = deque()
        if self._ahead is not None:
            own, theirs = _parted(own)
            jobs = chain(theirs, jobs)
            self._submit(jobs, waiting)
            for job in own:  # while the other process starts
                yield job.place, read_file(job)
        else:
            jobs = chain(own, jobs)
        while waiting:
            job = waiting.popleft()
            self._submit(jobs, waiting)
            yield job.place, self._pieces(job)
        for job in jobs:
            yield job.place, read_file(job)

    def close(self) -> None:
        """End the other process."""
        if self._ahead is not None:
            self._ahead.close()

    def _few(self, jobs: Iterator[Job]) -> list[Job]:
        """The first jobs: all, or as many as are worth another process, which is started then."""
        found: list[Job] = []
        to_read = 0
        for job in jobs:
            found.append(job)
            to_read += job.to_read
            if to_read >= AHEAD_BYTES or len(found) >= AHEAD:
                if (os.cpu_count() or 1) > 1:
                    with suppress(OSError):  # no process to be had: this one can do it, too
                        self._ahead = Ahead()
                break
        return found

    def _submit(self, jobs: Iterator[Job], waiting: deque[Job]) -> None:
        if self._ahead is not None:
            for job in islice(jobs, AHEAD - len(waiting)):
                self._ahead.submit(job)
                waiting.append(job)

    def _pieces(self, job: Job) -> Iterator[Piece]:
        skips = 0  # that were told already
        if self._ahead is not None:
            try:
                for piece in self._ahead.pieces():
                    skips += isinstance(piece, Skip)
                    yield piece
            except WorkerLost:
                self._ahead.close()
                self._ahead = None
            else:
                return
        for piece in read_file(job):  # rows that came of it already are known by their keys
            if isinstance(piece, Skip) and skips:
                skips -= 1
            else:
                yield piece


def _parted(jobs: list[Job]) -> tuple[list[Job], list[Job]]:
    """The jobs to be done here while the other process starts, and the rest of them."""
    to_read = 0
    for number, job in enumerate(jobs):
        to_read += job.to_read
        if to_read > OWN_BYTES:
            return jobs[:number], jobs[number:]
    return jobs, []

"""``crowmem import``."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from crowmem.commands import FAILED, OK, UsageError, opened
from crowmem.commands.output import counted, local_time, put_json, put_line, put_note
from crowmem.progress import Progress
from crowmem.terminal import Paint, columns_of, one_line, table

if TYPE_CHECKING:
    import argparse

    from crowmem.errors import CrowmemError
    from crowmem.ingest import ImportProgress, ImportReport
    from crowmem.memory import Memory

SHOWN = 20  # skips and unrecognised files in the table; --json has more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to import."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, and folders, whose files are all looked at")
    parser.add_argument(
        "--discover", action="store_true", help="import your own histories, wherever their tools keep them"
    )
    parser.add_argument("--watch", action="store_true", help="go on importing what changes, until it is interrupted")


def run(args: argparse.Namespace) -> int:
    """Import other programs' histories: what is new in them is added, what is there stays as it is."""
    from crowmem.ingest import import_paths

    paths = [*args.paths, *(_discovered(args) if args.discover else [])]
    if not paths:
        if args.discover:
            put_note("no histories were found in the places that are known")
            return OK
        raise UsageError("name files or folders, or give --discover")
    with opened(args, create=True) as memory:
        if args.watch:
            _watch(args, memory, paths)
        with Progress("importing") as bar:
            report = import_paths(memory, paths, progress=lambda state: _show(bar, state))
        _index(memory)
    if args.json:
        put_json(report)
    else:
        _print(report)
    return FAILED if _failed(report, args.paths) else OK


def _watch(args: argparse.Namespace, memory: Memory, paths: list[str | Path]) -> None:
    """Import what is there and then what changes; an interrupt ends it."""
    from crowmem.watching import watch

    def told(report: ImportReport) -> None:
        _index(memory)
        if args.json:
            put_json(report)
        else:
            added = f"{counted(report.messages_added, 'messages', 'added')} in {counted(report.sessions, 'sessions')}"
            put_line(f"{local_time(datetime.now(UTC))}  {added}, {counted(report.skipped, 'parts', 'skipped')}")
        sys.stdout.flush()

    def failed(error: CrowmemError) -> None:
        put_note(f"{one_line(str(error))}; trying again")

    put_note("watching; Ctrl-C ends it")
    _index(memory)
    watch(memory, paths, told, failed)


def _discovered(args: argparse.Namespace) -> list[Path]:
    from crowmem.importers import discover

    found = []
    for form, path in discover(Path.home(), os.environ):
        found.append(path)
        put_note(f"found {form.title}: {one_line(str(path))}")
    return found


def _show(bar: Progress, state: ImportProgress) -> None:
    files = f"{state.files_done:,}/{state.files_total:,} files"
    bar.show(state.bytes_done, state.bytes_total, f"{files}, {state.messages_added:,} messages {Path(state.path).name}")


def _index(memory: Memory) -> None:
    """Index the new messages now, also those of a run that was cut short: servers that only read cannot.

    SQLite's index is left in its pieces: merging them took 5 % of what indexing takes, made searches no faster that
    could be told from noise (18,000 messages: 184 and 217 ms for 20 queries), and after each message of a followed
    session it would read and write the whole index (55,000 messages: 0.2 s of CPU each time). PostgreSQL's counts of
    what is new halve the time of its searches (374 and 196 ms).
    """
    if memory.search.lagging(most=1):
        with Progress("indexing") as bar:
            bar.show(0, 0, "what is new")
            memory.search.optimize(merge=False)


def _failed(report: ImportReport, named: list[str]) -> bool:
    """Whether something the user named is not there, or is nothing that can be read."""
    wanted = {os.path.abspath(Path(path).expanduser()) for path in named}  # noqa: PTH100  # as the importer names them
    if any(skip.line == 0 and skip.path in wanted for skip in report.skips):
        return True
    return bool(wanted.intersection(report.unrecognised))


def _print(report: ImportReport) -> None:
    rows: list[tuple[str | int, ...]] = [
        ("files read", report.files),
        ("files unchanged", report.unchanged),
        ("files of no known format", len(report.unrecognised)),
        ("sessions", report.sessions),
        ("messages added", report.messages_added),
        ("messages grown", report.messages_grown),
        ("messages already there", report.messages_known),
        ("parts skipped", report.skipped),
    ]
    paint, columns = Paint.of(sys.stdout), columns_of(sys.stdout)
    for line in table(
        ("IMPORTED", ""), [row for row in rows if row[1] or row[0] != "messages grown"], paint=paint, columns=columns
    ):
        put_line(line)
    reasons = [
        f"{skip.path}:{skip.line}: {skip.reason}" if skip.line else f"{skip.path}: {skip.reason}"
        for skip in report.skips
    ]
    _listed("skipped", reasons, report.skipped)
    _listed("no known format", report.unrecognised, len(report.unrecognised))


def _listed(label: str, texts: list[str], total: int) -> None:
    for text in texts[:SHOWN]:
        put_line(f"{label}: {one_line(text)}")
    if total > SHOWN:
        put_line(f"{label}: {total - SHOWN:,} more; --json lists them")

"""``crowmem tape``."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crowmem.commands import UsageError, add_action, add_actions, opened
from crowmem.commands.finding import find_tape
from crowmem.commands.options import add_limit, whole
from crowmem.commands.output import counted, local_time, put_json, put_line, put_records
from crowmem.entries import POSITIONS
from crowmem.errors import Conflict
from crowmem.terminal import one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from crowmem.records import TapeInfo

LAST = 50  # entries that `show` prints when nothing else is asked for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do with tapes."""
    actions = add_actions(parser)
    listing = add_action(actions, "list", "list tapes", show_list)
    add_limit(listing, 1000, "tapes")
    showing = add_action(actions, "show", "print entries of a tape", show)
    showing.add_argument("tape", metavar="TAPE", help="its id, or the start of it")
    chosen = showing.add_mutually_exclusive_group()
    chosen.add_argument(
        "--window", action="store_true", help="from the last handoff anchor on, as a model is shown them"
    )
    chosen.add_argument(
        "--last", type=whole(0, POSITIONS), default=LAST, metavar="N", help=f"so many at the end (default {LAST})"
    )
    chosen.add_argument("--start", type=whole(0, POSITIONS), metavar="N", help="from number N on")
    showing.add_argument("--stop", type=whole(0, POSITIONS), metavar="N", help="up to but not including number N")
    taking = add_action(actions, "import", "append the entries of JSONL files, each to the tape of its name", take_in)
    taking.add_argument(
        "paths", nargs="+", metavar="PATH", help="a file, one JSON object a line; - is stdin, with --as"
    )
    taking.add_argument("--as", dest="tape", metavar="TAPE", help="the tape to append to, for a single file")
    taking.add_argument("--append", action="store_true", help="also to a tape that has entries already")
    giving = add_action(actions, "export", "write a tape to a JSONL file, byte for byte", give_out)
    giving.add_argument("tape", metavar="TAPE", help="its id, or the start of it")
    giving.add_argument("path", metavar="PATH", help="the file; an existing one is replaced; - is stdout")


def run(args: argparse.Namespace) -> int | None:
    """Do what was asked with tapes."""
    code: int | None = args.action(args)
    return code


def show_list(args: argparse.Namespace) -> None:
    """List tapes."""
    with opened(args) as memory:
        found = memory.tapes.list_infos(limit=args.limit, offset=args.offset)
    put_records(args, found, ("TAPE", "ENTRIES", "WINDOW FROM", "MADE"), _cells, empty="no tapes")


def show(args: argparse.Namespace) -> None:
    """Print entries, with their numbers for people."""
    with opened(args) as memory:
        tape = find_tape(memory, args.tape)
        length = memory.tapes.length(tape)
        stop = length if args.stop is None else min(args.stop, length)
        start = max(stop - args.last, 0) if args.start is None else args.start
        if args.window:
            start = memory.tapes.window(tape).window_start
        entries = memory.tapes.load(tape, start=start, stop=stop)
    if args.json:
        for entry in entries:
            put_json(entry)
        return
    width = len(str(stop))
    for number, entry in enumerate(entries, start):
        put_line(f"{number:{width}}  {one_line(str(entry.get('kind', '')))[:12]:12}  {one_line(_text(entry))}")


def take_in(args: argparse.Namespace) -> None:
    """Append the entries of files."""
    from pathlib import Path

    if args.tape is not None and len(args.paths) > 1:
        raise UsageError("--as names one tape, and there are several files")
    if args.tape is None and "-" in args.paths:
        raise UsageError("- is stdin, which has no name to take for the tape: give --as TAPE")
    with opened(args, create=True) as memory:
        for path in args.paths:
            tape = args.tape or Path(path).stem
            if not args.append and memory.tapes.length(tape):
                raise Conflict(f"tape {tape!r} has entries already: give --append to add to them, or --as another name")
            with _file(path) as file:
                count = memory.tapes.import_jsonl(tape, file, expected_length=None if args.append else 0)
            if args.json:
                put_json({"tape": tape, "path": path, "entries": count})
            else:
                put_line(f"{one_line(tape)}: {counted(count, 'entries')}")


@contextmanager
def _file(path: str) -> Iterator[str | Path]:
    """The file to read; stdin is first written to one, since it may stop in the middle of a transaction."""
    import shutil
    import sys
    from pathlib import Path
    from tempfile import TemporaryDirectory

    if path != "-":
        yield path
        return
    with TemporaryDirectory(prefix="crowmem-") as folder:
        copy = Path(folder, "stdin")
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield copy


def give_out(args: argparse.Namespace) -> None:
    """Write a tape to a file, or to stdout."""
    if args.path == "-":
        _print_whole(args)
        return
    with opened(args) as memory:
        tape = find_tape(memory, args.tape)
        count = memory.tapes.export_jsonl(tape, args.path)
    if args.json:
        put_json({"tape": tape, "path": args.path, "entries": count})
    else:
        put_line(f"{one_line(args.path)}: {counted(count, 'entries')}")


def _print_whole(args: argparse.Namespace) -> None:
    """Print a tape byte for byte, by way of a file: nothing is printed of one that cannot be read whole."""
    import shutil
    import sys
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="crowmem-") as folder:
        copy = Path(folder, "tape.jsonl")
        with opened(args) as memory:
            memory.tapes.export_jsonl(find_tape(memory, args.tape), copy)
        sys.stdout.flush()
        with copy.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def _cells(info: TapeInfo) -> tuple[str | int, ...]:
    return info.tape_id, info.length, info.window_start, local_time(info.created_at)


def _text(entry: dict[str, Any]) -> str:
    """What an entry says, in one line: its text, the call it makes, else the whole of it."""
    payload = entry.get("payload")
    if isinstance(payload, dict):
        content = payload.get("content")
        if isinstance(content, str) and content:
            who = payload.get("role")
            return f"{who}: {content}" if isinstance(who, str) else content
        if isinstance(payload.get("name"), str):
            return f"{payload['name']} {json.dumps(payload.get('arguments'), ensure_ascii=False)}"
    return json.dumps(entry if payload is None else payload, ensure_ascii=False)

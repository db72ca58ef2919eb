"""``crowmem purge``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from crowmem.commands import UsageError, opened
from crowmem.commands.output import counted, local_time, put_json, put_line
from crowmem.terminal import one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from crowmem.memory import Memory
    from crowmem.records import SessionInfo

PAGE = 500
_AGE = re.compile(r"(\d{1,6})([hdwy])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What goes."""
    parser.add_argument("--sessions", metavar="AGE", help="sessions without activity for so long: 12h, 30d, 8w, 2y")
    parser.add_argument("--mail", metavar="AGE", help="mail that was finished so long ago")
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> None:
    """Delete old sessions with everything they own, and forget finished mail. Images follow with `crowmem gc`."""
    if not args.sessions and not args.mail:
        raise UsageError("say what goes: --sessions AGE, --mail AGE, or both")
    now = datetime.now(UTC)
    if not args.dry_run and not args.yes:
        raise UsageError("this deletes for good: look with --dry-run first, then give --yes")
    with opened(args, write=not args.dry_run) as memory:
        if args.sessions:
            _purge_sessions(args, memory, now - _age(args.sessions))
        if args.mail:
            _purge_mail(args, memory, now - _age(args.mail))


def _purge_sessions(args: argparse.Namespace, memory: Memory, before: datetime) -> None:
    count = 0
    for info in list(_idle(memory, before)):
        if not args.dry_run:
            memory.sessions.delete(info.session_id)
        count += 1
        if args.json:
            put_json({"session_id": info.session_id, "last_activity": info.last_activity, "deleted": not args.dry_run})
        else:
            put_line(f"{local_time(info.last_activity)}  {info.message_count:>7,}  {one_line(info.session_id)}")
    if not args.json:
        put_line(counted(count, "sessions", "would go" if args.dry_run else "deleted"))


def _idle(memory: Memory, before: datetime) -> Iterator[SessionInfo]:
    """Sessions whose last activity, on any fork, was before a moment."""
    last = None
    while page := memory.sessions.list(limit=PAGE, include_forks=True, after=last):
        yield from (info for info in page if info.last_activity < before)
        last = page[-1]


def _purge_mail(args: argparse.Namespace, memory: Memory, before: datetime) -> None:
    if args.dry_run:
        if not args.json:
            put_line(f"mail finished before {local_time(before)} would go")
        return
    count = memory.mailbox.purge(finished_before=before)
    if args.json:
        put_json({"mail": count})
    else:
        put_line(counted(count, "finished deliveries", "forgotten"))


def _age(text: str) -> timedelta:
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no age: expected a number and h, d, w or y, such as 30d")
    return int(match[1]) * _UNITS[match[2]]

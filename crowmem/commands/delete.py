"""``crowmem delete``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import FAILED, opened
from crowmem.commands.options import add_yes, agreed
from crowmem.commands.output import counted, put_json, put_line, put_note
from crowmem.errors import NotFound
from crowmem.terminal import one_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which session."""
    parser.add_argument("session", metavar="SESSION", help="its whole name; a fork's agent id means its whole session")
    add_yes(parser)


def run(args: argparse.Namespace) -> int | None:
    """Delete a session with everything it owns, and say what that was."""
    with opened(args, write=True) as memory:
        if not memory.sessions.exists(args.session):
            raise NotFound(f"there is no session {args.session!r}; `crowmem sessions` lists them")
        info = memory.sessions.get(args.session)
        what = f"session {one_line(args.session)}" + (
            f" with {counted(info.message_count, 'messages')}" if info else ""
        )
        if not agreed(args, f"Delete {what}?"):
            put_note("nothing was deleted")
            return FAILED
        deleted = memory.sessions.delete(args.session)
    if deleted is None:
        raise NotFound(f"session {args.session!r} was deleted by somebody else meanwhile")
    if args.json:
        put_json(deleted)
    else:
        counts = ", ".join(counted(count, table) for table, count in deleted.counts.items() if count)
        put_line(f"deleted session {one_line(deleted.session_id)}: {counts or 'no rows'}")
    return None

"""``crowmem sessions``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import opened
from crowmem.commands.options import add_limit, folder
from crowmem.commands.output import local_time, put_records

if TYPE_CHECKING:
    import argparse

    from crowmem.records import SessionInfo

TITLES = ("SESSION", "LAST ACTIVITY", "MESSAGES", "AGENTS", "MODEL", "TITLE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which sessions."""
    add_limit(parser, 50, "sessions")
    parser.add_argument(
        "--cwd", "--project", type=folder, metavar="FOLDER", help="only sessions that work in this folder"
    )
    parser.add_argument("--forks", action="store_true", help="count forks, and list sessions that have nothing else")


def run(args: argparse.Namespace) -> None:
    """List sessions, newest activity first."""
    with opened(args) as memory:
        found = memory.sessions.list(limit=args.limit, offset=args.offset, include_forks=args.forks, cwd=args.cwd)
    put_records(args, found, TITLES, _cells, empty="no sessions")


def _cells(session: SessionInfo) -> tuple[str | int, ...]:
    return (
        session.session_id,
        local_time(session.last_activity),
        session.message_count,
        session.agent_count,
        session.model_identifier,
        session.title or "",
    )

"""``crowmem search``."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from crowmem.commands import opened
from crowmem.commands.finding import around, find_session
from crowmem.commands.options import add_limit, folder, moment, whole
from crowmem.commands.output import local_time, put_json, put_line, put_note
from crowmem.errors import ReadOnly
from crowmem.terminal import Paint, clean, cut, one_line
from crowmem.transcript import visible_parts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import TypeAlias

    from crowmem.memory import Memory
    from crowmem.records import Hit, Message

    Context: TypeAlias = tuple[list[Message], list[Message]] | None

COLOURS = {"user": "cyan", "assistant": "green"}
CONTEXT_COLUMNS = 200
_MATCH = re.compile("«([^«»]*)»")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to look for, and where."""
    parser.add_argument(
        "query", nargs="+", metavar="QUERY", help='words; "a phrase" in quotes; a prefix* of 3 letters or more'
    )
    match = parser.add_mutually_exclusive_group()
    match.add_argument("--match", choices=("any", "all"), default="any", help="any word, best first (default), or all")
    match.add_argument("--all", action="store_const", const="all", dest="match", help="the same as --match all")
    add_limit(parser, 20, "hits", most=1000)
    parser.add_argument("--exclude", metavar="QUERY", help="leave out messages with any of these words")
    parser.add_argument("--session", metavar="SESSION", help="only in this session, or what its name begins with")
    parser.add_argument("--agent", type=whole(1, 2**31 - 1), metavar="N", help="only agents of this number")
    parser.add_argument("--role", action="append", metavar="ROLE", help="only this role; may be repeated")
    parser.add_argument("--no-forks", action="store_true", help="leave out what forks added")
    parser.add_argument(
        "--after", type=moment, metavar="TIME", help="later than: 2026-01-31, 2026-01-31T12:00, 7d, 12h"
    )
    parser.add_argument("--before", type=moment, metavar="TIME", help="earlier than")
    parser.add_argument(
        "--cwd", "--project", type=folder, metavar="FOLDER", help="only sessions that work in this folder"
    )
    parser.add_argument("--model", metavar="MODEL", help="only agents with this model")
    parser.add_argument(
        "--tool", action="append", metavar="TOOL", help="only messages that call this tool; may be repeated"
    )
    parser.add_argument("--exhaustive", action="store_true", help="rank every match, however many there are")
    parser.add_argument(
        "--injected", action="store_true", help="also text that programs put in, not only what was said"
    )
    parser.add_argument(
        "-C", "--context", type=whole(0, 100), default=0, metavar="N", help="show N messages around each hit"
    )


def run(args: argparse.Namespace) -> None:
    """Print the messages that match, best first; each with its session, time, role and the words around the match."""
    hits = _found(args)
    paint = Paint.of(sys.stdout)
    for number, (hit, context) in enumerate(hits):
        if args.json:
            put_json(_record(hit, context))
            continue
        if number and context is not None:
            put_line(paint("--", "dim"))
        for line in _lines(hit, context, paint):
            put_line(line)
    if not hits and not args.json:
        put_note(
            "nothing found" + ("; --match any finds messages with some of the words" if args.match == "all" else "")
        )


def _found(args: argparse.Namespace) -> list[tuple[Hit, Context]]:
    """Search; messages that another program wrote are indexed first, if this store may be written."""
    with opened(args) as memory:
        if not memory.search.lagging(most=1):
            return _hits(args, memory)
    try:
        with opened(args, write=True) as memory:
            hits, lagging = _hits(args, memory), memory.search.lagging()
    except ReadOnly:
        with opened(args) as memory:
            hits, lagging = _hits(args, memory), memory.search.lagging()
    if lagging:
        put_note("not all messages that other programs wrote are indexed yet; a search that may write goes on with it")
    return hits


def _hits(args: argparse.Namespace, memory: Memory) -> list[tuple[Hit, Context]]:
    hits = memory.search.messages(" ".join(args.query), **_filters(args, memory))
    return [(hit, around(memory, hit, args.context) if args.context else None) for hit in hits]


def _filters(args: argparse.Namespace, memory: Memory) -> dict[str, Any]:
    return {
        "match": args.match,
        "exclude": args.exclude,
        "limit": args.limit,
        "offset": args.offset,
        "session_id": None if args.session is None else find_session(memory, args.session),
        "agent_idx": args.agent,
        "roles": args.role,
        "include_forks": not args.no_forks,
        "after": args.after,
        "before": args.before,
        "cwd": args.cwd,
        "model": args.model,
        "tools": args.tool,
        "injected": args.injected,
        "exhaustive": args.exhaustive,
    }


def _record(hit: Hit, context: Context) -> dict[str, Any]:
    record = {field.name: getattr(hit, field.name) for field in fields(hit)}
    return record if context is None else {**record, "context_before": context[0], "context_after": context[1]}


def _lines(hit: Hit, context: Context, paint: Paint) -> Iterator[str]:
    before, after = context or ([], [])
    yield from (_context(message, paint) for message in before)
    agent = (
        "" if hit.agent_idx == hit.fork_idx == 1 else paint(one_line(hit.agent_id.removeprefix(hit.session_id)), "dim")
    )
    role = paint(one_line(hit.role or "message"), COLOURS.get(hit.role, "magenta"))
    yield f"{paint(one_line(hit.session_id), 'bold')}{agent}  {local_time(hit.created_at)}  {role}"
    yield f"    {highlighted(hit.snippet, paint)}"
    yield from (_context(message, paint) for message in after)


def highlighted(snippet: str, paint: Paint) -> str:
    """A snippet for the terminal: its marks become colour where there is colour."""
    text = one_line(snippet)
    return _MATCH.sub(lambda found: paint(found[1], "bold", "red"), text) if paint.wanted else text


def _context(message: Message, paint: Paint) -> str:
    text = " ".join(f"{part.name} {part.text}" for part in visible_parts(message.data, "full"))
    return paint(f"    {one_line(message.role)}: {cut(one_line(clean(text)), CONTEXT_COLUMNS)}", "dim")

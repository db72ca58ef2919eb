"""``crowmem show``."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from crowmem.commands import opened
from crowmem.commands.conversation import conversation
from crowmem.commands.finding import agents_of, find_session, view
from crowmem.commands.options import whole
from crowmem.commands.output import counted, local_time, put_json, put_line
from crowmem.ids import parse_agent_id
from crowmem.paging import paged
from crowmem.terminal import Paint, one_line
from crowmem.transcript import MODES, visible_parts

if TYPE_CHECKING:
    import argparse

    from crowmem.memory import Memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which session, and how much of it."""
    parser.add_argument("session", metavar="SESSION", help="a session, the start of its name, or a fork's agent id")
    parser.add_argument("--agent", metavar="AGENT", help="only this agent: its number in the session, or its id")
    parser.add_argument(
        "--mode", choices=list(MODES), default="with_tools", help="how much of each message (default with_tools)"
    )
    parser.add_argument(
        "-n",
        "--limit",
        type=whole(1, 100_000),
        metavar="N",
        help="only the last N messages of each agent, of those that are shown",
    )
    parser.add_argument("--no-pager", action="store_true", help="do not use $PAGER on a terminal")


def run(args: argparse.Namespace) -> None:
    """Print a session as a conversation; with ``--json`` its whole messages, one a line."""
    with opened(args) as memory:
        session = find_session(memory, args.session)
        agents = agents_of(memory, session, args.agent)
        if args.json:
            for agent in agents:
                for message in view(memory, agent, last=args.limit):
                    put_json(message)
            return
        paint = Paint.of(sys.stdout)  # asked before the pager stands in between
        with paged(not args.no_pager):
            _title(memory, session, paint)
            for agent in agents:
                if len(agents) > 1:
                    put_line(f"\n{paint(f'── agent {one_line(agent)} ──', 'dim')}")
                seen = view(memory, agent, last=args.limit, among=lambda one: bool(visible_parts(one.data, args.mode)))
                for line in conversation(seen, args.mode, paint):
                    put_line(line)
            _resume(memory, session, paint)


def _title(memory: Memory, wire_id: str, paint: Paint) -> None:
    info = memory.sessions.get(wire_id) or memory.sessions.get(parse_agent_id(wire_id).session_id)
    if info is None:  # deleted since it was found
        return
    if info.title:
        put_line(paint(one_line(info.title), "bold"))
    messages = counted(info.message_count, "messages")
    facts = (wire_id, local_time(info.last_activity), messages, info.model_identifier, info.cwd)
    put_line(paint(" · ".join(one_line(fact) for fact in facts if fact), "dim"))


def _resume(memory: Memory, wire_id: str, paint: Paint) -> None:
    """How to go on with the session in the tool it comes from, where that is known."""
    source = memory.imports.session(wire_id)
    if source is None:
        return
    from pathlib import Path

    from crowmem.importers import FORMATS

    form = next((form for form in FORMATS if form.name == source.format), None)
    words = form.resume if form is not None and form.resumes(Path(source.path)) else ()
    info = memory.sessions.get(wire_id)
    if words and info is not None:
        command = shlex.join(word.replace("{session}", wire_id) for word in words)
        place = f"cd {shlex.quote(info.cwd)} && " if info.cwd else ""
        put_line(paint(f"\nto go on with it: {one_line(place + command)}", "dim"))

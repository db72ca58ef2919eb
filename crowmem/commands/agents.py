"""``crowmem agents``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import opened
from crowmem.commands.finding import every_agent, find_session
from crowmem.commands.output import local_time, put_json, put_records
from crowmem.ids import parse_agent_id

if TYPE_CHECKING:
    import argparse

    from crowmem.records import Agent

TITLES = ("AGENT", "CREATED", "STATUS", "FORKED AT", "MODEL", "FOLDER")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whose agents."""
    parser.add_argument("session", nargs="?", metavar="SESSION", help="only this session's; default: all")


def run(args: argparse.Namespace) -> None:
    """List agents by session, number and fork; with ``--json`` with prompts and tools."""
    with opened(args) as memory:
        session = None if args.session is None else find_session(memory, args.session)
        if session is not None and memory.sessions.get(session) is None:
            session = parse_agent_id(session).session_id  # a fork was named
        agents = every_agent(memory, session)
        if args.json:
            for agent in agents:
                put_json(agent)
            return
        put_records(args, map(_cells, agents), TITLES, tuple, empty="no agents")


def _cells(agent: Agent) -> tuple[str, ...]:
    """What the table shows; the rest, which may be large, is let go at once."""
    return (
        agent.agent_id,
        local_time(agent.created_at),
        agent.status,
        agent.forked_at or "",
        agent.model_identifier,
        agent.cwd,
    )

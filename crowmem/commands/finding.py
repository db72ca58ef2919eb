"""How commands find what their arguments name: sessions and tapes by the start of a name, the messages of a view."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from crowmem.commands import UsageError
from crowmem.errors import InvalidValue, NotFound
from crowmem.ids import build_agent_id, parse_agent_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crowmem.memory import Memory
    from crowmem.records import Agent, Hit, Message

LOOKED_AT = 1000  # newest sessions whose names are compared with an abbreviation
PAGE = 500
AGENTS = 100
MOST = 100_000  # agents of one session, tapes


def find_session(memory: Memory, name: str) -> str:
    """The wire id that a name stands for: itself, or the one recent session whose name begins with it.

    Raises:
        NotFound: there is none.
        UsageError: there are several.
    """
    if memory.sessions.exists(name):
        return name
    recent = memory.sessions.list(limit=LOOKED_AT, include_forks=True)
    return _begun(name, [session.session_id for session in recent], "session", "crowmem sessions")


def find_tape(memory: Memory, name: str) -> str:
    """The id of the tape that a name stands for: itself, or the one that begins with it. Raises as `find_session`."""
    if name and memory.tapes.length(name):
        return name
    names = memory.tapes.list(limit=MOST)
    return name if name in names else _begun(name, names, "tape", "crowmem tape list")


def _begun(name: str, names: list[str], what: str, listing: str) -> str:
    found = [one for one in names if name and one.startswith(name)]
    if not found:
        raise NotFound(f"there is no {what} {name!r}; `{listing}` lists them")
    if len(found) > 1:
        shown = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise UsageError(f"{name!r} begins the names of {len(found)} {what}s ({shown}): write more of it")
    return found[0]


def agents_of(memory: Memory, wire_id: str, agent: str | None) -> list[str]:
    """The agents that are meant: all of a session's trunk in order, one fork, or the one asked for.

    Args:
        memory: the store.
        wire_id: a session, or a fork's agent id.
        agent: an agent's number in the session, or its id; None for all.

    Raises:
        NotFound: the session has no such agent.
    """
    ids = memory.agents.ids(wire_id, limit=MOST)
    if not ids:  # a fork, or a session that has messages and no agent rows
        return [wire_id] if _fork(wire_id) > 1 else [build_agent_id(wire_id, int(agent or 1))]
    if agent is None:
        return [one for one in ids if _fork(one) <= 1] or ids
    wanted = build_agent_id(wire_id, int(agent)) if agent.isdecimal() else agent
    if wanted not in ids:
        raise NotFound(f"session {wire_id!r} has no agent {agent!r}; `crowmem agents {wire_id}` lists them")
    return [wanted]


def every_agent(memory: Memory, session_id: str | None) -> Iterator[Agent]:
    """All agents of a session or of the store, read in pages: their prompts and tools may be large."""
    done = 0
    while page := memory.agents.list(session_id, limit=AGENTS, offset=done):
        yield from page
        done += len(page)


def _fork(agent_id: str) -> int:
    try:
        return parse_agent_id(agent_id).fork_idx
    except InvalidValue:
        return 1


def view(
    memory: Memory, agent_id: str, *, last: int | None = None, among: Callable[[Message], bool] = lambda _: True
) -> Iterator[Message]:
    """The messages that an agent sees, oldest first, read in pages: a fork's begin with what it shares.

    Args:
        memory: the store.
        agent_id: a trunk agent or a fork.
        last: only so many, from the end,
        among: of those for which this holds; without ``last`` all are given.
    """
    segments = _segments(memory, agent_id)
    if last is not None:
        yield from _tail(memory, segments, last, among)
        return
    for owner, upto in segments:
        after = None
        while page := memory.messages.query(agent_ids=[owner], after_id=after, limit=PAGE):
            for message in page:
                if upto is not None and message.id > upto:
                    break
                yield message
            after = page[-1].id
            if upto is not None and after > upto:
                break


def around(memory: Memory, hit: Hit, count: int) -> tuple[list[Message], list[Message]]:
    """The messages of the same agent just before a hit and just after it, oldest first."""
    before = memory.messages.query(agent_ids=[hit.agent_id], after_id=hit.id, order="desc", limit=count)
    return before[::-1], memory.messages.query(agent_ids=[hit.agent_id], after_id=hit.id, limit=count)


def _tail(
    memory: Memory, segments: list[tuple[str, int | None]], last: int, among: Callable[[Message], bool]
) -> list[Message]:
    size = min(2 * last + 20, PAGE)  # some are passed over
    newest = (message for owner, upto in reversed(segments) for message in _backwards(memory, owner, upto, size))
    return list(islice(filter(among, newest), last))[::-1]


def _backwards(memory: Memory, owner: str, upto: int | None, size: int) -> Iterator[Message]:
    before = None if upto is None else upto + 1
    while page := memory.messages.query(agent_ids=[owner], after_id=before, order="desc", limit=size):
        yield from page
        before = page[-1].id


def _segments(memory: Memory, agent_id: str) -> list[tuple[str, int | None]]:
    """Whose messages a view consists of, oldest first, each with the last id that belongs to it."""
    segments: list[tuple[str, int | None]] = []
    owner, upto = agent_id, None
    seen: set[str] = set()
    while owner not in seen:
        seen.add(owner)
        segments.append((owner, upto))
        agent = memory.agents.get(owner)
        if agent is None or _fork(owner) <= 1:
            break
        owner, upto = _parent(agent), _earlier(upto, agent.forked_at)
    return segments[::-1]


def _parent(agent: Agent) -> str:
    return agent.forked_from or build_agent_id(agent.session_id, agent.agent_idx)


def _earlier(upto: int | None, anchor: str | None) -> int | None:
    if anchor is None or not anchor.isdecimal():
        return upto
    return int(anchor) if upto is None else min(upto, int(anchor))

"""Agent ids and wire ids.

An agent id is ``<session>-<agent index>-<fork index>``; it is read from the right, so a session name may contain
hyphens. On the wire a trunk (fork 1) goes by its bare session name, a fork by its whole agent id.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from crowmem.errors import InvalidValue

_INDEX_MAX = 2**31 - 1


class AgentId(NamedTuple):
    """The three parts of an agent id."""

    session_id: str
    agent_idx: int
    fork_idx: int


def build_agent_id(session_id: str, agent_idx: int, fork_idx: int = 1) -> str:
    """Join session, agent index and fork index, e.g. ``("s", 1)`` → ``"s-1-1"``."""
    return f"{session_id}-{agent_idx}-{fork_idx}"


def parse_agent_id(text: str) -> AgentId:
    """Split an agent id into its session name, agent index and fork index.

    Raises:
        InvalidValue: (a ValueError) it has no two trailing integers, or no session name before them.
    """
    if not isinstance(text, str):
        raise InvalidValue(f"malformed agent_id {text!r}: expected text such as 'session-1-1'")
    return _parsed(text)


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> AgentId:
    parts = text.rsplit("-", 2)
    if len(parts) == 3 and parts[0] and all(_is_index(part) for part in parts[1:]):
        return AgentId(parts[0], int(parts[1]), int(parts[2]))
    raise InvalidValue(
        f"malformed agent_id {text!r}: expected <session>-<agent index>-<fork index>, such as 'session-1-1'"
    )


def wire_session_id(agent_id: str) -> str:
    """The id that addresses an agent on the wire: the session name for a trunk, the agent id for a fork."""
    parsed = parse_agent_id(agent_id)
    return parsed.session_id if parsed.fork_idx <= 1 else agent_id


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _INDEX_MAX

"""Scope words: what a search may be limited to, as words of the index.

An index that holds a message's session, agent, role and week as words beside its text can intersect them with the words
looked for, so that a search in one session costs what the session is worth, however common its words. They begin with
U+E000, which is taken out of every text, and hold only a to z and digits after it, which no tokenizer changes.
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from base64 import b32encode
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from crowmem.errors import InvalidValue
from crowmem.ids import AgentId, build_agent_id, parse_agent_id
from crowmem.values import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MARK = "\ue000"  # begins the words that no text can hold
SESSION, ROLE, WEEK = "s", "r", "w"  # every row has these
AGENT, OTHER_AGENT = "a", "n"  # the id, and the mark that there is one: rows of any agent but its session's first
INDEX, LATER_INDEX, FORK, INJECTED, TOOL = "x", "y", "f", "i", "t"  # only the rows concerned
BUCKET = "b"  # message id >> 14, added in SQL on PostgreSQL; SQLite limits the row number instead
BUCKET_BITS = 14

# Stamps before the first week, or so far ahead of the clock, are wild: such rows are looked at under any time limit.
_FIRST_WEEK = datetime(2000, 1, 3, tzinfo=UTC)
_WILD = "0"
_AHEAD = timedelta(days=2)

MOST_TOOLS = 64  # of one message; more would crowd its text out of the index row
MOST_WEEKS = 60  # words of one search for a range of time; more cost more than they save
_HASH = 12  # characters of five bits: among a million names two are alike in one store of two million
_SAFE = re.compile("[a-z0-9]{1,11}")
_STORED = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}\+00:00", re.ASCII)


def scope_words(
    session_id: str,
    agent_id: str,
    role: str,
    *,
    created_at: str,
    injected: bool = False,
    tools: Iterable[str] = (),
    is_now: bool = False,
) -> Sequence[str]:
    """The scope words of a message, the same number for each of its documents.

    Args:
        session_id: the session's name.
        agent_id: the agent's id; its agent and fork index become words when they are not 1.
        role: the message's role, any text.
        created_at: the message's stamp as stored.
        injected: whether its text was put in by a program, not written by the user.
        tools: names of the tools that it calls.
        is_now: whether the stamp is of this moment.
    """
    if is_now or (_STORED.fullmatch(created_at) and created_at[:10] < _horizon(int(time.time() // 3600))):
        words = _usual_words(session_id, agent_id, role, created_at[:10])
    else:
        words = _words(session_id, agent_id, role, moment(created_at))
    if injected:
        words = (*words, MARK + INJECTED)
    if tools:
        words = (*words, *islice(dict.fromkeys(word(TOOL, tool) for tool in tools), MOST_TOOLS))
    return words


@functools.lru_cache(maxsize=1)
def _horizon(hour: int) -> str:
    """A day: what is stamped earlier lies not too far ahead of the clock. For an hour since 1970, as it is asked."""
    return (datetime.fromtimestamp(hour * 3600, UTC) + _AHEAD).date().isoformat()


@functools.lru_cache(maxsize=4096)
def _usual_words(session_id: str, agent_id: str, role: str, day: str) -> tuple[str, ...]:
    """`_words` of any moment of a day that lies not ahead of the clock."""
    return _words(session_id, agent_id, role, moment(day))


def _words(session_id: str, agent_id: str, role: str, stamp: datetime) -> tuple[str, ...]:
    """What does not depend on the message itself."""
    words = [word(SESSION, session_id), word(ROLE, role), week_word(stamp)]
    if agent_id == build_agent_id(session_id, 1):
        return tuple(words)
    words += [MARK + OTHER_AGENT, word(AGENT, agent_id)]
    parts = agent_parts(agent_id)
    if parts.agent_idx != 1:
        words += [MARK + LATER_INDEX, word(INDEX, str(parts.agent_idx))]
    if parts.fork_idx != 1:
        words.append(MARK + FORK)
    return tuple(words)


def word(kind: str, text: str) -> str:
    """The scope word of a kind for a text: the text itself when it is short and plain, else 60 bits of its hash."""
    return MARK + kind + _code(text)


@functools.lru_cache(maxsize=4096)
def _code(text: str) -> str:
    if _SAFE.fullmatch(text):
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return b32encode(digest)[:_HASH].decode().lower()


def agent_parts(agent_id: str) -> AgentId:
    """The parts of an agent id; an id that another program wrote in no such form is its own session's only agent."""
    try:
        return parse_agent_id(agent_id)
    except InvalidValue:
        return AgentId(agent_id, 1, 1)


def week_word(stamp: datetime) -> str:
    """The word of a stamp's week, or the one of wild stamps: before 2000, or ahead of the clock when indexed."""
    if not _FIRST_WEEK <= stamp <= _latest():
        return MARK + WEEK + _WILD
    return MARK + WEEK + str(_week(stamp))


def weeks(after: datetime | None, before: datetime | None) -> tuple[list[str] | None, list[str]]:
    """Weeks between two stamps: the words of which one must hold, or None, and those that must not occur.

    A range of more than `MOST_WEEKS` is not narrowed: it is a large part of any store.
    """
    if after is None and before is None:
        return None, []
    now = _week(_latest())
    first = 1 if after is None else max(1, _week(after))
    last = now if before is None else min(now, _week(before))
    if after is None:
        later = range(max(1, last + 1), now + 1)
        return None, [MARK + WEEK + str(week) for week in later] if len(later) <= MOST_WEEKS else []
    if last - first >= MOST_WEEKS:
        return None, []
    return [MARK + WEEK + _WILD, *(MARK + WEEK + str(week) for week in range(first, last + 1))], []


def _week(stamp: datetime) -> int:
    """The number of a stamp's week, 1 for the first."""
    return (stamp - _FIRST_WEEK).days // 7 + 1


def _latest() -> datetime:
    return datetime.now(UTC) + _AHEAD

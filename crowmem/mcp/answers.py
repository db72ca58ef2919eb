"""What the tools answer, for programs: the structured output, whose JSON schema clients are told.

A failed call gives the same shape with ``error`` filled in, since some clients hold failures to the schema as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call failed.

    Attributes:
        kind: the name of an error of crowmem.errors, such as InvalidValue or Unavailable.
        message: what is wrong.
        cure: what to do about it.
        retryable: whether the same call may succeed later.
    """

    kind: str
    message: str
    cure: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class SessionLine:
    """One session; ``last_activity`` is ISO 8601 in UTC."""

    session_id: str
    last_activity: str
    message_count: int
    agent_count: int
    title: str | None = None
    model: str | None = None
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class SessionsAnswer:
    """Sessions, the one used last first.

    Attributes:
        sessions: one page of them.
        next_offset: the offset of the next page; left out when this is the last.
        notes: how to go on, and what to know.
        error: why the call failed.
    """

    sessions: list[SessionLine] = field(default_factory=list)
    next_offset: int | None = None
    notes: list[str] = field(default_factory=list)
    error: Fault | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a message.

    Attributes:
        kind: said, thought, called (a tool; the text is its arguments), answered (by a tool) or image (where it is).
        text: its text, or a piece of it.
        name: the tool's.
        is_error: whether the tool failed.
    """

    kind: str
    text: str
    name: str | None = None
    is_error: bool | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A message, or a piece of it.

    Attributes:
        id: its number; later messages have larger ones.
        session_id: its session.
        agent_id: whose it is: session, agent number and fork number.
        role: user, assistant, tool or another.
        created_at: ISO 8601 in UTC.
        parts: its parts, as far as they are shown.
        characters: of all its parts.
        from_character: where the parts shown begin, left out for 0.
        next_character: where what is left out begins, left out when nothing is: the next from_character.
    """

    id: int
    session_id: str
    agent_id: str
    role: str
    created_at: str
    parts: list[Piece]
    characters: int
    from_character: int | None = None
    next_character: int | None = None


@dataclass(frozen=True, slots=True)
class Found(Shown):
    """A message that was asked for.

    Attributes:
        title: its session's, with the first message of each session.
        score: of a search; lower is better.
        snippet: of a search: the words around the matches, each between « and ».
        before: the messages just before it.
        after: the messages just after it.
    """

    title: str | None = None
    score: float | None = None
    snippet: str | None = None
    before: list[Shown] | None = None
    after: list[Shown] | None = None


@dataclass(frozen=True, slots=True)
class MessagesAnswer:
    """Messages that were found.

    Attributes:
        messages: one page of them.
        next_offset: the offset of the next page; left out when this is the last.
        notes: how to go on, and what to know.
        error: why the call failed.
    """

    messages: list[Found] = field(default_factory=list)
    next_offset: int | None = None
    notes: list[str] = field(default_factory=list)
    error: Fault | None = None


Answer = SessionsAnswer | MessagesAnswer


def plain(value: Any) -> Any:
    """A value as JSON has it; fields that are None are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((one.name, getattr(value, one.name)) for one in fields(value))
        return {name: plain(inner) for name, inner in pairs if inner is not None}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return sendable(value) if isinstance(value, str) else value


def sendable(text: str) -> str:
    """A text without halves of characters, which no client could be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()

"""What a parser yields: turns, facts about sessions, skipped records, and places where reading may resume.

A parser knows no database. It turns one file into messages in the OpenAI chat shape and says, for each, which key tells
it apart; whoever stores the turns uses the keys to add each one once, whatever file it comes from and however often it
is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

MAIN = "main"  # the agent key of a session's own agent; sub-agents go by the id their tool gave them


@dataclass(slots=True)
class Turn:
    """One message of one agent of a session.

    ``keys`` are stable texts, unique within the agent; a turn is known when all of its keys are. A turn that is read
    again with more ``parts`` is the same message grown (a reply whose later blocks were not written yet) and replaces
    the first.
    """

    session_id: str
    agent: str
    keys: tuple[str, ...]
    message: dict[str, Any]
    line: int  # of the file, from 1: where the message begins
    created_at: datetime | None = None  # with its zone; None when the source says no time
    usage: dict[str, int] | None = None  # prompt_tokens, completion_tokens, total_tokens
    model: str = ""
    cwd: str = ""
    git_branch: str = ""
    injected: bool = False  # put in by the tool: a wrapper, a reminder, a compaction summary
    parts: int = 1

    def saying(self, message: dict[str, Any], keys: tuple[str, ...], *, injected: bool = False, parts: int = 1) -> Turn:
        """Another turn of the same agent, line and moment."""
        return Turn(
            self.session_id,
            self.agent,
            keys,
            message,
            self.line,
            self.created_at,
            self.usage,
            self.model,
            self.cwd,
            self.git_branch,
            injected,
            parts,
        )


@dataclass(slots=True)
class SessionFacts:
    """What a source says about a session as a whole; "" where it says nothing. The last word wins."""

    session_id: str
    title: str = ""
    cwd: str = ""
    git_branch: str = ""
    model: str = ""
    parent: str = ""  # the session it was forked from, or whose sub-agent it is


@dataclass(frozen=True, slots=True)
class StoreRow:
    """One row of a store of the same kind as ours, to be taken over as it is."""

    table: str
    columns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Skip:
    """A part of a file that was passed over because it could not be read."""

    path: str
    line: int  # from 1; 0 when the file as a whole is meant
    reason: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything before this place has been yielded: a later run may begin here, with the source's ``state`` as it is
    now.
    """

    offset: int  # bytes
    line: int  # whole lines before the offset


Item: TypeAlias = Turn | SessionFacts | StoreRow | Skip | Mark

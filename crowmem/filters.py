"""What a search is limited to: by words of the index, and by columns of the messages where words are too coarse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from crowmem.ids import build_agent_id
from crowmem.scope import (
    AGENT,
    FORK,
    INDEX,
    INJECTED,
    LATER_INDEX,
    MARK,
    OTHER_AGENT,
    ROLE,
    SESSION,
    TOOL,
    agent_parts,
    weeks,
    word,
)
from crowmem.values import check_optional_text, check_range, check_texts, moment, optional_time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crowmem.query import Syntax

FEW = 64  # agents or sessions that are asked for by their words; more are compared one by one
_MOST_COUNTED = 8  # alternatives whose rows are worth counting to see how large a scope is

Group = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search is limited to.

    Attributes:
        groups: of each group one alternative holds: a word, and a word that must not stand beside it or None.
        forbidden: words none of which may occur.
        after: exclusive lower bound of the stamp, as stored.
        before: exclusive upper bound.
        agent_ids: more agents than words are made of.
        cwd: the agent's working folder.
        model: the agent's model.
    """

    groups: tuple[Group, ...] = ()
    forbidden: tuple[str, ...] = ()
    after: str | None = None
    before: str | None = None
    agent_ids: list[str] | None = None
    cwd: str | None = None
    model: str | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing can be in it: a list of nothing was given."""
        return () in self.groups

    def in_sessions(self, session_ids: Iterable[str]) -> Scope:
        """This scope, limited to some sessions besides."""
        return replace(self, groups=(*self.groups, _group(SESSION, session_ids)))

    def columns(self) -> dict[str, Any]:
        """Parameters for what is compared with columns of the messages."""
        columns = {
            "after": self.after,
            "before": self.before,
            "agent_ids": self.agent_ids,
            "cwd": self.cwd,
            "model": self.model,
        }
        return {"filtered": any(value is not None for value in columns.values()), **columns}

    def counted(self) -> list[list[str]]:
        """Words whose numbers of rows bound the scope's size, a list for each group that is small enough to count."""
        return [[one for one, _ in group] for group in self.groups if len(group) <= _MOST_COUNTED]

    @property
    def words(self) -> int:
        """How many words `limit` writes before the text."""
        return sum(1 + (other is not None) for group in self.groups for _, other in group)

    def limit(self, syntax: Syntax, text: str) -> str:
        """An expression of the text, limited to the scope."""
        groups = [
            syntax.some(syntax.without(syntax.word(one), syntax.word(other) if other else "") for one, other in group)
            for group in self.groups
        ]
        found = syntax.text(text)
        if groups:
            found = syntax.every([syntax.scope(syntax.every(groups)), found])
        if self.forbidden:
            found = syntax.without(found, syntax.scope(syntax.some(map(syntax.word, self.forbidden))))
        return found


def scope_of(
    *,
    session_id: str | None = None,
    agent_idx: int | None = None,
    agent_ids: Sequence[str] | None = None,
    roles: Sequence[str] | None = None,
    include_forks: bool = True,
    after: Any = None,
    before: Any = None,
    tools: Sequence[str] | None = None,
    cwd: str | None = None,
    model: str | None = None,
    injected: bool = True,
) -> Scope:
    """The scope of a search's arguments, checked.

    Raises:
        InvalidValue: an argument that is no text, no list, no time or no number.
    """
    groups: list[Group] = []
    forbidden: list[str] = []
    agents = None if agent_ids is None else check_texts("agent_ids", agent_ids)
    index = None if agent_idx is None else check_range("agent_idx", agent_idx, 0, 2**31 - 1)
    stamps = optional_time_text("after", after), optional_time_text("before", before)
    if session_id is not None:
        groups.append(_group(SESSION, [check_optional_text("session_id", session_id) or ""]))
    if agents is not None and len(agents) <= FEW:
        groups.append(_agents(agents))
    if roles is not None:
        groups.append(_group(ROLE, check_texts("roles", roles)))
    if tools is not None:
        groups.append(_group(TOOL, check_texts("tools", tools)))
    if index == 1:
        forbidden.append(MARK + LATER_INDEX)
    elif index is not None:
        groups.append(_group(INDEX, [str(index)]))
    if not include_forks:
        forbidden.append(MARK + FORK)
    if not injected:
        forbidden.append(MARK + INJECTED)
    inside, outside = weeks(*(moment(stamp) if stamp else None for stamp in stamps))
    if inside is not None:
        groups.append(tuple((week, None) for week in inside))
    return Scope(
        tuple(groups),
        (*forbidden, *outside),
        *stamps,
        agents if agents is not None and len(agents) > FEW else None,
        check_optional_text("cwd", cwd),
        check_optional_text("model", model),
    )


def _group(kind: str, texts: Iterable[str]) -> Group:
    """The alternatives for some texts of a kind."""
    return tuple((word(kind, text), None) for text in dict.fromkeys(texts))


def _agents(agent_ids: Iterable[str]) -> Group:
    """The alternatives for some agents: a session's first agent has no word of its own."""
    found: list[tuple[str, str | None]] = []
    for agent_id in dict.fromkeys(agent_ids):
        session_id = agent_parts(agent_id).session_id
        if agent_id == build_agent_id(session_id, 1):
            found.append((word(SESSION, session_id), MARK + OTHER_AGENT))
        else:
            found.append((word(AGENT, agent_id), None))
    return tuple(found)

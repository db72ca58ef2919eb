"""Puts what was read into answers that fit: how much of each message, how many of them, and what to know besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from crowmem.mcp.answers import Found, MessagesAnswer, SessionLine, SessionsAnswer, Shown
from crowmem.mcp.arguments import FURTHEST
from crowmem.mcp.fitting import EXCERPT, beginning, cap, cost, count_that_fit, part_cap, pieces
from crowmem.records import Hit
from crowmem.scope import agent_parts
from crowmem.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crowmem.mcp.reading import Item
    from crowmem.records import SessionInfo

TITLE = 200  # characters shown of a title, a model's name, a folder
CUT = (
    "Some texts are cut: query_session with their session_id, message_id and from_character (next_character) reads on."
)


@dataclass(frozen=True, slots=True)
class Group:
    """A message that was asked for, and its neighbours; None where none were asked for."""

    item: Item
    before: list[Item] | None = None
    after: list[Item] | None = None

    @property
    def items(self) -> list[Item]:
        """All of them."""
        return [*(self.before or ()), self.item, *(self.after or ())]


class Room(NamedTuple):
    """What there is room for of each message."""

    characters: int
    parts: int


def sessions_answer(found: Sequence[SessionInfo], *, offset: int, more: bool) -> SessionsAnswer:
    """One page of sessions."""
    lines = [_line(session) for session in found]
    kept = count_that_fit(
        [cost(sum(map(len, (one.title or "", one.model or "", one.cwd or ""))), len(one.session_id)) for one in lines]
    )
    next_offset, notes = _rest(offset + kept, more or kept < len(lines))
    return SessionsAnswer(lines[:kept], next_offset, notes)


def _line(session: SessionInfo) -> SessionLine:
    return SessionLine(
        session_id=session.session_id,
        last_activity=session.last_activity.isoformat(),
        message_count=session.message_count,
        agent_count=session.agent_count,
        title=_short(session.title),
        model=_short(session.model_identifier),
        cwd=_short(session.cwd),
    )


def messages_answer(
    groups: Sequence[Group],
    *,
    titles: Mapping[str, str],
    offset: int = 0,
    more: bool = False,
    order: str | None = None,
    start: int = 0,
) -> MessagesAnswer:
    """One page of messages.

    Args:
        groups: the messages, in the order they were found.
        titles: of their sessions.
        offset: how many were passed over.
        more: whether there are others.
        order: "asc" or "desc" sorts them by time; None leaves them.
        start: the first character shown of each message.
    """
    kept = list(groups[: count_that_fit([sum(map(_cost, group.items)) for group in groups])])
    next_offset, notes = _rest(offset + len(kept), more or len(kept) < len(groups))
    if order is not None:
        kept.sort(key=lambda group: group.item.message.id, reverse=order == "desc")
    items = [item for group in kept for item in group.items]
    most = cap(list(map(_length, items)), sum(map(_names, items)))
    if any(isinstance(group.item.message, Hit) for group in kept):
        most = min(most, EXCERPT)
    untold = dict(titles)
    room = Room(most, part_cap(len(items)))
    messages = [_found(group, untold, room, start) for group in kept]
    if any(one.next_character is not None for one in messages):
        notes.append(CUT)
    return MessagesAnswer(messages, next_offset, notes)


def _rest(reached: int, more: bool) -> tuple[int | None, list[str]]:
    """Where the next page begins, and how to say so."""
    if not more:
        return None, []
    if reached > FURTHEST:
        return None, [f"There are more, but no offset beyond {FURTHEST:,} is allowed: ask for something narrower."]
    return reached, [f"There are more: the same call with offset={reached} gives the next page."]


def _length(item: Item) -> int:
    return sum(len(part.text) for part in item.parts)


def _names(item: Item) -> int:
    message = item.message
    snippet = len(message.snippet) if isinstance(message, Hit) else 0
    return 2 * len(message.agent_id) + len(message.role) + snippet


def _cost(item: Item) -> int:
    return cost(_length(item), _names(item))


def _found(group: Group, titles: dict[str, str], room: Room, start: int) -> Found:
    message = group.item.message
    hit = message if isinstance(message, Hit) else None
    if hit is not None:
        start = beginning(group.item.parts, room.characters, _first_match(hit.snippet))
    fields = _fields(group.item, room, start)
    return Found(
        **fields,
        title=_short(titles.pop(fields["session_id"], None)),
        score=round(hit.score, 4) if hit else None,
        snippet=hit.snippet if hit else None,
        before=None if group.before is None else [Shown(**_fields(item, room)) for item in group.before],
        after=None if group.after is None else [Shown(**_fields(item, room)) for item in group.after],
    )


def _fields(item: Item, room: Room, start: int = 0) -> dict[str, Any]:
    message, length = item.message, _length(item)
    shown = pieces(item.parts, start, room.characters, room.parts)
    end = start + sum(len(piece.text) for piece in shown)
    return {
        "id": message.id,
        "session_id": agent_parts(message.agent_id).session_id,
        "agent_id": message.agent_id,
        "role": message.role,
        "created_at": message.created_at.isoformat(),
        "parts": shown,
        "characters": length,
        "from_character": start or None,
        "next_character": end if end < length else None,
    }


def _first_match(snippet: str) -> str:
    """The first word between marks."""
    return snippet.partition("«")[2].partition("»")[0]


def _short(text: str | None) -> str | None:
    shown = one_line(text or "")
    return (shown if len(shown) <= TITLE else shown[: TITLE - 1] + "…") or None

"""Reads messages for the tools: by page, by search, around one.

The rows of agents, whose prompts may be large, are never read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from crowmem.errors import InvalidValue, NotFound
from crowmem.importers.wrappers import wrapper
from crowmem.scope import agent_parts
from crowmem.terminal import clean
from crowmem.transcript import SAID, visible_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.memory import AsyncMemory
    from crowmem.records import Hit, Message
    from crowmem.transcript import Part

FIRST_PAGE = 16  # rows read at first; each page is twice the one before
LARGEST_PAGE = 256
SIDE_BY_SIDE = 64  # agents of a session whose messages are merged here; those of more are found by reading through all
LOOKED_AT = 1000  # newest sessions whose names are compared with an abbreviation
NAME = 100  # characters shown of a tool's name
SPOKEN = ("user", "assistant")  # whose messages the conversation consists of
_ROLES = {"conversation": SPOKEN, "with_thinking": SPOKEN, "with_tools": (*SPOKEN, "tool", "function"), "full": None}


@dataclass(frozen=True, slots=True)
class View:
    """Which messages are meant.

    Attributes:
        mode: one of `crowmem.transcript.MODES`.
        session_id: only this session's.
        agent_ids: only these agents'.
        agent_idx: only agents of this number.
        roles: only these; None takes those that the mode shows.
        after: only later ones.
        before: only earlier ones.
        include_forks: also what forks added.
        cwd: only sessions of this folder; for searches.
    """

    mode: str
    session_id: str | None = None
    agent_ids: list[str] | None = None
    agent_idx: int | None = None
    roles: Sequence[str] | None = None
    after: str | None = None
    before: str | None = None
    include_forks: bool = True
    cwd: str | None = None

    def filters(self) -> dict[str, Any]:
        """The arguments that `messages.query` and `search.messages` share."""
        shown = _ROLES[self.mode] if self.roles is None else self.roles
        return {
            "session_id": self.session_id,
            "agent_ids": self.agent_ids,
            "agent_idx": self.agent_idx,
            "roles": None if shown is None else list(shown),
            "after": self.after,
            "before": self.before,
            "include_forks": self.include_forks,
            "injected": self.mode == "full",
        }

    def parts(self, message: Message | Hit) -> list[Part]:
        """What of a message is shown, made harmless; text that programs put into a user's message only by "full"."""
        parts = visible_parts(message.data, self.mode)
        if self.mode != "full" and message.role == "user":
            parts = [part for part in parts if part.kind != SAID or not wrapper(part.text)]
        return [part._replace(text=clean(part.text), name=clean(part.name[:NAME])) for part in parts]


@dataclass(frozen=True, slots=True)
class Item:
    """A message and what of it is shown."""

    message: Message | Hit
    parts: list[Part]


async def browse(memory: AsyncMemory, view: View, *, order: str, limit: int, offset: int) -> tuple[list[Item], bool]:
    """One page of messages in their order, and whether there are more. Those with nothing to show do not count."""
    walk = await _walk(memory, view, order)
    found: list[Item] = []
    passed = 0
    while (item := await walk.next()) is not None:
        if passed < offset:
            passed += 1
        elif len(found) == limit:
            return found, True
        else:
            found.append(item)
    return found, False


async def search(memory: AsyncMemory, view: View, query: str, *, limit: int, offset: int) -> tuple[list[Item], bool]:
    """The best messages for a query, best first, and whether there are more."""
    hits = await memory.search.messages(
        query, match="any", limit=limit + 1, offset=offset, cwd=view.cwd, **view.filters()
    )
    return [Item(hit, view.parts(hit)) for hit in hits[:limit]], len(hits) > limit


async def around(memory: AsyncMemory, view: View, message: Message | Hit, count: int) -> tuple[list[Item], list[Item]]:
    """The messages of the same agent just before a message and just after it, oldest first."""
    near = View(view.mode, agent_ids=[message.agent_id])
    before = await _first(_Walk(memory, near, "desc", message.id), count)
    return before[::-1], await _first(_Walk(memory, near, "asc", message.id), count)


async def _first(walk: _Walk, count: int) -> list[Item]:
    found: list[Item] = []
    while len(found) < count and (item := await walk.next()) is not None:
        found.append(item)
    return found


async def _walk(memory: AsyncMemory, view: View, order: str) -> _Walk | _SideBySide:
    """A walk through a view: through each agent's own messages where they are few, since an index holds those."""
    agents = view.agent_ids
    if agents is None and view.session_id is not None:
        agents = await memory.agents.ids(
            view.session_id, agent_idx=view.agent_idx, include_forks=view.include_forks, limit=SIDE_BY_SIDE + 1
        )
    if agents is None or len(agents) > SIDE_BY_SIDE:
        return _Walk(memory, view, order)
    alone = replace(view, session_id=None, agent_idx=None, include_forks=True)
    return _SideBySide([_Walk(memory, replace(alone, agent_ids=[one]), order) for one in agents], order)


class _Walk:
    """The messages of a view that have something to show, one by one, read in pages."""

    def __init__(self, memory: AsyncMemory, view: View, order: str, after_id: int | None = None) -> None:
        self._memory = memory
        self._view = view
        self._order = order
        self._after_id = after_id
        self._size = FIRST_PAGE
        self._page: list[Message] = []
        self._ended = False

    async def next(self) -> Item | None:
        """The next one, None at the end."""
        while True:
            while self._page:
                message = self._page.pop()
                if parts := self._view.parts(message):
                    return Item(message, parts)
            if self._ended:
                return None
            await self._read()

    async def _read(self) -> None:
        page = await self._memory.messages.query(
            **self._view.filters(), order=self._order, limit=self._size, after_id=self._after_id
        )
        self._ended = len(page) < self._size
        self._size = min(2 * self._size, LARGEST_PAGE)
        if page:
            self._after_id = page[-1].id
        self._page = page[::-1]


class _SideBySide:
    """Several walks as one, in the order of all."""

    def __init__(self, walks: list[_Walk], order: str) -> None:
        self._walks = walks
        self._sign = -1 if order == "desc" else 1
        self._heads: list[tuple[int, int, Item]] | None = None  # a heap: by id, then by walk

    async def next(self) -> Item | None:
        """The next one, None at the end."""
        if self._heads is None:
            self._heads = []
            for number in range(len(self._walks)):
                await self._advance(self._heads, number)
        if not self._heads:
            return None
        _, number, item = heappop(self._heads)
        await self._advance(self._heads, number)
        return item

    async def _advance(self, heads: list[tuple[int, int, Item]], number: int) -> None:
        if (item := await self._walks[number].next()) is not None:
            heappush(heads, (self._sign * item.message.id, number, item))


async def one(memory: AsyncMemory, view: View, message_id: int) -> Item:
    """One message of a view, shown in full where its mode shows nothing of it.

    Raises:
        NotFound: there is none of this id, or it is another session's.
    """
    message = await memory.messages.get(message_id)
    inside = message is not None and (
        message.agent_id in (view.agent_ids or ()) or agent_parts(message.agent_id).session_id == view.session_id
    )
    if message is None or not inside:
        raise NotFound(f"message_id is {message_id:,}: there is no such message in this session")
    return Item(message, view.parts(message) or View("full").parts(message))


async def find_session(memory: AsyncMemory, name: str) -> dict[str, Any]:
    """What a name stands for, as fields of a `View`: a session, a fork by its agent id, or the beginning of a session.

    Raises:
        NotFound: nothing.
        InvalidValue: several sessions.
    """
    if await memory.sessions.get(name) is not None:
        return {"session_id": name}
    if await memory.sessions.exists(name):
        return {"agent_ids": [name], "include_forks": True}
    recent = await memory.sessions.list(limit=LOOKED_AT, include_forks=True)
    found = [session.session_id for session in recent if session.session_id.startswith(name)]
    if not found:
        raise NotFound(f"session_id is {name[:80]!r}: there is no such session")
    if len(found) > 1:
        shown = ", ".join(one[:100] for one in found[:5]) + (", …" if len(found) > 5 else "")
        raise InvalidValue(f"session_id is {name[:80]!r}, which begins the names of {len(found)} sessions: {shown}")
    return {"session_id": found[0]}


async def titles(memory: AsyncMemory, items: Sequence[Item]) -> dict[str, str]:
    """The titles of the sessions that some messages belong to."""
    names = list(dict.fromkeys(agent_parts(item.message.agent_id).session_id for item in items))
    infos = await asyncio.gather(*map(memory.sessions.get, names))
    return {name: info.title for name, info in zip(names, infos, strict=True) if info is not None and info.title}

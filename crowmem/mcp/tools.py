"""The three tools: what they are called with, what they read, what they answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crowmem.errors import InvalidValue
from crowmem.mcp import arguments
from crowmem.mcp.answers import MessagesAnswer, SessionsAnswer
from crowmem.mcp.composing import Group, messages_answer, sessions_answer
from crowmem.mcp.faults import fault_of
from crowmem.mcp.reading import SPOKEN, View, around, browse, find_session, one, search, titles
from crowmem.mcp.source import Missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from crowmem.mcp.answers import Answer
    from crowmem.mcp.arguments import Argument
    from crowmem.mcp.reading import Item
    from crowmem.mcp.source import Source
    from crowmem.memory import AsyncMemory

HITS = 10  # of a search that does not say how many
NEWEST = 1  # when browsing


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: what clients are told of it, and what it does."""

    name: str
    title: str
    about: str
    arguments: tuple[Argument, ...]
    answer: type[Answer]
    run: Callable[[AsyncMemory, dict[str, Any]], Awaitable[Answer]]

    async def call(self, source: Source, sent: Mapping[str, Any]) -> Answer:
        """Answer a call; what goes wrong is part of the answer."""
        try:
            checked = arguments.read(self.arguments, sent)
            async with source.reading() as memory:
                return await self.run(memory, checked)
        except Missing as missing:
            return self.answer(notes=[_nothing_yet(missing)])
        except Exception as error:
            return self.answer(error=fault_of(error))


def _nothing_yet(missing: Missing) -> str:
    return (
        f"Nothing is remembered yet: {missing}. It is read as soon as it is there. `crowmem import --discover` makes "
        "it from the histories on this machine; if it is elsewhere, this server has to be started with --db."
    )


async def _list_sessions(memory: AsyncMemory, given: dict[str, Any]) -> SessionsAnswer:
    limit, offset = given["limit"], given["offset"]
    found = await memory.sessions.list(
        limit=limit + 1, offset=offset, include_forks=given["include_forks"], cwd=given["cwd"]
    )
    answer = sessions_answer(found[:limit], offset=offset, more=len(found) > limit)
    if not found:
        answer.notes.append(
            "No sessions here."
            if offset
            else "No sessions."
            if given["cwd"] is None
            else "No session worked in exactly this folder; leave cwd out to see all."
        )
    return answer


async def _query_memory(memory: AsyncMemory, given: dict[str, Any]) -> MessagesAnswer:
    roles = given["roles"]
    usual = "conversation" if roles is None or set(roles) <= set(SPOKEN) else "full"
    view = View(
        given["mode"] or usual,
        roles=roles,
        after=given["after"],
        before=given["before"],
        include_forks=given["include_forks"],
        cwd=given["cwd"],
    )
    if given["cwd"] is not None and not _searches(given):
        raise InvalidValue("cwd is for searches: give a query, or list the folder's sessions with list_sessions")
    return await _page(memory, view, given)


async def _query_session(memory: AsyncMemory, given: dict[str, Any]) -> MessagesAnswer:
    limits = {"include_forks": given["include_forks"], **await find_session(memory, given["session_id"])}
    view = View(
        given["mode"] or "conversation",
        agent_idx=given["agent_idx"],
        after=given["after"],
        before=given["before"],
        **limits,
    )
    if given["message_id"] is None:
        if given["from_character"]:
            raise InvalidValue("from_character needs message_id: it says where in that message to begin")
        return await _page(memory, view, given)
    if _searches(given):
        raise InvalidValue("message_id shows one message: leave query out, or message_id")
    found = await one(memory, view, given["message_id"])
    groups = await _groups(memory, view, [found], given["context"])
    return messages_answer(groups, titles=await titles(memory, [found]), start=given["from_character"])


def _searches(given: Mapping[str, Any]) -> bool:
    return bool((given["query"] or "").strip())


async def _page(memory: AsyncMemory, view: View, given: dict[str, Any]) -> MessagesAnswer:
    """A page of a search, or of browsing when there is no query."""
    offset, order = given["offset"], given.get("order")
    searches = _searches(given)
    if searches:
        items, more = await search(memory, view, given["query"], limit=given["limit"] or HITS, offset=offset)
    else:
        limit = given["limit"] or NEWEST
        items, more = await browse(memory, view, order=order or "desc", limit=limit, offset=offset)
    groups = await _groups(memory, view, items, given.get("context", 0))
    answer = messages_answer(
        groups,
        titles=await titles(memory, items),
        offset=offset,
        more=more,
        order=order if searches else None,
    )
    if not items:
        answer.notes.append(_nothing_found(view, offset, searches=searches))
    if searches and (waiting := await memory.search.lagging()):
        answer.notes.append(
            f"{waiting:,} messages of another program are not indexed yet, and no search finds them until "
            "`crowmem reindex` has run; browsing shows them."
        )
    return answer


async def _groups(memory: AsyncMemory, view: View, items: list[Item], context: int) -> list[Group]:
    if not context:
        return [Group(item) for item in items]
    near = await asyncio.gather(*(around(memory, view, item.message, context) for item in items))
    return [Group(item, before, after) for item, (before, after) in zip(items, near, strict=True)]


def _nothing_found(view: View, offset: int, *, searches: bool) -> str:
    """What else to try."""
    if offset:
        return "Nothing here: the offset lies behind the last message."
    wider = []
    if view.mode in ("conversation", "with_thinking"):
        wider.append("mode='with_tools', which sees tool calls and their results too")
    if not view.include_forks:
        wider.append("include_forks=true")
    if view.after or view.before or view.roles is not None or view.agent_idx is not None or view.cwd is not None:
        wider.append("fewer filters")
    if searches:
        wider.append("other words")
    return "Nothing found" + (f"; try {', or '.join(wider)}." if wider else ".")


TOOLS = (
    Tool(
        "list_sessions",
        "List sessions",
        "List remembered sessions (conversations of agents with users), the one used last first: title, time, number "
        "of messages, model, folder. Use it to see what was worked on recently; to find a topic use query_memory.",
        arguments.LIST_SESSIONS,
        SessionsAnswer,
        _list_sessions,
    ),
    Tool(
        "query_memory",
        "Search all sessions",
        "Search everything that was said in earlier sessions: decisions, facts, errors and how they were solved. Give "
        "a few distinctive words as query. Without a query it shows the newest message of all. Read around a match "
        "with query_session and its message_id.",
        arguments.QUERY_MEMORY,
        MessagesAnswer,
        _query_memory,
    ),
    Tool(
        "query_session",
        "Read or search one session",
        "Read one session, or search in it. Without a query it shows the newest message; limit, offset and order='asc' "
        "page through all of it. With a query, context=N also shows the N messages before and after each match. "
        "message_id shows one message, with context=N in its place.",
        arguments.QUERY_SESSION,
        MessagesAnswer,
        _query_session,
    ),
)

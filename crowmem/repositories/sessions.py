"""Sessions: the list people start from, and what is done to a session as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.errors import InvalidValue
from crowmem.ids import parse_agent_id
from crowmem.operation import M, Repository, operation
from crowmem.records import Deleted, SessionInfo
from crowmem.statement import statement
from crowmem.upkeep import scrub, take_out
from crowmem.values import check_optional_text, check_range, check_text, time_text

if TYPE_CHECKING:
    import builtins

LIST_TRUNK = statement("session_list_trunk", SessionInfo)
LIST_ALL = statement("session_list_all", SessionInfo)
LIST_CWD = statement("session_list_cwd", SessionInfo)
GET = statement("session_get", SessionInfo)
EXISTS = statement("session_exists")
TITLE = statement("session_title")
DELETE_MESSAGES = statement("session_delete_messages")
DELETE_TASKS = statement("session_delete_tasks")
DELETE_DELIVERIES = statement("session_delete_deliveries")
DELETE_AGENTS = statement("session_delete_agents")
DELETE_SUMMARY = statement("session_summary_delete")

MOST = 100_000  # rows of one page
TITLE_BYTES = 4000


class Sessions(Repository[M]):
    """Sessions: list, find, delete."""

    @operation
    async def list(
        self,
        *,
        limit: int = 50,
        offset: int = 0,
        include_forks: bool = False,
        cwd: str | None = None,
        after: SessionInfo | None = None,
    ) -> builtins.list[SessionInfo]:
        """One page of sessions, the one with the newest message first; ties by name.

        A session without messages counts as active when its newest agent was made.

        Args:
            limit: most sessions to return, 1 to 100,000.
            offset: how many to pass over; for deep pages use ``after``, which costs the same on any page.
            include_forks: count forks' agents and messages, and list sessions that have forks only.
            cwd: only sessions whose newest trunk agent works in exactly this directory.
            after: the last line of the page before.
        """
        page = {
            "limit": check_range("limit", limit, 1, MOST),
            "offset": check_range("offset", offset, 0, 2**62),
            "activity": None if after is None else time_text("after.last_activity", after.last_activity),
            "after": None if after is None else check_text("after.session_id", after.session_id),
        }
        directory = check_optional_text("cwd", cwd, limit=1 << 20)
        if directory is not None:
            return await self._many(LIST_CWD, cwd=directory, forks=int(include_forks), **page)
        return await self._many(LIST_ALL if include_forks else LIST_TRUNK, **page)

    @operation
    async def get(self, session_id: str) -> SessionInfo | None:
        """One session, forks counted, or None."""
        return await self._one(GET, session_id=check_text("session_id", session_id, empty=True))  # type: ignore[no-any-return]

    @operation
    async def exists(self, wire_id: str) -> bool:
        """Whether a session (bare name) or exactly this fork (agent id) is there.

        A name that is a session's is taken as that, even when it could be read as an agent id.
        """
        name = check_text("wire_id", wire_id, empty=True)
        if await self._value(EXISTS, session_id=name, agent_id=None):
            return True
        return bool(_is_agent_id(name) and await self._value(EXISTS, session_id=name, agent_id=name))

    @operation
    async def set_title(self, session_id: str, title: str | None) -> None:
        """Give a session a title of its own, or (None) none; an unknown session is left alone."""
        text = check_optional_text("title", title, limit=TITLE_BYTES)
        await self._many(TITLE, session_id=check_text("session_id", session_id), title=text)

    @operation
    async def delete(self, wire_id: str) -> Deleted | None:
        """Delete a session with everything it owns, in one transaction.

        Agents of every index and fork, their messages and index entries, mail to the session or any of its agents,
        and tasks it owned. Kept: prompts, image blobs, and tasks of other owners that merely name it as child.

        Args:
            wire_id: the session's name; a fork's agent id deletes its whole session.

        Returns:
            How many rows went, by table; None when there is no such session.
        """
        name = check_text("wire_id", wire_id, empty=True)
        async with self._driver.transaction() as tx:
            if not await tx.run(EXISTS, {"session_id": name, "agent_id": None}):
                if not (_is_agent_id(name) and await tx.run(EXISTS, {"session_id": name, "agent_id": name})):
                    return None
                name = parse_agent_id(name).session_id
            session = {"session_id": name}
            counts = {
                "messages": len(await tx.run(DELETE_MESSAGES, session)),
                "tasks": len(await tx.run(DELETE_TASKS, session)),
                "task_deliveries": len(await tx.run(DELETE_DELIVERIES, session)),
                "agents": len(await tx.run(DELETE_AGENTS, session)),
            }
            await tx.run(DELETE_SUMMARY, session)
            await take_out(tx)
        await scrub(self._driver)
        return Deleted(name, counts)


def _is_agent_id(text: str) -> bool:
    try:
        parse_agent_id(text)
    except InvalidValue:
        return False
    return True

"""Sessions: the list people start from, and what is done to a session as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from crowmem.branches import delete_tapes
from crowmem.content import title
from crowmem.errors import InvalidValue
from crowmem.ids import parse_agent_id
from crowmem.indexing import stored
from crowmem.leasing import LOCK
from crowmem.locks import SessionLock
from crowmem.operation import M, Repository, operation
from crowmem.records import Deleted, SessionInfo
from crowmem.statement import statement
from crowmem.upkeep import scrub, take_out
from crowmem.values import TEXT_BYTES, check_optional_text, check_range, check_text, time_text

if TYPE_CHECKING:
    import builtins

    from crowmem.drivers import Driver

LIST_TRUNK = statement("session_list_trunk", SessionInfo)
LIST_ALL = statement("session_list_all", SessionInfo)
LIST_CWD = statement("session_list_cwd", SessionInfo)
GET = statement("session_get", SessionInfo)
EXISTS = statement("session_exists")
TITLE = statement("session_title")
UNNAMED = statement("session_unnamed")
HOLD = statement("session_hold")
DELETE_MESSAGES = statement("session_delete_messages")
DELETE_TASKS = statement("session_delete_tasks")
DELETE_DELIVERIES = statement("session_delete_deliveries")
DELETE_AGENTS = statement("session_delete_agents")
STRAYS = statement("session_strays")
NOTE_STRAY = statement("session_stray_note")
DELETE_STRAYS = statement("session_delete_strays")
DELETE_SUMMARY = statement("session_summary_delete")
DELETE_PAYLOAD = statement("payload_delete")
DELETE_LEASES = statement("lease_delete_session")
TAPES = statement("tape_list_session")
CHECKPOINTS = statement("checkpoint_list_session")

MOST = 100_000  # rows of one page
TITLE_BYTES = 4000
LATEST = "\U0010ffff"  # sorts after every stamp


class Sessions(Repository[M]):
    """Sessions: list, find, lock, delete."""

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
        if after is not None and not isinstance(after, SessionInfo):
            raise InvalidValue(f"after is of type {type(after).__name__}, expected the last SessionInfo of a page")
        page = {
            "limit": check_range("limit", limit, 1, MOST),
            "offset": check_range("offset", offset, 0, 2**62),
            "activity": LATEST if after is None else time_text("after.last_activity", after.last_activity),
            "after": "" if after is None else check_text("after.session_id", after.session_id),
        }
        directory = check_optional_text("cwd", cwd, limit=1 << 20)
        if directory is not None:
            found = await self._many(LIST_CWD, cwd=directory, forks=int(bool(include_forks)), **page)
        else:
            found = await self._many(LIST_ALL if include_forks else LIST_TRUNK, **page)
        return await self._named(found)

    async def _named(self, found: builtins.list[SessionInfo]) -> builtins.list[SessionInfo]:
        """With titles for sessions of other programs, which no search has indexed and named yet."""
        unnamed = [info.session_id for info in found if info.title is None and info.message_count > 1]
        if not unnamed:
            return found
        rows = await self._many(UNNAMED, session_ids=unnamed)
        titles = {session_id: title(stored(data)) for session_id, data in reversed(rows)}
        return [
            replace(info, title=titles[info.session_id]) if info.title is None and info.session_id in titles else info
            for info in found
        ]

    @operation
    async def get(self, session_id: str) -> SessionInfo | None:
        """One session, forks counted, or None.

        Args:
            session_id: the session's name.
        """
        found = await self._many(GET, session_id=check_text("session_id", session_id, empty=True))
        return (await self._named(found))[0] if found else None

    @operation
    async def exists(self, wire_id: str) -> bool:
        """Whether a session (bare name) or exactly this fork (agent id) is there: an agent's row or messages suffice.

        A name that is a session's is taken as that, even when it could be read as an agent id.

        Args:
            wire_id: the session's name, or a fork's agent id.
        """
        name = check_text("wire_id", wire_id, empty=True)
        if await self._value(EXISTS, session_id=name, agent_id=None):
            return True
        return bool(_is_agent_id(name) and await self._value(EXISTS, session_id=name, agent_id=name))

    @operation
    async def set_title(self, session_id: str, title: str | None) -> None:
        """Give a session a title of its own, or (None) none; an unknown session is left alone.

        Args:
            session_id: the session's name.
            title: the title, in place of what the messages suggest.
        """
        text = check_optional_text("title", title, limit=TITLE_BYTES)
        await self._many(TITLE, session_id=check_text("session_id", session_id), title=text)

    def lock(self, session_id: str, *, timeout_s: float | None = None) -> SessionLock:
        """A block during which no other process, thread or task holds the same session; see `SessionLock`.

        ``with memory.sessions.lock("s") as lock`` or ``async with memory.sessions.lock("s") as lock``. A holder that
        is killed lets go at once on PostgreSQL, within 10 s on SQLite. On PostgreSQL each holder and each who waits
        has a connection of its own beside the pool.

        Args:
            session_id: the session; there need be no rows of it.
            timeout_s: seconds to wait for it, 0 for no waiting; None waits for ever.

        Raises:
            LockTimeout: it was not free in time.
            LeaseLost: at the end of the block, when the lock was lost on the way and nothing else went wrong.
            Conflict: this very thread or task holds it already, and would wait for itself.
            Unsupported: in a transaction, which would hold its rows while waiting.
        """
        name = check_text("session_id", session_id, limit=TEXT_BYTES - len(LOCK))
        return SessionLock(self._driver, self._store, name, timeout_s, blocking=self._blocking)

    @operation
    async def delete(self, wire_id: str) -> Deleted | None:
        """Delete a session with everything it owns, in one transaction.

        Agents of every index and fork, those without a row included; their messages and index entries, mail to the
        session or any of its agents, and tasks it owned; its payload, leases and locks named after it or its agents,
        tapes of those names, and checkpoints saved for it. Kept: prompts, image blobs, tasks of other owners that
        merely name it as child, and entries of its tapes that a fork under another name shares.

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
                "messages": await _delete_messages(tx, session),
                "tasks": len(await tx.run(DELETE_TASKS, session)),
                "task_deliveries": len(await tx.run(DELETE_DELIVERIES, session)),
                "session_payloads": len(await tx.run(DELETE_PAYLOAD, session)),
                "leases": len(await tx.run(DELETE_LEASES, {**session, "lock": LOCK, "now": self._store.now_us})),
                **await _delete_tapes(tx, session),
                "agents": len(await tx.run(DELETE_AGENTS, session)),
            }
            await tx.run(DELETE_STRAYS, session)
            await take_out(tx)
        await scrub(self._driver)
        return Deleted(name, counts)


async def _delete_messages(tx: Driver, session: dict[str, str]) -> int:
    """Delete a session's messages and its summary; others that would add to it wait until the transaction ends."""
    if tx.dialect == "postgres":
        await tx.run(HOLD, session)
    strays = [{"agent_id": agent_id} for (agent_id,) in await tx.run(STRAYS, session)]
    await tx.run(DELETE_SUMMARY, session)  # so that no message that goes has to be counted
    count = len(await tx.run(DELETE_MESSAGES, session))
    if strays:  # their mail, leases and tapes are found by the note, which went with their last message
        await tx.run_batch(NOTE_STRAY, strays)
    return count


async def _delete_tapes(tx: Driver, session: dict[str, str]) -> dict[str, int]:
    tapes = [name for (name,) in await tx.run(TAPES, session)]
    return (await delete_tapes(tx, tapes, await tx.run(CHECKPOINTS, session)))._asdict()


def _is_agent_id(text: str) -> bool:
    try:
        parse_agent_id(text)
    except InvalidValue:
        return False
    return True

"""Tasks: work handed from one session to another, whose end is mail to its owner."""

from __future__ import annotations

from typing import Any

from crowmem.errors import Busy, Conflict, InvalidValue
from crowmem.operation import M, Repository, operation
from crowmem.records import Delivery, Task
from crowmem.statement import statement
from crowmem.values import MESSAGE_BYTES, check_optional_text, check_range, check_text, check_together

ADD = statement("task_add", Task)
ADD_NEXT = statement("task_add_next", Task)
GET = statement("task_get", Task)
SET_SUB = statement("task_set_sub")
REOPEN = statement("task_reopen")
FINISH = statement("task_finish")
CANCEL = statement("task_cancel")
LIST = statement("task_list", Task)
LIST_OWNER = statement("task_list_owner", Task)
COUNT = statement("task_count")
COUNT_OWNER = statement("task_count_owner")
BY_SUB = statement("task_by_sub", Task)
MAIL = statement("mailbox_send", Delivery)

MOST = 100_000  # rows of one page
TRIES = 1000  # racers for one task number, each of whom may win once before us


class Tasks(Repository[M]):
    """Register work, end it once, find it again."""

    @operation
    async def launch(
        self,
        task_id: str,
        owner_session: str,
        *,
        kind: str = "subagent",
        tool_call_id: str | None = None,
        sub_session: str | None = None,
        prompt: str = "",
        model: str | None = None,
        priority: str = "low",
    ) -> Task:
        """Register a running task.

        Args:
            task_id: unique in the store.
            owner_session: whose mailbox gets the result.
            kind: what sort of work it is.
            tool_call_id: the call that asked for it.
            sub_session: the session that works on it, if known already.
            prompt: what it was told.
            model: which model works on it.
            priority: "low", "high" or another word; its delivery inherits it.

        Raises:
            Conflict: there is a task of this id.
        """
        columns = _columns(owner_session, kind, tool_call_id, sub_session, prompt, model, priority)
        found = await self._one(ADD, task_id=check_text("task_id", task_id), **columns)
        if found is None:
            raise Conflict(f"there is a task {task_id!r} already; take another id, or launch_next")
        return found  # type: ignore[no-any-return]

    @operation
    async def launch_next(
        self,
        owner_session: str,
        *,
        kind: str = "subagent",
        tool_call_id: str | None = None,
        sub_session: str | None = None,
        prompt: str = "",
        model: str | None = None,
        priority: str = "low",
    ) -> Task:
        """Register a running task as ``task-N``, N the next number in the store, whatever the kind and owner.

        Args:
            owner_session: whose mailbox gets the result.
            kind: what sort of work it is.
            tool_call_id: the call that asked for it.
            sub_session: the session that works on it, if known already.
            prompt: what it was told.
            model: which model works on it.
            priority: "low", "high" or another word; its delivery inherits it.
        """
        columns = _columns(owner_session, kind, tool_call_id, sub_session, prompt, model, priority)
        for _ in range(TRIES):
            found = await self._one(ADD_NEXT, **columns)
            if found is not None:
                return found  # type: ignore[no-any-return]
        raise Busy(f"others took the next task number {TRIES:,} times in a row; nothing happened, try again")

    @operation
    async def set_sub_session(self, task_id: str, sub_session: str | None) -> None:
        """Say which session works on a task; an unknown task is left alone.

        Args:
            task_id: its id.
            sub_session: the session's name; None takes it off.
        """
        sub = check_optional_text("sub_session", sub_session)
        await self._many(SET_SUB, task_id=check_text("task_id", task_id), sub_session=sub)

    @operation
    async def reopen(self, task_id: str) -> bool:
        """Set an ended task running again; mail it sent stays where it is.

        Args:
            task_id: its id.

        Returns:
            True for exactly one of any number of racing callers; False when it is running or unknown.
        """
        return bool(await self._many(REOPEN, task_id=check_text("task_id", task_id)))

    @operation
    async def finish(
        self,
        task_id: str,
        *,
        result: str | None = None,
        status: str = "completed",
        content: str = "",
        deliver: bool = True,
    ) -> bool:
        """End a running task and put its mail into the owner's mailbox, in one step.

        Args:
            task_id: which.
            result: kept with the task.
            status: what it ended with; not "running".
            content: the text of the mail.
            deliver: False ends it without mail.

        Returns:
            True for exactly one of any number of racing callers, and then there is exactly one delivery; False when the
            task has ended or is unknown, and then nothing was delivered.

        Raises:
            OutcomeUnknown: the connection broke; calling again is safe, it returns False when it had been done.
        """
        if check_text("status", status) == "running":
            raise InvalidValue("status is 'running', expected what the task ended with; to set it running use reopen")
        ending = {
            "task_id": check_text("task_id", task_id),
            "status": status,
            "result": check_optional_text("result", result, limit=MESSAGE_BYTES),
        }
        mail = {
            "content": check_text("content", content, empty=True, limit=MESSAGE_BYTES),
            "max_attempts": self._store.max_attempts,
        }
        if self._driver.dialect == "postgres":
            ended = await self._many(FINISH, **ending, **mail, deliver=int(bool(deliver)))
        else:
            ended = await self._finish_in_two(ending, mail if deliver else None)
        if ended and deliver:
            await self._driver.announce(ended[0][0])
        return bool(ended)

    async def _finish_in_two(self, ending: dict[str, Any], mail: dict[str, Any] | None) -> list[Any]:
        async with self._driver.transaction() as tx:
            ended = await tx.run(FINISH, ending)
            if ended and mail is not None:
                owner, task_id, priority = ended[0]
                columns = {"address": owner, "task_id": task_id, "priority": priority, "delay_us": 0, "key": None}
                await tx.run(MAIL, {**columns, **mail})
        return ended

    @operation
    async def cancel(self, task_id: str) -> bool:
        """End a running task as "cancelled", without mail.

        Args:
            task_id: its id.

        Returns:
            True for exactly one of any number of callers racing to cancel or finish it; else False.
        """
        return bool(await self._many(CANCEL, task_id=check_text("task_id", task_id)))

    @operation
    async def get(self, task_id: str) -> Task | None:
        """One task, or None.

        Args:
            task_id: its id.
        """
        return await self._one(GET, task_id=check_text("task_id", task_id, empty=True))  # type: ignore[no-any-return]

    @operation
    async def list(
        self, owner_session: str | None = None, *, status: str | None = None, limit: int = 1000
    ) -> list[Task]:
        """Tasks in the order they were launched.

        Args:
            owner_session: of this owner only.
            status: of this status only, such as "running".
            limit: most tasks to return, 1 to 100,000.
        """
        most = check_range("limit", limit, 1, MOST)
        wanted = check_optional_text("status", status)
        if owner_session is None:
            return await self._many(LIST, status=wanted, limit=most)
        owner = check_text("owner_session", owner_session, empty=True)
        return await self._many(LIST_OWNER, owner_session=owner, status=wanted, limit=most)

    @operation
    async def count(self, owner_session: str | None = None) -> int:
        """How many tasks there are, or how many one session owns, whatever their status.

        Args:
            owner_session: the owner; None for all tasks.
        """
        if owner_session is None:
            return int(await self._value(COUNT))
        return int(await self._value(COUNT_OWNER, owner_session=check_text("owner_session", owner_session, empty=True)))

    @operation
    async def by_sub_session(self, sub_session: str) -> Task | None:
        """The newest task that a session works on, or None.

        Args:
            sub_session: the session's name.
        """
        sub = check_text("sub_session", sub_session, empty=True)
        return await self._one(BY_SUB, sub_session=sub)  # type: ignore[no-any-return]


def _columns(
    owner_session: str,
    kind: str,
    tool_call_id: str | None,
    sub_session: str | None,
    prompt: str,
    model: str | None,
    priority: str,
) -> dict[str, Any]:
    columns = {
        "owner_session": check_text("owner_session", owner_session),
        "kind": check_text("kind", kind),
        "tool_call_id": check_optional_text("tool_call_id", tool_call_id),
        "sub_session": check_optional_text("sub_session", sub_session),
        "prompt": check_text("prompt", prompt, empty=True, limit=MESSAGE_BYTES),
        "model": check_optional_text("model", model),
        "priority": check_text("priority", priority),
    }
    check_together(owner_session=columns["owner_session"], priority=columns["priority"])  # of its delivery
    return columns

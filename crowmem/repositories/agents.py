"""Agents: the trunk and the forks of every session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.errors import Conflict, InvalidValue, NotFound
from crowmem.ids import build_agent_id, parse_agent_id
from crowmem.operation import M, Repository, operation
from crowmem.records import Agent
from crowmem.statement import statement
from crowmem.values import (
    MESSAGE_BYTES,
    check_list,
    check_optional_text,
    check_range,
    check_text,
    encode_json,
    encode_object,
    now_text,
    time_text,
)

if TYPE_CHECKING:
    import builtins

GET = statement("agent_get", Agent)
LIST = statement("agent_list", Agent)
IDS = statement("agent_ids")
ADD = statement("agent_add", Agent)
FORK = statement("agent_fork", Agent)
NEWEST = statement("agent_newest_message")
MAX_IDX = statement("agent_max_idx")
MAX_FORK = statement("agent_max_fork")
SET_MODEL = statement("agent_set_model")
SET_SERVERS = statement("agent_set_servers")
SERVERS = statement("agent_servers")
EXISTS = statement("session_exists")

MOST = 100_000  # rows of one list
INDEX = 2**31 - 1
TRIES = 100  # forks made at the same moment may take the index first; each try sees the newest


class Agents(Repository[M]):
    """The agents of every session: create, read, fork."""

    @operation
    async def create(
        self,
        agent_id: str,
        session_id: str,
        *,
        agent_idx: int | None = None,
        fork_idx: int | None = None,
        forked_at: int | str | None = None,
        cwd: str = "/tmp",  # noqa: S108  # crow's own default, a value and no file
        prompt_id: str | None = None,
        prompt_args: dict[str, Any] | None = None,
        system_prompt: str = "",
        tool_definitions: list[Any] | None = None,
        request_params: dict[str, Any] | None = None,
        model_identifier: str = "",
        mcp_servers: list[Any] | None = None,
        status: str = "active",
        created_at: str | None = None,
    ) -> Agent:
        """Add one agent.

        Args:
            agent_id: ``<session_id>-<agent_idx>-<fork_idx>``; an id of another form is taken as it is when both
                indexes are
                given or left at 1, but no message can be added to it.
            session_id: the session's name, 1 to 2,600 bytes.
            agent_idx: 1 to 2,147,483,647; left out, it is read from the id (1 if the id does not say).
            fork_idx: 1 is the trunk; left out, it is read from the id.
            forked_at: on a fork, the id of the last trunk message it shares.
            cwd: working directory.
            prompt_id: the interned template, if any.
            prompt_args: what was put into the template.
            system_prompt: the finished system prompt.
            tool_definitions: tools in the model API's form; [] by default.
            request_params: parameters of the model API; {} by default.
            model_identifier: model name.
            mcp_servers: None: never given; []: explicitly none.
            status: free text.
            created_at: ISO 8601; now by default.

        Raises:
            Conflict: the id is taken.
            InvalidValue: a value is out of its range, or the id names another session or place than the arguments.
        """
        agent, session = check_text("agent_id", agent_id), check_text("session_id", session_id)
        parsed = _place(agent, session, agent_idx, fork_idx)
        row = await self._one(
            ADD,
            agent_id=agent,
            session_id=session,
            agent_idx=parsed[0],
            fork_idx=parsed[1],
            forked_at=_anchor_text(forked_at),
            cwd=check_text("cwd", cwd, empty=True, limit=MESSAGE_BYTES),
            prompt_id=check_optional_text("prompt_id", prompt_id),
            prompt_args=None if prompt_args is None else encode_object(prompt_args, "prompt_args"),
            system_prompt=check_text("system_prompt", system_prompt, empty=True, limit=MESSAGE_BYTES),
            tool_definitions=encode_json(
                [] if tool_definitions is None else check_list("tool_definitions", tool_definitions), "tool_definitions"
            ),
            mcp_servers=None
            if mcp_servers is None
            else encode_json(check_list("mcp_servers", mcp_servers), "mcp_servers"),
            request_params=encode_object({} if request_params is None else request_params, "request_params"),
            model_identifier=check_text("model_identifier", model_identifier, empty=True),
            status=check_text("status", status, empty=True),
            created_at=now_text() if created_at is None else time_text("created_at", created_at),
        )
        if row is None:
            raise Conflict(f"agent {agent_id!r} exists already")
        return row  # type: ignore[no-any-return]  # statements are bound by name, rows are typed by their record

    @operation
    async def get(self, agent_id: str) -> Agent | None:
        """One agent, or None.

        Args:
            agent_id: its id; of one that is not there the answer is None.
        """
        return await self._one(GET, agent_id=check_text("agent_id", agent_id, empty=True))  # type: ignore[no-any-return]

    @operation
    async def list(self, session_id: str | None = None, *, limit: int = 1000, offset: int = 0) -> builtins.list[Agent]:
        """Agents of one session or of all, by session, agent index and fork.

        Args:
            session_id: only this session's.
            limit: most agents to return, 1 to 100,000.
            offset: how many to pass over.
        """
        return await self._many(
            LIST,
            session_id=check_optional_text("session_id", session_id),
            limit=check_range("limit", limit, 1, MOST),
            offset=check_range("offset", offset, 0, 2**62),
        )

    @operation
    async def ids(
        self, session_id: str, *, agent_idx: int | None = None, include_forks: bool = True, limit: int = 1000
    ) -> builtins.list[str]:
        """The ids of a session's agents, by agent index and fork, those included that have messages and no row.

        Args:
            session_id: the session's name; [] for an unknown one.
            agent_idx: only agents with this index.
            include_forks: False leaves out forks.
            limit: most ids to return, 1 to 100,000.
        """
        rows = await self._many(
            IDS,
            session_id=check_text("session_id", session_id, empty=True),
            agent_idx=None if agent_idx is None else check_range("agent_idx", agent_idx, 0, INDEX),
            forks=int(bool(include_forks)),
            limit=check_range("limit", limit, 1, MOST),
        )
        return [agent_id for (agent_id,) in rows]

    @operation
    async def fork(self, agent_id: str, *, at: int | None = None) -> Agent:
        """Fork an agent: the fork shares its messages up to an anchor and goes on by itself. Nothing is copied.

        Args:
            agent_id: a trunk agent or a fork.
            at: id of the last message shared, 0 to share none; None: the newest now. The anchor is recorded at once.

        Returns:
            The new agent, under the next free fork index.

        Raises:
            NotFound: there is no such agent.
            InvalidValue: ``at`` is beyond the newest message of the store; the fork would share what is yet to come.
        """
        place = parse_agent_id(agent_id)
        anchor = None if at is None else check_range("at", at, 0, 2**63 - 1)
        if anchor and anchor > (newest := await self._value(NEWEST)):
            raise InvalidValue(
                f"at is {anchor:,}, and the newest message is {newest:,}: name one that is there, or none"
            )
        for _ in range(TRIES):
            row = await self._one(
                FORK,
                agent_id=check_text("agent_id", agent_id),
                session_id=place.session_id,
                agent_idx=place.agent_idx,
                at=anchor,
                created_at=now_text(),
            )
            if row is not None:
                return row  # type: ignore[no-any-return]
            if await self._one(GET, agent_id=agent_id) is None:
                raise NotFound(f"there is no agent {agent_id!r} to fork")
        raise Conflict(f"agent {agent_id!r}: other forks took the next index {TRIES} times; try again")

    @operation
    async def max_agent_idx(self, session_id: str, fork_idx: int | None = 1) -> int:
        """The highest agent index of a session in one fork, or (None) over all; 1 for an unknown session.

        Args:
            session_id: the session's name.
            fork_idx: the fork, 1 for the trunk; None looks at all of them.
        """
        found = await self._value(
            MAX_IDX,
            session_id=check_text("session_id", session_id, empty=True),
            fork_idx=None if fork_idx is None else check_range("fork_idx", fork_idx, 0, INDEX),
        )
        return found or 1

    @operation
    async def max_fork_idx(self, session_id: str, agent_idx: int) -> int:
        """The highest fork index of one agent: 1 for a trunk without forks and for an unknown one.

        Args:
            session_id: the session's name.
            agent_idx: the agent's number in the session.
        """
        found = await self._value(
            MAX_FORK,
            session_id=check_text("session_id", session_id, empty=True),
            agent_idx=check_range("agent_idx", agent_idx, 0, INDEX),
        )
        return found or 1

    @operation
    async def set_model(self, agent_id: str, model: str) -> None:
        """Overwrite one agent's model.

        Args:
            agent_id: whose.
            model: the new model's name; "" for none.

        Raises:
            NotFound: there is no such agent.
        """
        if not await self._many(
            SET_MODEL,
            agent_id=check_text("agent_id", agent_id, empty=True),
            model=check_text("model", model, empty=True),
        ):
            raise NotFound(f"there is no agent {agent_id!r}")

    @operation
    async def set_mcp_servers(self, agent_id: str, servers: builtins.list[Any] | None) -> None:
        """Overwrite one agent's MCP servers; [] means explicitly none, None never given.

        Args:
            agent_id: whose.
            servers: a list of JSON values, kept in order; [] or None as above.

        Raises:
            NotFound: there is no such agent.
        """
        text = None if servers is None else encode_json(check_list("servers", servers), "servers")
        if not await self._many(SET_SERVERS, agent_id=check_text("agent_id", agent_id, empty=True), servers=text):
            raise NotFound(f"there is no agent {agent_id!r}")

    @operation
    async def mcp_servers(self, wire_id: str) -> builtins.list[Any]:
        """The MCP servers of a session (bare name: its trunk) or of a fork (its agent id).

        Those of the newest agent that was ever given any; [] when none was, or the session is unknown.

        Args:
            wire_id: the session's name, or a fork's agent id.
        """
        session_id, fork_idx = check_text("wire_id", wire_id, empty=True), 1
        if not await self._value(EXISTS, session_id=session_id, agent_id=None):
            try:
                place = parse_agent_id(session_id)
            except InvalidValue:
                return []
            session_id, fork_idx = place.session_id, place.fork_idx
        text = await self._value(SERVERS, session_id=session_id, fork_idx=fork_idx)
        return json.loads(text) if text else []


def _place(agent_id: str, session_id: str, agent_idx: int | None, fork_idx: int | None) -> tuple[int, int]:
    """The agent and fork index, checked against what the id says."""
    agent = None if agent_idx is None else check_range("agent_idx", agent_idx, 1, INDEX)
    fork = None if fork_idx is None else check_range("fork_idx", fork_idx, 1, INDEX)
    try:
        parsed = parse_agent_id(agent_id)
    except InvalidValue:
        return agent or 1, fork or 1
    wanted = build_agent_id(session_id, agent or parsed.agent_idx, fork or parsed.fork_idx)
    if wanted != agent_id:
        raise InvalidValue(
            f"agent_id {agent_id!r} does not fit session {session_id!r} and the indexes given: use {wanted!r}"
        )
    return parsed.agent_idx, parsed.fork_idx


def _anchor_text(forked_at: int | str | None) -> str | None:
    """A message id as the text that the crow format keeps."""
    if forked_at is None:
        return None
    if isinstance(forked_at, str):
        if not (forked_at.isascii() and forked_at.isdigit() and len(forked_at) < 20):
            raise InvalidValue(f"forked_at is {forked_at!r}, expected a message id")
        return forked_at
    return str(check_range("forked_at", forked_at, 0, 2**63 - 1))

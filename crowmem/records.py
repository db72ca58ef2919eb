"""What operations return: frozen records. Field order is column order; a test holds every statement to it.

Times are aware datetimes in UTC. A field typed ``dict`` or ``list`` is JSON in the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  # read at run time, to decode columns
from typing import Any


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent of a session: a trunk (``fork_idx`` 1) or a fork of it.

    ``forked_at`` is the id of the last message that a fork shares with its parent, as text; None on a trunk.
    ``forked_from`` is the parent's agent id when that is not the trunk. ``mcp_servers`` None means never given, an
    empty list explicitly none.
    """

    agent_id: str
    session_id: str
    agent_idx: int
    fork_idx: int
    forked_at: str | None
    cwd: str
    prompt_id: str | None
    prompt_args: dict[str, Any] | None
    system_prompt: str
    tool_definitions: list[Any]
    mcp_servers: list[Any] | None
    request_params: dict[str, Any]
    model_identifier: str
    status: str
    created_at: datetime
    forked_from: str | None


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message; ``data`` equals the dict that was added. Token counts are None when they were not given."""

    id: int
    agent_id: str
    fork_idx: int
    created_at: datetime
    data: dict[str, Any]
    role: str
    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None


@dataclass(frozen=True, slots=True)
class Hit:
    """One message that a search found.

    ``score`` is negative; lower is better. ``snippet`` is a piece of the text around the
    best matches, each between « and ».
    """

    id: int
    agent_id: str
    session_id: str
    agent_idx: int
    fork_idx: int
    role: str
    created_at: datetime
    data: dict[str, Any]
    score: float
    snippet: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system prompt template, stored once however often it is used."""

    id: str
    name: str
    template: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One line of the session list.

    ``last_activity`` is the time of the last message, or the newest agent's creation when there is none.
    ``model_identifier`` and ``cwd`` are the newest trunk agent's. ``title`` is the one given, else the start of the
    second message.
    """

    session_id: str
    last_activity: datetime
    message_count: int
    agent_count: int
    model_identifier: str
    cwd: str
    title: str | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deletion removed: rows by table name."""

    session_id: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Status:
    """How a store is doing. Holds no secret.

    Attributes:
        dialect: "sqlite" or "postgres".
        where: the file's path, or the server's URL without password.
        schema_version: the newest schema step applied, such as "0003".
        durability: "full" or "normal".
        journal: SQLite's journal mode, with the file system's kind when that decided it; "" on PostgreSQL.
        log_bytes: size of SQLite's write-ahead log; 0 on PostgreSQL.
        pool: connections of the PostgreSQL pool: size, available, waiting; {} on SQLite.
        rows: row counts by table.
        images: the image store in use and its spool.
        search: the index: documents, messages not indexed yet, messages partly indexed.
    """

    dialect: str
    where: str
    schema_version: str
    durability: str
    journal: str
    log_bytes: int
    pool: dict[str, int]
    rows: dict[str, int]
    images: dict[str, Any]
    search: dict[str, Any]

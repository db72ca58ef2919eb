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

    ``score`` is negative; lower is better. ``snippet`` is a piece of the message's text, up to 200 characters on one
    line, where the most different words of the query stand, each match between « and ».
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
        warnings: what makes the store slower and can be helped, in plain words; [] when there is nothing.
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
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class ImportSource:
    """How far a file of another program was read.

    Reading goes on at ``offset_bytes``, after ``lines`` lines, with the parser's ``state`` (JSON), while
    ``fingerprint`` still fits what stands before it.
    """

    path: str
    format: str
    session_id: str
    size_bytes: int
    modified_us: int
    offset_bytes: int
    lines: int
    state: str
    fingerprint: str
    imported_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """Where an imported session comes from; "" where its source does not say.

    ``format`` is the importer's name, ``path`` the first file that brought it, ``parent`` the session it was forked
    from or that it renders.
    """

    session_id: str
    format: str
    path: str
    title: str
    git_branch: str
    parent: str


@dataclass(frozen=True, slots=True)
class Task:
    """Work that one session handed to another.

    ``status`` is "running", or what it ended with: "completed", "failed", "cancelled" or another word. ``sub_session``
    is who works on it, ``owner_session`` whose mailbox gets the result.
    """

    task_id: str
    kind: str
    owner_session: str
    tool_call_id: str | None
    sub_session: str | None
    prompt: str
    model: str | None
    priority: str
    status: str
    result: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One item of a mailbox.

    ``session_id`` is the address. ``status`` is "pending", "waiting" (until ``due_at``), "leased" (until ``due_at``),
    "delivered" or "dead". ``attempts`` counts claims and leases, ``last_error`` says why it came back or died.
    """

    id: int
    session_id: str
    task_id: str
    priority: str
    content: str
    status: str
    created_at: datetime
    delivered_at: datetime | None
    attempts: int
    due_at: datetime | None
    last_error: str | None

    @property
    def address(self) -> str:
        """The mailbox it lies in."""
        return self.session_id


@dataclass(frozen=True, slots=True)
class LeasedDelivery:
    """A delivery that one worker holds until ``due_at``.

    Fields are those of `Delivery`, and ``lease_token``, which grows with every lease of the row: whoever comes with an
    older one has lost it.
    """

    id: int
    session_id: str
    task_id: str
    priority: str
    content: str
    status: str
    created_at: datetime
    delivered_at: datetime | None
    attempts: int
    due_at: datetime | None
    last_error: str | None
    lease_token: int
    lease_worker: str | None

    @property
    def address(self) -> str:
        """The mailbox it lies in."""
        return self.session_id

    @property
    def token(self) -> int:
        """The fencing token of this lease."""
        return self.lease_token

    @property
    def worker(self) -> str | None:
        """Who holds it."""
        return self.lease_worker

    @property
    def expires_at(self) -> datetime | None:
        """When the lease ends, by the database's clock."""
        return self.due_at


@dataclass(frozen=True, slots=True)
class TapeInfo:
    """One line of the list of tapes; ``window_start`` is the number of the last handoff anchor, 0 without one."""

    tape_id: str
    length: int
    window_start: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TapeLine:
    """What a tape was, ``length`` entries long, when a checkpoint was restored over it at ``left_at``."""

    line: int
    tape_id: str
    length: int
    left_at: datetime


@dataclass(frozen=True, slots=True)
class Window:
    """The entries of a tape from its last handoff anchor on, the anchor included; all of them when it has none.

    ``window_start`` is the first one's number on the tape, ``length`` that of the whole tape.
    """

    tape_id: str
    window_start: int
    length: int
    entries: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """One line of a tape's list of checkpoints: the tape held ``entry_count`` entries then."""

    checkpoint_id: str
    tape_id: str
    session_id: str | None
    entry_count: int
    window_start: int
    created_at: datetime
    label: str | None


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as it is stored: a place in a branch, no entries."""

    checkpoint_id: str
    tape_id: str
    session_id: str | None
    entry_count: int
    window_start: int
    created_at: datetime
    label: str | None
    branch: int
    plugin_states: dict[str, Any]
    extra: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A moment of a tape with the states that belong to it.

    ``entries`` are the tape's entries at that moment; None where they were not read (saving reads none).
    """

    checkpoint_id: str
    tape_id: str
    session_id: str | None
    entry_count: int
    window_start: int
    created_at: datetime
    label: str | None
    plugin_states: dict[str, Any]
    extra: dict[str, Any]
    entries: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """A session's JSON object. ``version`` grows by one with each save; send it back as ``expected_version``."""

    session_id: str
    version: int
    updated_at: datetime
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """A name that one owner holds until a moment.

    ``token`` is given by the database and only ever grows, also across release and expiry: send it with every write
    the lease guards. ``expires_at`` is by the database's clock.
    """

    name: str
    owner: str
    token: int
    expires_at: datetime

"""Imports: other programs' messages, each added once, and how far their files were read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crowmem import takeover
from crowmem.content import title
from crowmem.ids import build_agent_id
from crowmem.image_keeping import keep
from crowmem.indexing import stored
from crowmem.operation import M, Repository, operation
from crowmem.records import ImportedSession, ImportSource
from crowmem.statement import statement
from crowmem.values import check_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.drivers import Driver

LOCK = statement("import_lock")
SOURCE_GET = statement("import_source_get", ImportSource)
SOURCE_PUT = statement("import_source_put")
SESSION_GET = statement("import_session_get", ImportedSession)
SESSION_PUT = statement("import_session_put")
SESSIONS_KNOWN = statement("import_sessions_known")
AGENTS_KNOWN = statement("import_agents_known")
AGENT_NEW = statement("import_agent_new")
AGENT_ADD = statement("import_agent_add")
AGENT_SEEN = statement("import_agent_seen")
KEYS_KNOWN = statement("import_keys_known")
KEY_PUT = statement("import_key_put")
MESSAGE_ADD = statement("import_message_add")
MESSAGE_GROW = statement("import_message_grow")
COUNT_BEGIN = statement("import_count_begin")
COUNT_END = statement("import_count_end")
COUNT = statement("session_add_messages")
TITLE = statement("session_title")
MAX_IDX = statement("agent_max_idx")

MAIN = "main"
PATH_BYTES = 8192


@dataclass(slots=True)
class ImportRow:
    """One message ready to be added.

    ``agent`` is the agent's name in the source, "main" for the session's own. ``keys`` are 64-bit numbers: the message
    is known when all of them are, and has grown when it has more ``parts`` than are known. ``columns`` are those of the
    message's row but for the agent's id.
    """

    session_id: str
    agent: str
    keys: tuple[int, ...]
    parts: int
    columns: dict[str, Any]
    model: str = ""
    cwd: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)  # images taken out of the message, by key


@dataclass(frozen=True, slots=True)
class ImportFacts:
    """What is known of a session beside its messages; ``opening`` is the title of one that has none."""

    session_id: str
    format: str
    path: str
    title: str = ""
    opening: str = ""
    git_branch: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class ImportAdded:
    """What became of some rows."""

    added: int
    grown: int
    known: int
    sessions: frozenset[str] = frozenset()  # that got messages


@dataclass(slots=True)
class _Known:
    """What the store has of one agent of a source."""

    number: int
    agent_id: str
    model: str
    cwd: str
    first: int  # 1 for agent 1 of its session
    keys: dict[int, tuple[int, int]] = field(default_factory=dict)  # key → message id, parts


class Imports(Repository[M]):
    """What was imported: sources, and the sessions that came of them."""

    @operation
    async def source(self, path: str) -> ImportSource | None:
        """How far a file was read; None when it never was.

        Args:
            path: the file's path, as the import wrote it down.
        """
        return await self._one(SOURCE_GET, path=check_text("path", path, limit=PATH_BYTES))  # type: ignore[no-any-return]

    @operation
    async def session(self, session_id: str) -> ImportedSession | None:
        """Where a session comes from; None when it was not imported.

        Args:
            session_id: the session's name in this store.
        """
        return await self._one(SESSION_GET, session_id=check_text("session_id", session_id, empty=True))  # type: ignore[no-any-return]

    @operation
    async def add(
        self,
        rows: Sequence[ImportRow],
        facts: Sequence[ImportFacts] = (),
        sources: Sequence[dict[str, Any]] = (),
    ) -> ImportAdded:
        """Add what is not there yet, in one transaction with the note how far its files were read.

        Two importers may bring the same session at once: each message comes in once.

        Args:
            rows: messages, in the order they shall stand.
            facts: of the sessions they belong to.
            sources: columns of `ImportSource` but for ``imported_at``.

        Returns:
            How many were added, how many had grown, how many were known.
        """
        sessions = sorted({row.session_id for row in rows} | {fact.session_id for fact in facts})
        blobs = {key: blob for row in rows for key, blob in row.blobs.items()}

        async def write(tx: Driver) -> ImportAdded:
            if sessions:
                await tx.run(LOCK, {"session_ids": sessions})
            added = await _add(tx, rows)
            if facts:
                await _note(tx, facts)
            if sources:
                await tx.run_batch(SOURCE_PUT, sources)
            return added

        return await keep(self._driver, self._store, blobs, write)

    @operation
    async def take_over(self, prompts: Sequence[dict[str, Any]], agents: Sequence[dict[str, Any]]) -> bool:
        """Add another store's prompts and agents that are not there yet, before its messages.

        Args:
            prompts: columns of prompts.
            agents: columns of agents; their forks get their anchors from `take_over_rest`.

        Returns:
            Whether this store has no messages, so that the other's can keep their numbers.
        """
        async with self._driver.transaction() as tx:
            return await takeover.begin(tx, prompts, agents)

    @operation
    async def take_over_rest(
        self,
        forks: Sequence[dict[str, Any]],
        tasks: Sequence[dict[str, Any]],
        deliveries: Sequence[dict[str, Any]],
        *,
        numbered: bool = False,
    ) -> None:
        """Add the anchors of another store's forks, its tasks and its mail, after its messages; a repeat adds nothing.

        Args:
            forks: agent id, trunk, session, and the keys that its anchor may be known by.
            tasks: columns of tasks, and a key each.
            deliveries: columns of mail, a key each, and their number there.
            numbered: whether the messages kept their numbers.
        """
        async with self._driver.transaction() as tx:
            await takeover.end(tx, forks, tasks, deliveries, numbered)


async def _add(tx: Driver, rows: Sequence[ImportRow]) -> ImportAdded:
    known = await _known(tx, rows)
    new: list[tuple[_Known, ImportRow]] = []
    grown: dict[int, tuple[_Known, ImportRow]] = {}  # by message id; the last word counts
    for row in rows:
        agent = known[row.session_id, row.agent]
        found = [agent.keys.get(key) for key in row.keys]
        if None in found:
            place = (-1 - len(new), row.parts)  # below zero: a new row, that has no id yet
            for key in row.keys:
                agent.keys[key] = place
            new.append((agent, row))
        elif (first := found[0]) is not None and row.parts > first[1]:
            agent.keys.update(dict.fromkeys(row.keys, (first[0], row.parts)))
            if first[0] < 0:
                new[-1 - first[0]] = (agent, row)
            else:
                grown[first[0]] = (agent, row)
    ids = await _insert(tx, new) if new else []
    if grown:
        await tx.run_batch(
            MESSAGE_GROW, [{**row.columns, "message_id": message_id} for message_id, (_, row) in grown.items()]
        )
    keys = [
        {"agent": agent.number, "key": key, "message_id": message_id, "parts": row.parts}
        for message_id, (agent, row) in [*zip(ids, new, strict=True), *grown.items()]
        for key in row.keys
    ]
    if keys:
        await tx.run_batch(KEY_PUT, keys)
    await _seen(tx, new)
    sessions = frozenset(row.session_id for _agent, row in new)
    return ImportAdded(len(new), len(grown), len(rows) - len(new) - len(grown), sessions)


async def _insert(tx: Driver, new: Sequence[tuple[_Known, ImportRow]]) -> list[int]:
    """Insert messages, and count them for their sessions; their ids."""
    counts: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for agent, row in new:
        row.columns["agent_id"] = agent.agent_id
        counts[row.session_id, agent.first, int(row.columns["fork_idx"] == 1)].append(row.columns)
    await tx.run(COUNT_BEGIN, {})
    ids = [new_id for (new_id,) in await tx.run_batch(MESSAGE_ADD, [row.columns for _agent, row in new])]
    await tx.run(COUNT_END, {})
    rows = [
        {
            "session_id": session_id,
            "messages": len(own),
            "last": max(columns["created_at"] for columns in own),
            "trunk": trunk,
            "first": first,
            **_titles(own[: 2 * first]),
        }
        for (session_id, first, trunk), own in counts.items()
    ]
    await tx.run_batch(COUNT, rows)
    return ids


def _titles(columns: Sequence[dict[str, Any]]) -> dict[str, str | None]:
    """What the first two new messages of a session's first agent would name it, if nothing else does."""
    first, second, *_ = [*(title(stored(one["data"])) for one in columns), None, None]
    return {"title_first": first, "title_second": second}


async def _known(tx: Driver, rows: Sequence[ImportRow]) -> dict[tuple[str, str], _Known]:
    """The agents of some rows, made where they are missing, with those of the rows' keys that are known."""
    by_agent: dict[tuple[str, str], list[ImportRow]] = defaultdict(list)
    for row in rows:
        by_agent[row.session_id, row.agent].append(row)
    sessions = sorted({row.session_id for row in rows})
    known = {
        (session_id, name): _Known(number, agent_id, model, cwd, _is_first(session_id, agent_id))
        for session_id, name, number, agent_id, model, cwd in await tx.run(AGENTS_KNOWN, {"session_ids": sessions})
    }
    missing = []
    for (session_id, name), own in by_agent.items():
        agent = known.get((session_id, name))
        if agent is None:
            agent_id = await _new_agent(tx, session_id, name, own[0])
            missing.append({"session_id": session_id, "name": name, "agent_id": agent_id})
            first = _is_first(session_id, agent_id)
            known[session_id, name] = _Known(0, agent_id, own[0].model, own[0].cwd, first)
        else:
            keys = [key for row in own for key in row.keys]
            seen = await tx.run(KEYS_KNOWN, {"agent": agent.number, "keys": keys})
            agent.keys = {key: (message_id, parts) for key, message_id, parts in seen}
    if missing:
        numbers = await tx.run_batch(AGENT_ADD, missing)
        for one, (number,) in zip(missing, numbers, strict=True):
            known[one["session_id"], one["name"]].number = number
    return known


def _is_first(session_id: str, agent_id: str) -> int:
    return int(agent_id == build_agent_id(session_id, 1))


async def _new_agent(tx: Driver, session_id: str, name: str, first: ImportRow) -> str:
    """Make the agent's row: index 1 for the session's own agent, the next free one from 2 on for others."""
    columns = {
        "session_id": session_id,
        "cwd": first.cwd,
        "model": first.model,
        "created_at": first.columns["created_at"],
    }
    index = 1
    while True:
        agent_id = build_agent_id(session_id, index)
        taken = index == 1 and name != MAIN
        if not taken and await tx.run(AGENT_NEW, {**columns, "agent_id": agent_id, "agent_idx": index}):
            return agent_id
        [(newest,)] = await tx.run(MAX_IDX, {"session_id": session_id, "fork_idx": None})
        index = max(index, newest or 1) + 1


async def _seen(tx: Driver, new: Sequence[tuple[_Known, ImportRow]]) -> None:
    """Note the model and the folder that each agent was seen with last, where they are others than before."""
    changed: dict[str, dict[str, str]] = {}
    for agent, row in new:
        if row.model not in ("", agent.model) or row.cwd not in ("", agent.cwd):
            agent.model, agent.cwd = row.model or agent.model, row.cwd or agent.cwd
            changed[agent.agent_id] = {"agent_id": agent.agent_id, "model": agent.model, "cwd": agent.cwd}
    if changed:
        await tx.run_batch(AGENT_SEEN, list(changed.values()))


async def _note(tx: Driver, facts: Sequence[ImportFacts]) -> None:
    """Note where sessions come from, and give them their titles."""
    known = dict(await tx.run(SESSIONS_KNOWN, {"session_ids": [fact.session_id for fact in facts]}))
    titles = {fact.session_id: fact.title or known.get(fact.session_id) or fact.opening for fact in facts}
    await tx.run_batch(
        SESSION_PUT,
        [
            {
                "session_id": fact.session_id,
                "format": fact.format,
                "path": fact.path,
                "title": titles[fact.session_id],
                "git_branch": fact.git_branch,
                "parent": fact.parent,
            }
            for fact in facts
        ],
    )
    changed = [
        {"session_id": session_id, "title": title}
        for session_id, title in titles.items()
        if title and title != known.get(session_id)
    ]
    if changed:
        await tx.run_batch(TITLE, changed)

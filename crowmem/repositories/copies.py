"""Copies: pages of rows in a form that both dialects read and write, for `crowmem.copying`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crowmem.indexing import INDEX_ADD, stored_entry
from crowmem.operation import M, Repository, operation
from crowmem.scope import agent_parts
from crowmem.statement import Statement, statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.drivers import Driver

COUNT = statement("session_add_messages")
NOTE_STRAY = statement("session_stray_note")
LAST = statement("copy_messages_last")
IDS = statement("copy_message_ids")
PUT_MANY = statement("copy_messages_put_many")
COUNTERS = statement("copy_counters")
COUNTERS_PUT = statement("copy_counters_put")
COUNTERS_ROWS = statement("copy_counters_rows")
TOKENS_ROW = statement("copy_tokens_row")
IMAGE_KEYS = statement("copy_image_keys")
SETTING_GET = statement("setting_get")
SETTING_PUT = statement("setting_put")
STATUS_ROWS = statement("store_rows")


@dataclass(frozen=True, slots=True)
class Table:
    """One table as it travels.

    Attributes:
        name: how reports call it.
        read: a page of rows after a key.
        write: one row.
        columns: of a row, in order; the write takes them by name.
        key: the columns that pages go by, whose last values are the next page's ``after``.
        start: before every key.
    """

    name: str
    read: Statement
    write: Statement
    columns: tuple[str, ...]
    key: tuple[str, ...]
    start: tuple[Any, ...]

    def after(self, key: Sequence[Any]) -> dict[str, Any]:
        """The parameters that name a place between pages."""
        if len(self.key) == 1:
            return {"after": key[0]}
        return {f"after_{column}": value for column, value in zip(self.key, key, strict=True)}


def _table(name: str, columns: str, *, key: str = "", start: tuple[Any, ...] = ("",), stem: str = "") -> Table:
    names = tuple(columns.split())
    stem = stem or name
    read, write = statement(f"copy_{stem}"), statement(f"copy_{stem}_put")
    return Table(name, read, write, names, tuple(key.split()) or names[:1], start)


MESSAGES = _table(
    "messages",
    "id agent_id fork_idx created_at data role prompt_tokens completion_tokens total_tokens injected",
    start=(0,),
)
# In the order they are written: what others name comes before them.
TABLES = (
    _table("prompts", "id name template created_at"),
    _table(
        "agents",
        "agent_id session_id agent_idx fork_idx forked_at cwd prompt_id prompt_args system_prompt tool_definitions "
        "mcp_servers request_params model_identifier status created_at forked_from",
    ),
    MESSAGES,
    _table("titles", "session_id title"),
    _table(
        "tasks",
        "task_id kind owner_session tool_call_id sub_session prompt model priority status result created_at "
        "finished_at",
    ),
    _table(
        "task_deliveries",
        "id session_id task_id priority content status created_at delivered_at attempts max_attempts due_at "
        "lease_token lease_worker last_error dedupe_key dead_at",
        start=(0,),
        stem="deliveries",
    ),
    _table("session_payloads", "session_id version updated_at payload", stem="payloads"),
    _table("tape_branches", "branch parent shared", start=(-1,), stem="branches"),
    _table(
        "tape_entries", "branch position handoff draft_id entry", key="branch position", start=(-1, 0), stem="entries"
    ),
    _table("tapes", "tape_id branch length window_start cuts created_at"),
    _table("tape_lines", "line tape_id branch length window_start left_at", start=(0,)),
    _table(
        "checkpoints",
        "checkpoint_id number tape_id branch session_id entry_count window_start created_at label plugin_states extra",
    ),
    _table("leases", "name owner token expires_at"),
    _table("import_sessions", "session_id format path title git_branch parent"),
    _table("import_agents", "id session_id name agent_id", start=(0,)),
    _table("import_keys", "agent key message_id parts", key="agent key", start=(-1, 0)),
    _table(
        "import_sources",
        "path format session_id size_bytes modified_us offset_bytes lines state fingerprint imported_at",
    ),
)


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages as one transaction writes them, with all that takes time to work out.

    Attributes:
        rows: the messages' columns.
        indexed: of each, how much of it the index has.
        index: the parameters of their index rows.
    """

    rows: list[tuple[Any, ...]]
    indexed: list[int]
    index: list[dict[str, Any]]


def message_batch(rows: list[tuple[Any, ...]], stem: bool, dialect: str) -> MessageBatch:
    """Make the index rows of messages for a store.

    Args:
        rows: as `Copies.page` gives them.
        stem: whether the store's index holds stems.
        dialect: the store's.
    """
    indexed: list[int] = []
    index: list[dict[str, Any]] = []
    for key, agent_id, _, created_at, data, role, _, _, _, injected in rows:
        entry = stored_entry((key, agent_id, role, created_at, data, injected), stem, dialect)
        indexed.append(entry.indexed)
        index += entry.rows(key)
    return MessageBatch(rows, indexed, index)


class Copies(Repository[M]):
    """Reading and writing a store table by table."""

    @operation
    async def page(self, table: Table, after: Sequence[Any], limit: int) -> list[tuple[Any, ...]]:
        """Rows of a table after a key, in its order."""
        return await self._many(table.read, **table.after(after), limit=limit)

    @operation
    async def put(self, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows in one transaction; those that are there are brought up to date."""
        named = [dict(zip(table.columns, row, strict=True)) for row in rows]
        async with self._driver.transaction() as tx:
            await tx.run_batch(table.write, named)

    @operation
    async def put_messages(self, batch: MessageBatch) -> None:
        """Write messages with index rows and sessions' counts, in one transaction; those there are left alone."""
        async with self._driver.transaction() as tx:
            new = set(await self._added(tx, batch))
            stamps: dict[str, list[str]] = {}
            for row in batch.rows:
                if row[0] in new:
                    stamps.setdefault(row[1], []).append(row[3])
            await tx.run_batch(COUNT, [_counted(agent_id, stamps[agent_id]) for agent_id in sorted(stamps)])
            await tx.run_batch(NOTE_STRAY, [{"agent_id": agent_id} for agent_id in sorted(stamps)])

    async def _added(self, tx: Driver, batch: MessageBatch) -> list[int]:
        """Insert the messages that are not there, and their index rows; the ids of these messages."""
        if tx.dialect == "postgres":
            columns = zip(MESSAGES.columns, zip(*batch.rows, strict=True), strict=True)
            each = {f"{name}_each": list(values) for name, values in columns}
            words = {f"{name}s": [row[name] for row in batch.index] for name in ("id", "doc", "len", "text")}
            return [key for (key,) in await tx.run(PUT_MANY, {**each, "indexed_each": batch.indexed, **words})]
        named = [
            {**dict(zip(MESSAGES.columns, row, strict=True)), "indexed": indexed}
            for row, indexed in zip(batch.rows, batch.indexed, strict=True)
        ]
        ids = [key for (key,) in await tx.run_batch(MESSAGES.write, named)]
        new = set(ids)
        await tx.run_batch(INDEX_ADD, [row for row in batch.index if row["id"] in new])
        return ids

    @operation
    async def last_message(self) -> int:
        """The newest message's id, 0 when there is none."""
        return int(await self._value(LAST))

    @operation
    async def message_ids(self, after: int, upto: int, limit: int) -> list[int]:
        """The ids of messages after one and up to another, in order."""
        return [key for (key,) in await self._many(IDS, after=after, upto=upto, limit=limit)]

    @operation
    async def is_empty(self) -> bool:
        """Whether nobody has used this store yet."""
        return not any(count for _, count in await self._many(STATUS_ROWS))

    @operation
    async def image_keys(self, after: str, limit: int) -> list[str]:
        """A page of the keys of images that messages name."""
        return [key for (key,) in await self._many(IMAGE_KEYS, after=after, limit=limit)]

    @operation
    async def counters(self) -> dict[str, int]:
        """The last numbers given out."""
        row = await self._one(COUNTERS)
        return dict(zip(("messages", "deliveries", "branches", "tokens"), map(int, row), strict=True))

    @operation
    async def raise_counters(self, counters: dict[str, int]) -> None:
        """Give out none of these numbers again."""
        async with self._driver.transaction() as tx:
            await tx.run(COUNTERS_PUT, counters)
            if self._driver.dialect == "sqlite":
                await tx.run(COUNTERS_ROWS, counters)
                await tx.run(TOKENS_ROW, counters)

    @operation
    async def setting(self, name: str) -> str | None:
        """A setting of the store."""
        found = await self._value(SETTING_GET, name=name)
        return None if found is None else str(found)

    @operation
    async def set_setting(self, name: str, value: str) -> None:
        """Set a setting of the store."""
        await self._many(SETTING_PUT, name=name, value=value)


def _counted(agent_id: str, stamps: list[str]) -> dict[str, Any]:
    place = agent_parts(agent_id)
    return {
        "session_id": place.session_id,
        "messages": len(stamps),
        "last": max(stamps),
        "trunk": int(place.fork_idx == 1),
        "first": int(place.fork_idx == 1 and place.agent_idx == 1),
        "title_first": None,  # titles come after the messages, as they stand in the source
        "title_second": None,
    }

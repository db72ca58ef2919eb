"""What a message becomes in the tables, and how one or many are written with their index rows and their session's line.

On PostgreSQL one message, or some hundreds, are a single statement: one round trip, one commit. On SQLite a round trip
costs nothing, and a transaction of three statements does the same.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from crowmem.content import title
from crowmem.errors import InvalidValue
from crowmem.ids import AgentId, parse_agent_id
from crowmem.indexing import Entry, entry
from crowmem.statement import statement
from crowmem.values import check_range, check_text, encode_object, now_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from crowmem.drivers import Driver

PUT = statement("message_put")
PUT_MANY = statement("message_put_many")
ADD = statement("message_add")
INDEX_ADD = statement("message_index_add")
COUNT = statement("session_add_messages")

USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
_ROLES = frozenset(("user", "assistant", "tool", "system"))  # the usual ones, which need no look
PIECE_ROWS = 500  # of one statement over arrays,
PIECE_CHARACTERS = 4 * 1024 * 1024  # which ends after so many of JSON
_OWN_COLUMNS = ("created_at", "data", "role", *USAGE, "indexed", "injected")  # not the same for all of one agent's


class Row(NamedTuple):
    """One message ready to be written.

    Attributes:
        columns: of its row in ``messages``, but for the id, and what it is to its session's line: ``title`` is what it
            would be as the session's title, None when its agent gives none.
        words: its index rows.
    """

    columns: dict[str, Any]
    words: Entry


@functools.lru_cache(maxsize=4096)
def _place(agent_id: str) -> AgentId:
    return parse_agent_id(check_text("agent_id", agent_id))


def place_of(agent_id: Any) -> AgentId:
    """The parts of an agent id that may go into a plain column.

    Raises:
        InvalidValue: it is malformed, too long, or no text.
    """
    return _place(agent_id) if type(agent_id) is str else parse_agent_id(check_text("agent_id", agent_id))


def make_row(
    agent_id: str,
    place: AgentId,
    message: Mapping[str, Any],
    usage: Mapping[str, Any] | None,
    created_at: Any,
    injected: bool,
    stem: bool,
    dialect: str,
    what: str,
) -> Row:
    """Check and encode a message, and find its words.

    Raises:
        InvalidValue: it cannot be stored; the error names it as ``what``.
    """
    data = encode_object(message, what)
    stamp = now_text() if created_at is None else time_text("created_at", created_at)
    role = message.get("role")
    if type(role) is not str or role not in _ROLES:
        role = "" if role is None else check_text(f"{what}.role", role, empty=True)
    index = entry(
        message,
        session_id=place.session_id,
        agent_id=agent_id,
        role=role,
        created_at=stamp,
        injected=injected,
        stem=stem,
        dialect=dialect,
        is_now=created_at is None,
    )
    trunk = place.fork_idx == 1
    first = trunk and place.agent_idx == 1
    columns: dict[str, Any] = {
        "agent_id": agent_id,
        "fork_idx": place.fork_idx,
        "created_at": stamp,
        "data": data,
        "role": role,
        "prompt_tokens": None,
        "completion_tokens": None,
        "total_tokens": None,
        "indexed": index.indexed,
        "injected": int(bool(injected)),
        "session_id": place.session_id,
        "trunk": int(trunk),
        "first": int(first),
        "title": title(message) if first else None,
    }
    if usage is not None:
        columns.update(_counted(usage, what))
    return Row(columns, index)


def _counted(usage: Mapping[str, Any], what: str) -> dict[str, int | None]:
    if not hasattr(usage, "get"):
        raise InvalidValue(
            f"usage of {what} is of type {type(usage).__name__}, expected a dict with {', '.join(USAGE)}"
        )
    return {
        name: None if usage.get(name) is None else check_range(f"usage.{name} of {what}", usage.get(name), 0, 2**31 - 1)
        for name in USAGE
    }


async def put(driver: Driver, row: Row) -> int:
    """Write one message and return its id."""
    texts = row.words.texts
    if len(texts) != 1:
        return (await put_many(driver, (row,)))[0]
    params = row.columns
    if driver.dialect == "sqlite":
        params["text"], params["scope"] = texts[0], row.words.scope
    else:
        params["tsv"], params["len"] = texts[0], row.words.lengths[0]
    [[new_id]] = await driver.run(PUT, params)
    return int(new_id)


async def put_many(driver: Driver, rows: Iterable[Row]) -> list[int]:
    """Write many messages of one agent, all or none, and return their ids.

    Rows of a generator are made inside the transaction, a piece of them at a time in memory.
    """
    if driver.dialect == "postgres":
        pieces = _pieces(rows)
        first, second = next(pieces, []), next(pieces, [])
        if not second:  # one statement needs no transaction around it
            return await _put_piece(driver, first) if first else []
        async with driver.transaction() as tx:
            return [new_id for piece in chain((first, second), pieces) for new_id in await _put_piece(tx, piece)]
    index: list[Entry] = []
    summary = _Summary()

    def columns() -> Iterator[dict[str, Any]]:
        for row in rows:
            index.append(row.words)
            summary.add(row)
            yield row.columns

    async with driver.transaction() as tx:
        ids = [int(new_id) for (new_id,) in await tx.run_batch(ADD, columns())]
        # only then the index: between two of its rows, any other would have it write out what it gathers in memory
        await tx.run_batch(
            INDEX_ADD, (one for new_id, made in zip(ids, index, strict=True) for one in made.rows(new_id))
        )
        if ids:
            await tx.run(COUNT, summary.params())
    return ids


async def _put_piece(driver: Driver, rows: list[Row]) -> list[int]:
    """One statement over arrays."""
    index = [
        (number, doc, length, text)
        for number, row in enumerate(rows, 1)
        for doc, (length, text) in enumerate(zip(row.words.lengths, row.words.texts, strict=True))
    ]
    summary = _Summary()
    for row in rows:
        summary.add(row)
    arrays = {f"{name}_each": [row.columns[name] for row in rows] for name in _OWN_COLUMNS}
    numbers, docs, lengths, texts = ([one[part] for one in index] for part in range(4))
    found = await driver.run(
        PUT_MANY,
        {
            **arrays,
            "agent_id": rows[0].columns["agent_id"],
            "fork_idx": rows[0].columns["fork_idx"],
            "numbers": numbers,
            "docs": docs,
            "lens": lengths,
            "tsvs": texts,
            **summary.params(),
        },
    )
    return sorted(int(new_id) for (new_id,) in found)


def _pieces(rows: Iterable[Row]) -> Iterator[list[Row]]:
    piece: list[Row] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(row.columns["data"])
        if len(piece) == PIECE_ROWS or size >= PIECE_CHARACTERS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


class _Summary:
    """What messages of one agent add to their session's line."""

    def __init__(self) -> None:
        self._count = 0
        self._last = ""
        self._first: list[dict[str, Any]] = []

    def add(self, row: Row) -> None:
        """Count one more."""
        self._count += 1
        self._last = max(self._last, row.columns["created_at"])
        if self._count <= 2:
            self._first.append(row.columns)

    def params(self) -> dict[str, Any]:
        """Of ``session_add_messages``."""
        one = self._first[0]
        return {
            "session_id": one["session_id"],
            "messages": self._count,
            "last": self._last,
            "trunk": one["trunk"],
            "first": one["first"],
            "title_first": one["title"],
            "title_second": self._first[1]["title"] if self._count > 1 else None,
        }

"""What a message puts into the search index, and how the index catches up with rows that other programs wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from crowmem.content import search_text, title, tool_names
from crowmem.errors import Busy
from crowmem.lexer import documents, plain
from crowmem.scope import agent_parts, scope_words
from crowmem.statement import statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crowmem.drivers import Driver

FOREIGN = statement("search_foreign")
DROP_ROWS = statement("search_drop_rows")
UNINDEX = statement("search_unindex")
MARK = statement("search_mark")
SECOND = statement("search_second")
TITLE = statement("session_title")
INDEX_ADD = statement("message_index_add")
INDEX_BULK = statement("message_index_bulk")
STATS_ADD = statement("message_stats_add")

BATCH = 256  # messages of one transaction
CAUGHT_UP = 20_000  # most messages that one search indexes before it looks
WHOLE, PARTLY = 1, 2  # messages.indexed


class Entry(NamedTuple):
    """The index rows of one message.

    Attributes:
        texts: of each row the tokens separated by blanks for FTS5, or the tsvector's literal but for the bucket's word.
        scope: the scope words for FTS5's second column; on PostgreSQL they are in the texts.
        indexed: 1, or 2 when the message has more words than its rows hold.
        counted: the lengths, where they are stored; FTS5 counts itself.
    """

    texts: list[str]
    scope: str
    indexed: int
    counted: list[int] | None = None

    @property
    def lengths(self) -> list[int]:
        """Of each row its tokens and scope words, as FTS5 counts its two columns."""
        if self.counted is not None:
            return self.counted
        return [len(text.split()) + len(self.scope.split()) for text in self.texts]

    def rows(self, message_id: int) -> list[dict[str, Any]]:
        """Parameters of ``message_index_add``."""
        if self.counted is None:
            return [
                {"id": message_id, "doc": number, "text": text, "scope": self.scope}
                for number, text in enumerate(self.texts)
            ]
        return [
            {"id": message_id, "doc": number, "len": length, "text": text}
            for number, (length, text) in enumerate(zip(self.counted, self.texts, strict=True))
        ]


def entry(
    message: Mapping[str, Any],
    *,
    session_id: str,
    agent_id: str,
    role: str,
    created_at: str,
    injected: bool,
    stem: bool,
    dialect: str,
    is_now: bool = False,
) -> Entry:
    """The index rows of a message, for one dialect."""
    content = message.get("content")
    if type(content) is str and "tool_calls" not in message and "reasoning_content" not in message:
        text, tools = content, []
    else:
        text, tools = search_text(message), tool_names(message)
    words = scope_words(
        session_id, agent_id, role, created_at=created_at, injected=injected, tools=tools, is_now=is_now
    )
    if dialect == "sqlite" and not stem and (only := plain(text)) is not None:
        return Entry([only] if only else [], " ".join(words), WHOLE)
    found = documents(text, stem=stem)
    indexed = WHOLE if found.complete else PARTLY
    if dialect == "sqlite":
        return Entry([document.text for document in found], " ".join(words), indexed)
    scope = " ".join([f"'{word}'" for word in words])
    lengths = [document.length + len(words) for document in found]
    return Entry([f"{document.tsvector} {scope}" for document in found], "", indexed, lengths)


async def catch_up(driver: Driver, *, stem: bool, most: int = CAUGHT_UP) -> int:
    """Index messages that another program wrote, and take out those that one deleted.

    Each batch is a transaction of its own, and what is done stays done. Several processes may do this at once. A store
    that is busy is left for the next time; `status` tells how far the index lags.

    Args:
        driver: a driver that may write.
        stem: whether the index holds stems.
        most: messages to index at most.

    Returns:
        How many messages were indexed.
    """
    done = 0
    try:
        while len(await driver.run(UNINDEX, {"most": BATCH})) == BATCH:
            continue
        while done < most:
            count = await _index_batch(driver, stem)
            done += count
            if count < BATCH:
                break
    except Busy:
        return done
    return done


async def _index_batch(driver: Driver, stem: bool) -> int:
    async with driver.transaction() as tx:
        found = await tx.run(FOREIGN, {"most": BATCH})
        if found:
            await index_messages(tx, found, stem=stem)
            await give_titles(tx, {agent_id for _, agent_id, *_ in found})
        return len(found)


async def index_messages(tx: Driver, messages: Sequence[Sequence[Any]], *, stem: bool) -> None:
    """Index stored messages anew, inside the caller's transaction.

    Args:
        tx: an open transaction.
        messages: rows of ``search_foreign`` or ``search_after``.
        stem: whether the index holds stems.
    """
    entries = {message[0]: stored_entry(message, stem, tx.dialect) for message in messages}
    rows: list[dict[str, Any]] = []
    for indexed in (WHOLE, PARTLY):
        ids = [message_id for message_id, made in entries.items() if made.indexed == indexed]
        if ids:
            still = [message_id for (message_id,) in await tx.run(MARK, {"ids": ids, "indexed": indexed})]
            await tx.run(DROP_ROWS, {"ids": still})
            rows += [row for message_id in sorted(still) for row in entries[message_id].rows(message_id)]
    if rows:
        if tx.dialect == "postgres":
            await tx.run(INDEX_BULK, {})
        await tx.run_batch(INDEX_ADD, rows)
        if tx.dialect == "postgres":
            await tx.run(STATS_ADD, {"docs": len(rows), "toks": sum(row["len"] for row in rows)})


def stored_entry(message: Sequence[Any], stem: bool, dialect: str) -> Entry:
    """The index rows of a stored message: id, agent id, role, stamp, data as text, injected."""
    _, agent_id, role, created_at, data, injected, *_ = message
    return entry(
        stored(data),
        session_id=agent_parts(agent_id).session_id,
        agent_id=agent_id,
        role=role,
        created_at=created_at,
        injected=bool(injected),
        stem=stem,
        dialect=dialect,
    )


def stored(data: str) -> dict[str, Any]:
    """The message of a stored text; {} for what another program wrote and is no JSON object."""
    try:
        found = json.loads(data)
    except (ValueError, TypeError, RecursionError):  # no text at all where a page of the file is damaged
        return {}
    return found if isinstance(found, dict) else {}


async def give_titles(tx: Driver, agent_ids: set[str]) -> None:
    """Name the sessions whose first agent is among these, from its second message, unless they have a name."""
    for agent_id in sorted(agent_ids):
        place = agent_parts(agent_id)
        if place.agent_idx == 1 and place.fork_idx == 1:
            found = await tx.run(SECOND, {"agent_id": agent_id, "session_id": place.session_id})
            if found:
                await tx.run(TITLE, {"session_id": place.session_id, "title": title(stored(found[0][0]))})

"""How the search index is doing: compared with the messages, for `memory.check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.errors import DatabaseError, StoreCorrupt
from crowmem.indexing import BATCH, stored_entry
from crowmem.lexer import LEXER
from crowmem.ranking import COUNTS
from crowmem.scope import MARK, WEEK
from crowmem.statement import statement
from crowmem.values import INTEGER
from crowmem.varints import varints

if TYPE_CHECKING:
    from crowmem.drivers import Driver
    from crowmem.indexing import Entry
    from crowmem.store import Store

AFTER = statement("search_after")
ROWS = statement("search_rows")
UNLIKE = statement("search_unlike")
VOCABULARY = statement("search_vocabulary")
GONE = statement("search_gone")
SIZES = statement("search_sizes")
STATS_DIFFER = statement("search_stats_differ")
SETTING_GET = statement("setting_get")

REINDEX = "reindex"  # the setting that says how far a reindexing has come
ID_MAX = (INTEGER[1] >> 6) - 1  # of a message whose index rows have numbers
_PAGE = 10_000  # words of the vocabulary read at once
_SUM = 1 << 64
_WEEK = MARK + WEEK  # a week's word may have been another when the message was indexed: it depends on the clock, too


async def problems(driver: Driver, store: Store, *, deep: bool) -> list[str]:
    """What is wrong with the index, in plain words.

    Args:
        driver: any driver.
        store: the store's settings.
        deep: tokenize every message and compare it with its index rows.
    """
    found: list[str] = []
    for (value,) in await driver.run(SETTING_GET, {"name": REINDEX}):
        found.append(
            f"search index: being made again, up to message {json.loads(value)['after']}; run `crowmem reindex`"
        )
    for (value,) in await driver.run(SETTING_GET, {"name": "lexer"}):
        if value != str(LEXER):
            found.append("search index: made by another version's lexer; run `crowmem reindex`")
    if deep and not found:
        found += await differences(driver, store)
    return found


async def differences(driver: Driver, store: Store) -> list[str]:
    """What is wrong with the index, every message compared with its index rows."""
    try:
        return await _compare(driver, store)
    except (StoreCorrupt, DatabaseError) as error:
        return [f"search index: damaged; run `crowmem reindex` ({error})"]


async def _compare(driver: Driver, store: Store) -> list[str]:
    """The same, as far as it can be read. What differs is looked at twice, since others may be writing."""
    found: list[str] = []
    wrong: set[int] = set()
    before = await _state(driver)
    after: int | None = 0
    words = 0
    while after is not None:
        different, last, of_words = await _different(driver, store, after)
        if different:
            again, last, of_words = await _different(driver, store, after)
            wrong |= different & again
        after = last
        words += of_words
    if wrong:
        found.append(
            f"search index: {len(wrong):,} messages are missing, changed or gone, the first is {min(wrong)}; "
            "run `crowmem reindex`"
        )
    elif before is not None and (await _vocabulary(driver) - words) % _SUM and before == await _state(driver):
        found.append("search index: its words are not those of the messages; run `crowmem reindex`")
    if await counts_differ(driver):
        found.append("search index: its counts are wrong; run `crowmem reindex`")
    return found


async def counts_differ(driver: Driver) -> bool:
    """Whether the numbers of rows and words that ranking uses are others than those of the index."""
    if driver.dialect == "postgres":
        return bool((await driver.run(STATS_DIFFER, {}))[0][0])
    (kept, _), *rows = await driver.run(SIZES, {})
    sums = [0, 0, 0]
    for sizes, number in rows:
        sums = [one + number * size for one, size in zip(sums, [1, *varints(sizes)], strict=False)]
    return (varints(kept or b"") or [0, 0, 0]) != sums


async def _different(driver: Driver, store: Store, after: int) -> tuple[set[int], int | None, int]:
    """The next messages whose index rows are not what they should be, the last message compared, the sum of the words.

    Messages that wait for being indexed or taken out, which `status` counts, are not among them.
    """
    messages = await driver.run(AFTER, {"after_id": after, "most": BATCH})
    last = messages[-1][0] if messages else None
    rows = await driver.run(ROWS, {"after_id": after, "upto": last or ID_MAX})
    waiting = {found[0] for found in messages if not found[6]} | {one for (one,) in await driver.run(GONE, {})}
    entries = {message[0]: stored_entry(message, store.stem, driver.dialect) for message in messages}
    expected = {
        (message_id << 6 | number, length)
        for message_id, made in entries.items()
        for number, length in enumerate(made.lengths)
    }
    has = {(row, sum(varints(length)) if isinstance(length, bytes) else length) for row, length in rows}
    wrong = {row >> 6 for row, _ in has ^ expected}
    if driver.dialect == "postgres":
        return (wrong | await _unlike(driver, entries)) - waiting, last, 0
    return wrong - waiting, last, sum(map(_words, entries.values()))


async def _unlike(driver: Driver, entries: dict[int, Entry]) -> set[int]:
    """Messages with an index row of other words."""
    made = [row for message_id, one in entries.items() for row in one.rows(message_id)]
    params = {
        "ids": [row["id"] for row in made],
        "docs": [row["doc"] for row in made],
        "texts": [row["text"] for row in made],
        "weeks": _WEEK,
    }
    return {message_id for (message_id,) in await driver.run(UNLIKE, params)}


def _words(made: Entry) -> int:
    """A sum over the words of a message's rows on SQLite, in whatever order they stand."""
    scope = sum(map(_word, made.scope.split()))
    return sum(sum(map(hash, text.split())) + scope for text in made.texts)  # no text has a scope word


async def _vocabulary(driver: Driver) -> int:
    """The same sum over all words of SQLite's index."""
    found, after = 0, ""
    while rows := await driver.run(VOCABULARY, {"after": after, "most": _PAGE}):
        found += sum(_word(word) * times for word, times in rows)
        after = rows[-1][0]
    return found


def _word(word: str) -> int:
    return hash(_WEEK) if word.startswith(_WEEK) else hash(word)


async def _state(driver: Driver) -> dict[int, Any] | None:
    """On SQLite what changes with the index; None while something waits to come in or to leave, and on PostgreSQL."""
    if driver.dialect == "postgres":
        return None
    places = dict(await driver.run(COUNTS, {"terms": [], "most": 1}))
    return None if places[-2] else places

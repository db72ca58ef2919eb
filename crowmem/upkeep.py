"""The care of the search index: made again, merged and counted, compared with the messages, cleaned after deletions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.errors import StoreCorrupt
from crowmem.indexing import BATCH, UNINDEX, catch_up, index_messages, stored_entry
from crowmem.lexer import LEXER
from crowmem.ranking import COUNTS
from crowmem.statement import statement
from crowmem.values import INTEGER
from crowmem.varints import varints

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowmem.drivers import Driver
    from crowmem.store import Store

TOTAL = statement("search_total")
AFTER = statement("search_after")
ROWS = statement("search_rows")
DROP_ORPHANS = statement("search_drop_orphans")
GONE = statement("search_gone")
CLEAR = statement("search_clear")
MERGE = statement("search_merge")
CHANGES = statement("search_changes")
MERGE_LIST = statement("search_merge_list")
COUNT_WORDS = statement("search_count_words")
RECOUNT = statement("search_recount")
STATS_DIFFER = statement("search_stats_differ")
STATS_LOCK = statement("search_stats_lock")
STATS_MEND = statement("search_stats_mend")
SETTING_GET = statement("setting_get")
SETTING_PUT = statement("setting_put")
SETTING_DROP = statement("search_setting_drop")

REINDEX = "reindex"  # the setting that says how far a reindexing has come
MERGED_PAGES = 1000  # of one step, some 4 MB: other writers wait no longer than that takes
COUNTED_MESSAGES = 16_384  # of one step, about a second
_ID_MAX = (INTEGER[1] >> 6) - 1  # of a message whose index rows have numbers
SCRUBBED_ROWS = 20_000  # an index of so many rows is merged after a deletion, which takes some tenths of a second


async def reindex(driver: Driver, store: Store, *, stem: bool, progress: Callable[[int, int], object] | None) -> int:
    """Make the index again, in batches, while it is used. One that was cut short goes on where it stopped.

    Args:
        driver: a driver outside a transaction.
        store: the store's settings; ``stem`` changes in them.
        stem: whether the index shall hold stems.
        progress: called with messages done and messages in all.

    Returns:
        How many messages were indexed by this call.
    """
    plan = {"stem": stem, "lexer": LEXER}
    after = await _begin(driver, plan)
    store.stem = stem
    store.frequencies.forget()
    [[total, newest]] = await driver.run(TOTAL, {})
    done = 0
    while True:
        try:
            count, last = await _reindex_batch(driver, plan, after, newest)
        except StoreCorrupt:
            await driver.run(CLEAR, {})
            after, done = 0, 0
            continue
        if not count:
            break
        after, done = last, done + count
        if progress is not None:
            progress(done, max(total, done))
    async with driver.transaction() as tx:
        await tx.run(SETTING_PUT, {"name": "lexer", "value": str(LEXER)})
        await tx.run(SETTING_DROP, {"name": REINDEX})
    if driver.dialect == "postgres" and (await driver.run(STATS_DIFFER, {}))[0][0]:
        async with driver.transaction() as tx:
            await tx.run(STATS_LOCK, {})
            await tx.run(STATS_MEND, {})
    await optimize(driver, store)
    return done


async def _begin(driver: Driver, plan: dict[str, Any]) -> int:
    """Where to go on: after the last message of an unfinished run with the same settings, else at the beginning."""
    async with driver.transaction() as tx:
        for (found,) in await tx.run(SETTING_GET, {"name": REINDEX}):
            known = json.loads(found)
            after = known.pop("after")
            if known == plan:
                return int(after)
        await tx.run(SETTING_PUT, {"name": REINDEX, "value": json.dumps({**plan, "after": 0})})
        await tx.run(SETTING_PUT, {"name": "stem", "value": str(int(plan["stem"]))})
        return 0


async def _reindex_batch(driver: Driver, plan: dict[str, Any], after: int, newest: int) -> tuple[int, int]:
    """The next messages up to the one that was newest at the beginning: later ones are written as they should be."""
    async with driver.transaction() as tx:
        found = [one for one in await tx.run(AFTER, {"after_id": after, "most": BATCH}) if one[0] <= newest]
        last = found[-1][0] if found else _ID_MAX
        await tx.run(DROP_ORPHANS, {"after_id": after, "upto": last})
        if found:
            await index_messages(tx, found, stem=plan["stem"])
            await tx.run(SETTING_PUT, {"name": REINDEX, "value": json.dumps({**plan, "after": last})})
        return len(found), last


async def optimize(driver: Driver, store: Store, *, merge: bool = True) -> None:
    """Finish what is left to do: rows of other programs, deleted words, and the counts that ranking uses.

    SQLite's index is merged into one piece, which is smaller and faster and holds no word of a deleted message;
    PostgreSQL's common words are counted, which makes its scores exact.

    Args:
        driver: a driver outside a transaction.
        store: the store's settings.
        merge: whether to do what takes time by all there is, not only by what is new: SQLite's merging.
    """
    while await catch_up(driver, stem=store.stem):
        continue
    if driver.dialect == "sqlite":
        if merge:
            await _merge(driver)
        return
    await driver.run(MERGE_LIST, {})
    await driver.run(RECOUNT, {})
    while (await driver.run(COUNT_WORDS, {"most": COUNTED_MESSAGES}))[0][0]:
        continue


async def _merge(driver: Driver) -> None:
    pages = -MERGED_PAGES
    while True:
        async with driver.transaction() as tx:
            [[before]] = await tx.run(CHANGES, {})
            await tx.run(MERGE, {"pages": pages})
            [[after]] = await tx.run(CHANGES, {})
        if after - before < 2:
            return
        pages = MERGED_PAGES


async def take_out(tx: Driver) -> None:
    """Take messages that this transaction deleted out of the index."""
    while len(await tx.run(UNINDEX, {"most": BATCH})) == BATCH:
        continue


async def scrub(driver: Driver) -> None:
    """Overwrite the words of deleted messages, if the index is small; `optimize` does it for any."""
    if driver.dialect == "sqlite" and not driver.in_transaction:
        places = dict(await driver.run(COUNTS, {"terms": [], "most": 1}))
        counted = varints(places[0])  # none before the first row
        if not counted or counted[0] <= SCRUBBED_ROWS:
            await _merge(driver)


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
        found += await _compare(driver, store)
    return found


async def _compare(driver: Driver, store: Store) -> list[str]:
    """Every message against its index rows. What differs is looked at twice, since others may be writing."""
    found: list[str] = []
    wrong: set[int] = set()
    after: int | None = 0
    while after is not None:
        different, last = await _different(driver, store, after)
        if different:
            again, last = await _different(driver, store, after)
            wrong |= different & again
        after = last
    if wrong:
        found.append(
            f"search index: {len(wrong):,} messages are missing, changed or gone, the first is {min(wrong)}; "
            "run `crowmem reindex`"
        )
    if driver.dialect == "postgres" and (await driver.run(STATS_DIFFER, {}))[0][0]:
        found.append("search index: its counts are wrong; run `crowmem reindex`")
    return found


async def _different(driver: Driver, store: Store, after: int) -> tuple[set[int], int | None]:
    """The next messages whose index rows are not what they should be, and the last of the messages compared.

    Messages that wait for being indexed or taken out, which `status` counts, are not among them.
    """
    messages = await driver.run(AFTER, {"after_id": after, "most": BATCH})
    last = messages[-1][0] if messages else None
    rows = await driver.run(ROWS, {"after_id": after, "upto": last or _ID_MAX})
    waiting = {found[0] for found in messages if not found[6]} | {one for (one,) in await driver.run(GONE, {})}
    expected = {
        (message[0] << 6 | number, length)
        for message in messages
        for number, length in enumerate(stored_entry(message, store.stem, driver.dialect).lengths)
    }
    has = {(row, sum(varints(length)) if isinstance(length, bytes) else length) for row, length in rows}
    return {row >> 6 for row, _ in has ^ expected} - waiting, last

"""The care of the search index: made again, merged and counted, cleaned after deletions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.errors import Conflict, StoreCorrupt
from crowmem.index_health import AFTER, ID_MAX, REINDEX, counts_differ, differences
from crowmem.indexing import BATCH, UNINDEX, catch_up, index_messages
from crowmem.lexer import LEXER
from crowmem.ranking import COUNTS
from crowmem.statement import statement
from crowmem.varints import varints

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowmem.drivers import Driver
    from crowmem.store import Store

TOTAL = statement("search_total")
DROP_ORPHANS = statement("search_drop_orphans")
CLEAR = statement("search_clear")
MERGE = statement("search_merge")
CHANGES = statement("search_changes")
MERGE_LIST = statement("search_merge_list")
COUNT_WORDS = statement("search_count_words")
DRIFT = statement("search_words_drift")
FORGET = statement("search_words_forget")
GONE_ROWS = statement("search_gone_rows")
RECOUNT = statement("search_recount")
STATS_LOCK = statement("search_stats_lock")
STATS_MEND = statement("search_stats_mend")
SETTING_GET = statement("setting_get")
SETTING_PUT = statement("setting_put")
SETTING_DROP = statement("search_setting_drop")

MERGED_PAGES = 1000  # of one step, some 4 MB: other writers wait no longer than that takes
COUNTED_MESSAGES = 16_384  # of one step, about a second
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
    try:
        done = await _reindex_after(driver, plan, after, progress)
        damaged = driver.dialect == "sqlite" and bool(await differences(driver, store))
    except _Damaged:
        damaged = True
    if damaged:  # where, FTS5 does not say: words may be left in it that nobody wrote
        async with driver.transaction() as tx:
            await tx.run(CLEAR, {})
            await tx.run(SETTING_PUT, {"name": REINDEX, "value": json.dumps({**plan, "after": 0})})
        done = await _reindex_after(driver, plan, 0, progress)
    async with driver.transaction() as tx:
        await tx.run(SETTING_PUT, {"name": "lexer", "value": str(LEXER)})
        await tx.run(SETTING_DROP, {"name": REINDEX})
    await optimize(driver, store)
    return done


class _Damaged(StoreCorrupt):
    """The index is in no state to be written to, so it is emptied; if that does not help, more than it is damaged."""


async def _reindex_after(
    driver: Driver, plan: dict[str, Any], after: int, progress: Callable[[int, int], object] | None
) -> int:
    """Index all messages after one of them; how many they were."""
    [[total, newest]] = await driver.run(TOTAL, {})
    done = 0
    while True:
        count, after = await _reindex_batch(driver, plan, after, newest)
        if not count:
            break
        done += count
        if progress is not None:
            progress(done, max(total, done))
    if driver.dialect == "postgres" and await counts_differ(driver):
        async with driver.transaction() as tx:
            await tx.run(STATS_LOCK, {})
            await tx.run(STATS_MEND, {})
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
    read = False
    try:
        async with driver.transaction() as tx:
            found = [one for one in await tx.run(AFTER, {"after_id": after, "most": BATCH}) if one[0] <= newest]
            read = True
            last = found[-1][0] if found else ID_MAX
            await tx.run(DROP_ORPHANS, {"after_id": after, "upto": last})
            if found:
                await index_messages(tx, found, stem=plan["stem"])
                await tx.run(SETTING_PUT, {"name": REINDEX, "value": json.dumps({**plan, "after": last})})
    except (StoreCorrupt, Conflict) as error:
        # where the list of FTS5's pages is damaged, it writes one that is there already
        if not read or (isinstance(error, Conflict) and driver.dialect != "sqlite"):
            raise
        raise _Damaged(str(error)) from error
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
    if (gone := (await driver.run(DRIFT, {}))[0][0]) > 0:
        await driver.run(FORGET, {"most": gone})
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
    """Take messages that this transaction deleted out of the index, and out of the counted words what only they had."""
    rows = (await tx.run(GONE_ROWS, {}))[0][0] if tx.dialect == "postgres" else 0
    while len(await tx.run(UNINDEX, {"most": BATCH})) == BATCH:
        continue
    if rows:
        await tx.run(FORGET, {"most": rows})


async def scrub(driver: Driver) -> None:
    """Overwrite the words of deleted messages, if the index is small; `optimize` does it for any."""
    if driver.dialect == "sqlite" and not driver.in_transaction:
        places = dict(await driver.run(COUNTS, {"terms": [], "most": 1}))
        counted = varints(places[0])  # none before the first row
        if not counted or counted[0] <= SCRUBBED_ROWS:
            await _merge(driver)

"""Appending to tapes: one statement on PostgreSQL, one short transaction on SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.statement import statement

if TYPE_CHECKING:
    from crowmem.drivers import Driver
    from crowmem.entries import Batch
    from crowmem.store import Store

APPEND = statement("tape_append")
APPEND_KNOWN = statement("tape_append_known")
GROW = statement("tape_grow")
MAKE = statement("tape_make")
BRANCH_ID = statement("tape_branch_id")
ENTRY_ADD = statement("tape_entry_add")
ENTRY_ADD_MARKED = statement("tape_entry_add_marked")

MOST = 100_000  # tapes remembered; past it all are forgotten


async def append_part(
    driver: Driver, store: Store, tape_id: str, batch: Batch, expected: int | None, draft_id: str | None
) -> int | None:
    """Append what one statement carries; the new length, or None when the tape has another length."""
    if driver.dialect == "postgres":
        return await _append_postgres(driver, store.tapes, tape_id, batch, expected, draft_id)
    if driver.in_transaction:
        return await _append_sqlite(driver, tape_id, batch, expected, draft_id)
    async with driver.transaction() as tx:
        return await _append_sqlite(tx, tape_id, batch, expected, draft_id)


async def _append_postgres(
    driver: Driver, known: set[str], tape_id: str, batch: Batch, expected: int | None, draft_id: str | None
) -> int | None:
    handoffs = batch.handoffs
    if tape_id in known and not handoffs and expected is None and draft_id is None:
        rows = await driver.run(APPEND_KNOWN, {"tape_id": tape_id, "entries": batch.texts})
        if rows:
            return int(rows[0][0])
    rows = await driver.run(
        APPEND,
        {
            "tape_id": tape_id,
            "entries": batch.texts,
            "handoffs": handoffs,
            "handoff": handoffs[-1] if handoffs else None,
            "expected": expected,
            "draft_id": draft_id,
        },
    )
    if not rows:
        return None
    if len(known) >= MOST:
        known.clear()
    known.add(tape_id)
    return int(rows[0][0])


async def _append_sqlite(
    tx: Driver, tape_id: str, batch: Batch, expected: int | None, draft_id: str | None
) -> int | None:
    texts, handoffs = batch.texts, batch.handoffs
    head: dict[str, Any] = {
        "tape_id": tape_id,
        "entries": len(texts),
        "handoff": handoffs[-1] if handoffs else None,
        "expected": expected,
    }
    rows = await tx.run(GROW, head)
    if not rows and not expected:
        [[branch]] = await tx.run(BRANCH_ID, {})
        rows = await tx.run(MAKE, {**head, "branch": branch})
    if not rows:
        return None
    branch, length = rows[0]
    first = branch << 32 | (length - len(texts))
    if handoffs or draft_id:
        marked = set(handoffs)
        await tx.run_batch(
            ENTRY_ADD_MARKED,
            [
                {
                    "id": first + place,
                    "handoff": place in marked,
                    "draft_id": None if place else draft_id,
                    "entry": text,
                }
                for place, text in enumerate(texts)
            ],
        )
    elif len(texts) == 1:
        await tx.run(ENTRY_ADD, {"id": first, "entry": texts[0]})
    else:
        await tx.run_batch(ENTRY_ADD, [{"id": first + place, "entry": text} for place, text in enumerate(texts)])
    return int(length)

"""Copies a whole store into another, of any dialect: rows, images, counters; then compares the two.

Everything keeps its id, time and order. A copy that was cut short goes on where it stopped, and one that is repeated
brings the target up to date. Messages are indexed anew, since the target may stem where the source does not.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from crowmem.errors import BlobDamaged, Conflict, SchemaTooOld
from crowmem.image_keeping import join
from crowmem.opening import backup_file
from crowmem.operation import drive
from crowmem.repositories.copies import MESSAGES, TABLES, Copies, Table, message_batch
from crowmem.values import INTEGER

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from crowmem.memory import Memory
    from crowmem.operation import Sync

PAGE_ROWS = 500
BATCH_ROWS = 4000  # messages of one transaction; a copy that is cut short does so many again at most
HUGE = 1_000_000  # characters of one page's messages, after which smaller pages are read
IDS = 100_000  # of messages, compared at once where a copy goes on
SOURCE_SETTING = "copied_from"
_HASH_BITS = 256

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Content:
    """What a table holds: how many rows, and a hash that their order does not change."""

    rows: int
    digest: str


@dataclass(slots=True)
class CopyReport:
    """What a copy did.

    Attributes:
        rows: rows written or found equal, by table.
        images: images copied or there already.
        missing_images: keys that messages name and the source's store has no good copy of.
        differences: tables whose content is not the same on both sides, in plain words; empty when all is well.
    """

    rows: dict[str, int] = field(default_factory=dict)
    images: int = 0
    missing_images: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


@contextmanager
def opened_source(
    url: str | Path,
    *,
    config: str | Path | None = None,
    images: str | Path | None = None,
    schema: str = "public",
) -> Iterator[Memory]:
    """A store to copy from, read-only. One of an older schema is brought up to date in a temporary copy of its file.

    Raises:
        NotFound: there is no such store.
        SchemaMismatch: it is none of ours; SchemaTooOld: a v4 crow.db, which `crowmem import` reads.
    """
    from crowmem.memory import Memory
    from crowmem.urls import normalize

    path = normalize(url).path
    with ExitStack() as later:
        try:
            memory = Memory.open(url, config=config, images=images, schema=schema, read_only=True)
        except SchemaTooOld:
            if path is None:
                raise
            folder = later.enter_context(TemporaryDirectory(prefix="crowmem-copy-"))
            upgraded = Path(folder) / "crow.db"
            backup_file(path, upgraded)
            memory = Memory.open(upgraded, config=config, images=images or path.parent / "images")
        yield later.enter_context(memory)


def copy_store(
    source: Memory, target: Memory, *, progress: Callable[[int, int], object] | None = None, verify: bool = True
) -> CopyReport:
    """Copy everything in one store into another.

    A copy adds and changes rows; what the source deleted since an earlier copy stays, and is told as a difference.

    Args:
        source: the store to read; read-only will do. Rows written to it meanwhile may or may not come along.
        target: an empty store, or one that an earlier copy of the same source began.
        progress: called with messages copied and messages in all.
        verify: read both stores to the end and compare every table.

    Raises:
        Conflict: the target has rows that did not come from this source.
    """
    reading: Copies[Sync] = Copies(source._driver, source._store, blocking=True)
    writing: Copies[Sync] = Copies(target._driver, target._store, blocking=True)
    _claim(reading, writing, target)
    report = CopyReport()
    _copy_images(source, target, reading, report)  # before the messages that name them
    for table in TABLES:
        if table is MESSAGES:
            report.rows[table.name] = _copy_messages(reading, writing, progress)
        else:
            report.rows[table.name] = _copy_table(reading, writing, table)
    writing.raise_counters(reading.counters())
    if verify:
        report.differences = compare_stores(source, target)
    return report


def compare_stores(one: Memory, two: Memory) -> list[str]:
    """The tables in which two stores differ, in plain words; empty when they hold the same."""
    first, second = contents(one), contents(two)
    return [
        f"{name}: {first[name].rows:,} rows in the one and {second[name].rows:,} in the other"
        if first[name].rows != second[name].rows
        else f"{name}: {first[name].rows:,} rows in both, which are not the same"
        for name in first
        if first[name] != second[name]
    ]


def contents(memory: Memory) -> dict[str, Content]:
    """What every table of a store holds, by name. Reads all of it."""
    copies: Copies[Sync] = Copies(memory._driver, memory._store, blocking=True)
    found = {}
    for table in TABLES:
        rows = total = 0
        for page in _pages(copies, table, table.start):
            for row in page:
                digest = hashlib.sha256(json.dumps(row, ensure_ascii=True, default=str).encode()).digest()
                total = (total + int.from_bytes(digest, "big")) % (1 << _HASH_BITS)
                rows += 1
        found[table.name] = Content(rows, f"{total:064x}")
    return found


def _claim(reading: Copies[Sync], writing: Copies[Sync], target: Memory) -> None:
    """Mark the target as this source's copy, unless it is somebody else's."""
    source_id = reading.setting("store_id") or ""
    claimed = writing.setting(SOURCE_SETTING)
    if source_id == writing.setting("store_id"):
        raise Conflict(f"{target._store.where}: source and target are the same store")
    if claimed is None and not writing.is_empty():
        raise Conflict(f"{target._store.where}: the target has rows of its own; copy into an empty store")
    if claimed not in (None, source_id):
        raise Conflict(f"{target._store.where}: the target is the copy of another store; copy into an empty one")
    if writing.last_message() > reading.counters()["messages"]:
        raise Conflict(
            f"{target._store.where}: the target took messages of its own since it was copied, so older rows would be "
            "written over newer ones; copy into an empty store"
        )
    writing.set_setting(SOURCE_SETTING, source_id)


def _copy_table(reading: Copies[Sync], writing: Copies[Sync], table: Table) -> int:
    rows = 0
    for page in _pages(reading, table, table.start):
        writing.put(table, page)
        rows += len(page)
    return rows


def _copy_messages(reading: Copies[Sync], writing: Copies[Sync], progress: Callable[[int, int], object] | None) -> int:
    last = writing.last_message()
    total = reading.last_message()
    stem, dialect = writing._store.stem, writing._driver.dialect
    rows = 0
    found = _gathered(chain(_late(reading, writing, last), _pages(reading, MESSAGES, (last,))))
    with closing(_ahead(message_batch(some, stem, dialect) for some in found)) as batches:
        for batch in batches:
            writing.put_messages(batch)
            rows += len(batch.rows)
            if progress:
                progress(batch.rows[-1][0], total)
    return rows


def _late(reading: Copies[Sync], writing: Copies[Sync], last: int) -> Iterator[list[tuple[Any, ...]]]:
    """What an earlier copy passed over: on PostgreSQL a message may become visible after others with larger ids."""
    after = 0
    while ids := reading.message_ids(after, last, IDS):
        for key in sorted({*ids}.difference(writing.message_ids(after, ids[-1], INTEGER[1]))):
            yield reading.page(MESSAGES, (key - 1,), 1)
        after = ids[-1]


def _gathered(pages: Iterator[list[tuple[Any, ...]]]) -> Iterator[list[tuple[Any, ...]]]:
    """Pages put together until they are worth a transaction: an index takes many messages at once with less work."""
    found: list[tuple[Any, ...]] = []
    size = 0
    for page in pages:
        found += page
        size += _size(page)
        if len(found) >= BATCH_ROWS or size >= 4 * HUGE:
            yield found
            found, size = [], 0
    if found:
        yield found


def _ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """The same items, each made while the one before it is at work: the two stores seldom wait for the same thing."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "crowmem-copy") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def _copy_images(source: Memory, target: Memory, reading: Copies[Sync], report: CopyReport) -> None:
    after = ""
    while keys := reading.image_keys(after, PAGE_ROWS):
        drive(join(target._driver, target._store))  # also where all images are there already, in a folder of both
        for key in keys:
            if not target.images.exists(key):
                try:
                    data = source.images.get(key)
                except BlobDamaged:
                    data = None
                if data is None:
                    report.missing_images.append(key)
                    continue
                target.images.put(data)
            report.images += 1
        after = keys[-1]


def _pages(copies: Copies[Sync], table: Table, after: tuple[Any, ...]) -> Iterator[list[tuple[Any, ...]]]:
    """Pages of a table; of large rows fewer at a time, so that memory stays bounded."""
    places = [table.columns.index(column) for column in table.key]
    limit = PAGE_ROWS
    while page := copies.page(table, after, limit):
        yield page
        last = page[-1]
        after = tuple(last[place] for place in places)
        limit = max(1, limit // 2) if _size(page) > 4 * HUGE else min(PAGE_ROWS, limit * 2)


def _size(page: list[tuple[Any, ...]]) -> int:
    """Characters of a page."""
    return sum(len(value) for row in page for value in row if isinstance(value, str))

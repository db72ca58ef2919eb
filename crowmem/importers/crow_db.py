"""crow.db: the store of crow-cli, versions 4 and 5 of its schema, a SQLite file with its images in a folder beside it.

Everything is taken over as it is: prompts, agents with their forks, messages in their order, tasks and mail. A file of
version 4 has no forks: its agents are trunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.blobs.keys import is_key, matches
from crowmem.importers.items import Item, Mark, Skip, StoreRow
from crowmem.importers.places import Format, below
from crowmem.importers.sqlite_files import companions, has_tables, opened, rows, tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import apsw

    from crowmem.importers.source import Head, Source

_PAGE = 500
_PAGES: dict[str, str] = {  # in the order they are yielded
    "prompts": "select rowid as row_number, * from prompts where rowid > ? order by rowid limit ?",
    "agents": "select rowid as row_number, * from agents where rowid > ? order by rowid limit ?",
    "messages": "select id as row_number, * from messages where id > ? order by id limit ?",
    "tasks": "select rowid as row_number, * from tasks where rowid > ? order by rowid limit ?",
    "task_deliveries": "select id as row_number, * from task_deliveries where id > ? order by id limit ?",
}
_FIRST = "select id, agent_id, created_at from messages order by id limit 1"


def sniff(head: Head) -> bool:
    """A SQLite file with crow's tables."""
    return has_tables(head, {"agents", "messages"}, {"session", "part"})


def read(source: Source) -> Iterator[Item]:
    """The rows of all tables, those of one table after the other.

    Messages up to the last one that was read before are passed over, while the file's first message is the same.
    """
    with opened(source.path) as file:
        if file is None:
            yield Skip(str(source.path), 0, "not a SQLite file that can be read")
            return
        there = tables(file)
        first = [list(row) for row in file.execute(_FIRST)]
        last = source.former.get("last", 0) if source.former.get("first") == first else 0
        for table in [table for table in _PAGES if table in there]:
            for row in _rows(file, table, last if table == "messages" else 0):
                if table == "messages":
                    source.records += 1
                    last = row["id"]
                yield StoreRow(table, row)
        for table in sorted(there - _PAGES.keys()):
            if not table.startswith(("sqlite_", "messages_fts", "message_index", "crowmem_")):
                source.passed[f"table {table}"] += 1
        source.state = {"first": first, "last": last}
    yield Mark(0, 0)


def _rows(file: apsw.Connection, table: str, after: int) -> Iterator[dict[str, Any]]:
    """Rows in pages, so that no read stays open while they are stored."""
    while page := rows(file, _PAGES[table], (after, _PAGE)):
        for row in page:
            after = row.pop("row_number")
            yield row


def image(path: Path, key: str) -> bytes | None:
    """An image of a file's messages, from the folder beside it; None when it is missing or damaged."""
    try:
        data = (path.parent / "images" / key).read_bytes() if is_key(key) else None
    except OSError:
        return None
    return data if data is not None and matches(key, data) else None


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The store of crow-cli."""
    return below(home / ".agents" / "crow" / "crow.db")


FORMAT = Format(name="crow-db", title="crow.db", sniff=sniff, read=read, discover=discover, companions=companions)

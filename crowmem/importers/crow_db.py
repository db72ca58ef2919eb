"""crow.db: the store of crow-cli, versions 4 and 5 of its schema, a SQLite file with its images in a folder beside it.

Everything is taken over as it is: prompts, agents with their forks, messages in their order, tasks and mail. A file of
version 4 has no forks: its agents are trunks. The file is opened so that nothing is written to it or beside it, unless
a write-ahead log is there, which only SQLite's own shared memory can read.
"""

from __future__ import annotations

import urllib.parse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowmem.blobs.keys import is_key, matches
from crowmem.importers.items import Item, Mark, Skip, StoreRow
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import apsw

    from crowmem.importers.source import Head, Source

MAGIC = b"SQLite format 3\0"
NAME = "crow-db"
_PAGE = 500
_TABLES = ("prompts", "agents", "messages", "tasks", "task_deliveries")  # in the order they are yielded
_FROM: dict[str, str] = {
    "prompts": "select * from prompts where rowid > ? order by rowid limit ?",
    "agents": "select * from agents where rowid > ? order by rowid limit ?",
    "messages": "select * from messages where id > ? order by id limit ?",
    "tasks": "select * from tasks where rowid > ? order by rowid limit ?",
    "task_deliveries": "select * from task_deliveries where id > ? order by id limit ?",
}
_OURS = "crowmem_steps"


def sniff(head: Head) -> bool:
    """A SQLite file with crow's tables."""
    if not head.raw.startswith(MAGIC):
        return False
    with _opened(head.path) as file:
        tables = _tables(file) if file is not None else set()
    return {"agents", "messages"} <= tables and "session" not in tables


def read(source: Source) -> Iterator[Item]:
    """The rows of all tables, those of one table after the other; then where the next run begins.

    Messages with ids up to the last one that was read before are passed over, while the first message is the same.
    """
    with _opened(source.path) as file:
        if file is None:
            yield Skip(str(source.path), 0, "not a SQLite file that can be read")
            return
        tables = _tables(file)
        first = _first(file)
        former = source.former if source.former.get("first") == first else {}
        last = former.get("last", 0)
        for table in _TABLES:
            if table not in tables:
                continue
            after = last if table == "messages" else 0
            for key, row in _rows(file, table, after):
                if table == "messages":
                    source.records += 1
                    last = key
                yield StoreRow(table, row)
        for table in sorted(tables - set(_TABLES)):
            if not table.startswith(("sqlite_", "messages_fts")):
                source.passed[f"table {table}"] += 1
        source.state = {"first": first, "last": last}
    yield Mark(0, 0)


def images_of(path: Path) -> Path:
    """The folder of a file's images."""
    return path.parent / "images"


def image(path: Path, key: str) -> bytes | None:
    """An image of a file's messages; None when it is missing or damaged."""
    try:
        data = (images_of(path) / key).read_bytes() if is_key(key) else None
    except OSError:
        return None
    return data if data is not None and matches(key, data) else None


def companions(path: Path) -> list[Path]:
    """The write-ahead log: what was written last may stand only there."""
    return [Path(f"{path}-wal")]


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection | None]:
    """The file, for reading; None when it is none."""
    import apsw

    log = Path(f"{path}-wal")
    try:
        quiet = not log.exists() or log.stat().st_size == 0
        uri = f"file:{urllib.parse.quote(str(path))}?mode=ro{'&immutable=1' if quiet else ''}"
        file = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except (apsw.Error, OSError):
        yield None
        return
    try:
        file.set_busy_timeout(5000)
        file.execute("select 1 from sqlite_schema limit 1").fetchall()
    except apsw.Error:
        file.close()
        yield None
        return
    try:
        yield file
    finally:
        file.close()


def _tables(file: apsw.Connection) -> set[str]:
    return {name for (name,) in file.execute("select name from sqlite_schema where type = 'table'")}


def _first(file: apsw.Connection) -> list[Any]:
    """What tells this file's messages from another's at the same place."""
    rows = file.execute("select id, agent_id, created_at from messages order by id limit 1").fetchall()
    return list(rows[0]) if rows else []


def _rows(file: apsw.Connection, table: str, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows by their number, in pages, so that no read stays open while they are stored."""
    while True:
        cursor = file.cursor()
        cursor.execute(_FROM[table].replace("select *", "select rowid as row_number, *"), (after, _PAGE))
        page = []
        for values in cursor:
            names = [name for name, _kind in cursor.get_description()]
            page.append((int(values[0]), dict(zip(names[1:], values[1:], strict=True))))
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1][0]


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The store of crow-cli."""
    return below(home / ".agents" / "crow" / "crow.db")


FORMAT = Format(name=NAME, title="crow.db", sniff=sniff, read=read, discover=discover, companions=companions)

"""Other programs' SQLite files, opened so that nothing is written to them or beside them.

A file without a write-ahead log is read as one that does not change; with one it needs the shared memory beside it,
which SQLite makes if it is missing, since the newest rows stand only in the log.
"""

from __future__ import annotations

import urllib.parse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from crowmem.importers.source import Head

MAGIC = b"SQLite format 3\0"
_BUSY_MS = 5000


@contextmanager
def opened(path: Path) -> Iterator[apsw.Connection | None]:
    """A file, for reading; None when it cannot be read as one."""
    import apsw

    file: apsw.Connection | None = None
    try:
        log = Path(f"{path}-wal")
        quiet = not log.exists() or log.stat().st_size == 0
        uri = f"file:{urllib.parse.quote(str(path))}?mode=ro{'&immutable=1' if quiet else ''}"
        file = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        file.set_busy_timeout(_BUSY_MS)
        file.execute("select 1 from sqlite_schema limit 1").fetchall()
    except (apsw.Error, OSError):
        if file is not None:
            file.close()
        file = None
    try:
        yield file
    finally:
        if file is not None:
            file.close()


def tables(file: apsw.Connection) -> set[str]:
    """The names of a file's tables."""
    return {name for (name,) in file.execute("select name from sqlite_schema where type = 'table'")}


def has_tables(head: Head, wanted: set[str], unwanted: set[str]) -> bool:
    """Whether a file is SQLite's and has some tables, and none of others."""
    if not head.raw.startswith(MAGIC):
        return False
    with opened(head.path) as file:
        found = tables(file) if file is not None else set()
    return wanted <= found and not unwanted & found


def rows(file: apsw.Connection, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The rows of a query by column name; whatever columns a version has."""
    cursor = file.cursor()
    cursor.execute(query, values)
    found = []
    for row in cursor:
        names = [name for name, _kind in cursor.get_description()]
        found.append(dict(zip(names, row, strict=True)))
    return found


def companions(path: Path) -> list[Path]:
    """The write-ahead log: what was written last may stand only there."""
    return [Path(f"{path}-wal")]

"""From SQLite's result codes to crowmem's errors, by code and never by message text."""

from __future__ import annotations

import contextlib
import errno
from json import JSONDecodeError
from typing import TYPE_CHECKING

import apsw

from crowmem import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.statement import Statement

_KINDS: dict[int, type[errors.CrowmemError]] = {
    apsw.SQLITE_BUSY: errors.Busy,
    apsw.SQLITE_LOCKED: errors.Busy,
    apsw.SQLITE_CONSTRAINT: errors.InvalidValue,
    apsw.SQLITE_CONSTRAINT_UNIQUE: errors.Conflict,
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY: errors.Conflict,
    apsw.SQLITE_CONSTRAINT_ROWID: errors.Conflict,
    apsw.SQLITE_CONSTRAINT_FOREIGNKEY: errors.Conflict,
    apsw.SQLITE_MISMATCH: errors.InvalidValue,
    apsw.SQLITE_TOOBIG: errors.InvalidValue,
    apsw.SQLITE_RANGE: errors.InvalidValue,
    apsw.SQLITE_FULL: errors.StoreFull,
    apsw.SQLITE_CORRUPT: errors.StoreCorrupt,
    apsw.SQLITE_NOTADB: errors.SchemaMismatch,
    apsw.SQLITE_READONLY: errors.ReadOnly,
    apsw.SQLITE_PERM: errors.ReadOnly,
    apsw.SQLITE_CANTOPEN: errors.Unavailable,
    apsw.SQLITE_IOERR: errors.Unavailable,
    apsw.SQLITE_IOERR_SHMSIZE: errors.StoreFull,
    apsw.SQLITE_PROTOCOL: errors.Busy,
    apsw.SQLITE_NOMEM: errors.Unavailable,
}
_HINTS = {
    errors.Busy: "another program holds the lock",
    errors.StoreFull: "no room left: free some, then try again",
    errors.SchemaMismatch: "this is not a crowmem store",
    errors.ReadOnly: "the store is read-only here",
}
_CANNOT_OPEN = (
    "its log has two files beside it, for readers too, so its folder must be writable: give the right, or copy the "
    "file to such a place"
)
_SYSTEM: dict[int, type[errors.CrowmemError]] = {
    errno.ENOSPC: errors.StoreFull,
    errno.EDQUOT: errors.StoreFull,
    errno.EROFS: errors.ReadOnly,
    errno.EACCES: errors.ReadOnly,
    errno.EPERM: errors.ReadOnly,
}


FAILURES = (apsw.Error, OSError, OverflowError, UnicodeError, JSONDecodeError)
"""What `translate` turns into errors of ours."""


@contextlib.contextmanager
def translated(statement: Statement | None, store: str) -> Iterator[None]:
    """A block whose failures are translated. Where a call costs microseconds, `translate` does without the block."""
    try:
        yield
    except FAILURES as error:
        raise translate(error, statement, store) from error


def translate(error: Exception, statement: Statement | None, store: str) -> errors.CrowmemError:
    """What apsw or the file system raised, as an error of ours with the statement's name and place."""
    if isinstance(error, apsw.InterruptError):
        return _named(errors.Unavailable("the statement was interrupted"), statement, store)
    if isinstance(error, apsw.ConnectionClosedError):
        return _named(errors.Closed(), statement, store)
    if isinstance(error, apsw.Error):
        extended = getattr(error, "extendedresult", 0)
        kind = _KINDS.get(extended) or _KINDS.get(extended & 0xFF) or errors.DatabaseError
        hint = _CANNOT_OPEN if extended & 0xFF == apsw.SQLITE_CANTOPEN else _HINTS.get(kind)
        return _named(kind(f"{error}{f': {hint}' if hint else ''}"), statement, store)
    if isinstance(error, OSError):
        kind = _SYSTEM.get(error.errno or 0, errors.Unavailable)
        return _named(kind(f"{error.strerror} ({error.filename})"), statement, store)
    if isinstance(error, (UnicodeDecodeError, JSONDecodeError)):  # what was stored is neither, so a page is damaged
        kind = errors.StoreCorrupt
        return _named(kind(f"{error}: `crowmem check --deep` looks for more"), statement, store)
    return _named(errors.InvalidValue(str(error)), statement, store)


def _named(error: errors.CrowmemError, statement: Statement | None, store: str) -> errors.CrowmemError:
    if statement is None:
        error.args = (f"{store}: {error}",)
        return error
    error.statement, error.where = statement.name, statement.where["sqlite"]
    error.args = (f"{store}: {statement.name} ({error.where}): {error}",)
    return error

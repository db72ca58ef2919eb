"""From SQLite's result codes to crowmem's errors, by code and never by message text."""

from __future__ import annotations

import contextlib
import errno
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
_SYSTEM: dict[int, type[errors.CrowmemError]] = {
    errno.ENOSPC: errors.StoreFull,
    errno.EDQUOT: errors.StoreFull,
    errno.EROFS: errors.ReadOnly,
    errno.EACCES: errors.ReadOnly,
    errno.EPERM: errors.ReadOnly,
}


@contextlib.contextmanager
def translated(statement: Statement | None, store: str) -> Iterator[None]:
    """Turn what apsw and the file system raise into errors of ours, with the statement's name and place."""
    try:
        yield
    except apsw.InterruptError as error:
        raise _named(errors.Unavailable("the statement was interrupted"), statement, store) from error
    except apsw.ConnectionClosedError as error:
        raise _named(errors.Closed(), statement, store) from error
    except apsw.Error as error:
        extended = getattr(error, "extendedresult", 0)
        kind = _KINDS.get(extended) or _KINDS.get(extended & 0xFF) or errors.DatabaseError
        hint = _HINTS.get(kind)
        raise _named(kind(f"{error}{f': {hint}' if hint else ''}"), statement, store) from error
    except OSError as error:
        kind = _SYSTEM.get(error.errno or 0, errors.Unavailable)
        raise _named(kind(f"{error.strerror} ({error.filename})"), statement, store) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise _named(errors.InvalidValue(str(error)), statement, store) from error


def _named(error: errors.CrowmemError, statement: Statement | None, store: str) -> errors.CrowmemError:
    if statement is None:
        error.args = (f"{store}: {error}",)
        return error
    error.statement, error.where = statement.name, statement.where["sqlite"]
    error.args = (f"{store}: {statement.name} ({error.where}): {error}",)
    return error

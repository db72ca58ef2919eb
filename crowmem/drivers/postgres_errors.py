"""From SQLSTATEs to crowmem's errors, by code and never by message text."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from crowmem import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.statement import Statement

# the whole code first, then its class (the first two characters)
_KINDS: dict[str, type[errors.CrowmemError]] = {
    "08": errors.Unavailable,
    "22": errors.InvalidValue,
    "23505": errors.Conflict,
    "23503": errors.Conflict,
    "23": errors.InvalidValue,
    "25006": errors.ReadOnly,
    "25P02": errors.Unavailable,  # a statement before it failed, and the transaction with it
    "25P03": errors.Unavailable,
    "28": errors.ConfigError,
    "3D": errors.ConfigError,
    "3F": errors.SchemaMismatch,
    "40003": errors.OutcomeUnknown,
    "40": errors.Unavailable,
    "42501": errors.ReadOnly,
    "42P01": errors.SchemaMismatch,
    "42703": errors.SchemaMismatch,
    "53100": errors.StoreFull,
    "53": errors.Unavailable,
    "54": errors.InvalidValue,
    "55P03": errors.Busy,
    "57014": errors.Unavailable,
    "57": errors.Unavailable,
    "58": errors.Unavailable,
    "XX001": errors.StoreCorrupt,
    "XX002": errors.StoreCorrupt,
}
# what to do, where the server's own text names the trouble alone
_CURES = {
    errors.StoreFull: "no room left: free some, then try again",
    errors.Busy: "somebody else holds the lock: try again",
    errors.ReadOnly: "open it without read_only, as a role that may write, and on the primary",
    errors.StoreCorrupt: "restore a backup, or run `crowmem check`",
}
_NO_RIGHT = (
    "connect as a role that may, or have the store's owner open it once, without read_only, and run what "
    "`crowmem roles` prints"
)


FAILURES = (psycopg.Error, PoolTimeout, TooManyRequests, PoolClosed, OverflowError, UnicodeEncodeError)
"""What `translate` turns into errors of ours."""


@contextlib.contextmanager
def translated(statement: Statement | None, store: str, *, alone: bool = True) -> Iterator[None]:
    """A block whose failures are translated. Where a call costs microseconds, `translate` does without the block."""
    try:
        yield
    except FAILURES as error:
        raise translate(error, statement, store, alone=alone) from error


def translate(error: Exception, statement: Statement | None, store: str, *, alone: bool = True) -> errors.CrowmemError:
    """What psycopg raised, as an error of ours with the statement's name and place.

    Args:
        error: one of `FAILURES`.
        statement: what ran; None for connecting, committing and the like.
        store: how errors call the store, without a password.
        alone: it commits by itself, so a connection lost on the way leaves a write's outcome unknown; inside a
            transaction the server rolls back, and nothing happened.
    """
    if isinstance(error, (OverflowError, UnicodeEncodeError)):
        return _named(errors.InvalidValue(str(error)), statement, store)
    if isinstance(error, PoolClosed):
        return _named(errors.Closed(), statement, store)
    if isinstance(error, (PoolTimeout, TooManyRequests)):
        return _named(errors.Unavailable(f"no connection in time ({error})"), statement, store)
    code = getattr(error, "sqlstate", None)
    if code is None:
        lost = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        if not lost:
            kind: type[errors.CrowmemError] = (
                errors.InvalidValue if isinstance(error, psycopg.DataError) else errors.DatabaseError
            )
        else:
            kind = errors.OutcomeUnknown if alone and statement is not None and statement.writes else errors.Unavailable
    else:
        kind = _KINDS.get(code) or _KINDS.get(code[:2]) or errors.DatabaseError
        if isinstance(error, pg.InsufficientPrivilege) and statement is not None and not statement.writes:
            kind = errors.ConfigError
    first = str(error).strip().splitlines()
    cure = _NO_RIGHT if isinstance(error, pg.InsufficientPrivilege) else _CURES.get(kind)
    told = first[0] if first else type(error).__name__
    return _named(kind(f"{told}: {cure}" if cure else told), statement, store)


def _named(error: errors.CrowmemError, statement: Statement | None, store: str) -> errors.CrowmemError:
    if statement is None:
        error.args = (f"{store}: {error}",)
        return error
    error.statement, error.where = statement.name, statement.where["postgres"]
    error.args = (f"{store}: {statement.name} ({error.where}): {error}",)
    return error

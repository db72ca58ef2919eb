"""Every error crowmem raises, in one tree.

A docstring gives the cause and the cure and is the message when none is given. Errors that come from a database carry
the statement's name, the file and line it stands in, and the driver's own exception as ``__cause__``.

The tree answers the one question a caller has after a failure: *may I try again?* ``Unavailable`` means that nothing
happened; ``OutcomeUnknown`` that the request was sent and the answer was lost.
"""

from __future__ import annotations


class CrowmemError(Exception):
    """Something went wrong in crowmem."""

    retryable: bool = False
    statement: str | None = None
    where: str | None = None

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").strip().splitlines()[0])


class NotFound(CrowmemError, LookupError, ValueError):
    """The named thing is not in this store; check its id."""


class Conflict(CrowmemError):
    """Somebody else changed or made this first; read it again and decide."""


class LeaseLost(Conflict):
    """The lease ended or has a newer owner; stop working on what it guarded."""


class AlreadyFinal(Conflict):
    """This draft was already committed or rolled back; begin a new one."""


class InvalidValue(CrowmemError, ValueError):
    """A value cannot be stored; the message names it, its place and what is allowed."""


class Unavailable(CrowmemError):
    """The store could not be reached in time; nothing happened, so it is safe to try again."""

    retryable = True


class Busy(Unavailable):
    """Another writer held the lock for longer than the busy timeout; nothing happened, try again."""


class PoolExhausted(Unavailable):
    """No connection became free in time; nothing happened: raise pool_size or shorten transactions."""


class LockTimeout(Unavailable):
    """The lock was not free in time; nothing happened, try again or wait longer."""


class OutcomeUnknown(CrowmemError):
    """The connection broke after the request was sent; it may have been carried out: look before you repeat it."""


class StoreFull(CrowmemError):
    """There is no room left on the disk or in the database; free some, then try again."""


class StoreCorrupt(CrowmemError):
    """The store is damaged; restore a backup, or run `crowmem check`."""


class ReadOnly(CrowmemError):
    """The store is read-only here; open it without read_only, or connect to the primary."""


class SchemaMismatch(CrowmemError):
    """The database is not a crowmem store, or not the one it was opened as."""


class SchemaTooOld(SchemaMismatch):
    """The store's schema is older than this crowmem reads; import it into a new one with `crowmem import`."""


class SchemaTooNew(SchemaMismatch):
    """The store was written by a newer crowmem; upgrade this one."""


class BlobDamaged(CrowmemError):
    """A stored image no longer matches its hash and no good copy was found."""


class ConfigError(CrowmemError):
    """The configuration is wrong; the message names the file, the setting and the cure."""


class Closed(CrowmemError):
    """This Memory is closed, or belongs to another process; open a new one."""


class Unsupported(CrowmemError):
    """This dialect or platform cannot do that; the message names the way that works."""


class DatabaseError(CrowmemError):
    """The database refused a statement for a reason crowmem does not know; see its cause."""

"""What errors of the databases become: typed, with what to do."""

from __future__ import annotations

import apsw
import pytest
from psycopg import errors as pg

from crowmem import errors
from crowmem.drivers import postgres_errors, sqlite_errors


@pytest.mark.parametrize(
    ("raised", "kind", "cure"),
    [
        (pg.DiskFull("could not extend file: No space left on device"), errors.StoreFull, "free some, then try again"),
        (pg.LockNotAvailable("canceling statement due to lock timeout"), errors.Busy, "try again"),
        (pg.ReadOnlySqlTransaction("cannot execute INSERT"), errors.ReadOnly, "open it without read_only"),
        (pg.InsufficientPrivilege("permission denied"), errors.ReadOnly, "connect as a role that may"),
        (pg.DataCorrupted("invalid page in block 7"), errors.StoreCorrupt, "restore a backup, or run `crowmem check`"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_postgresql_names_the_cure(raised: Exception, kind: type[Exception], cure: str) -> None:
    found = postgres_errors.translate(raised, None, "the store")
    assert type(found) is kind
    assert str(found).startswith(f"the store: {raised}: ")
    assert cure in str(found)


def test_a_full_disk_says_the_same_on_both_databases() -> None:
    full = apsw.FullError("database or disk is full")
    full.extendedresult = apsw.SQLITE_FULL
    told = [sqlite_errors.translate(full, None, "a"), postgres_errors.translate(pg.DiskFull("no space"), None, "b")]
    assert [type(one) for one in told] == [errors.StoreFull, errors.StoreFull]
    assert {str(one).rpartition(": no room left")[2] for one in told} == {": free some, then try again"}

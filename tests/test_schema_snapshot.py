"""The generated schema files say what the steps really make."""

from __future__ import annotations

import pytest
import schema_snapshot


@pytest.mark.parametrize("dialect", [pytest.param("postgres", marks=pytest.mark.postgres), "sqlite"])
def test_the_snapshot_is_current(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWMEM_TEST_PG_BIN", raising=False)  # each server version spells its schema in its own way
    file = schema_snapshot.path(dialect)
    assert file.read_text(encoding="utf-8") == schema_snapshot.snapshot(dialect), "out of date: run make schema"

"""The statements as code: each is bound, prepares on both databases, and gives the columns of its record."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest
from catalogue import bound_statements

from crowmem import Memory
from crowmem.drivers.postgres_settings import Settings
from crowmem.statement import Statement, in_schema, statement, statement_names

if TYPE_CHECKING:
    from pathlib import Path

STATEMENTS = bound_statements()


def test_none_is_unbound_and_none_is_missing() -> None:
    assert sorted(STATEMENTS) == statement_names()


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_every_statement_says_what_it_does(name: str) -> None:
    found = STATEMENTS[name]
    prose = [line for line in found.doc.splitlines() if line and not line.startswith(("differs:", "plan:", "only:"))]
    assert prose, f"{found.where}: no prose"
    assert (found.shape == "none") == (not found.result), (
        f"{found.where}: a result needs :one or :many, and the other way round"
    )


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("statements") / "crow.db"
    memory = Memory.open(path)
    with memory._driver.file.reader() as connection:  # type: ignore[attr-defined]
        yield connection
    memory.close()


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_sqlite_prepares_it(sqlite: apsw.Connection, name: str) -> None:
    found = STATEMENTS[name]
    if "sqlite" not in found.texts:
        pytest.skip(f"only for PostgreSQL: {found.doc}")
    if name == "store_backup":
        return  # `vacuum into` cannot be explained; tests/test_store.py runs it
    cursor = sqlite.cursor()
    columns: list[str] = []

    def trace(traced: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
        columns.extend(column for column, _ in traced.get_description())
        return False  # do not run it

    cursor.exec_trace = trace
    with pytest.raises(apsw.ExecTraceAbort):
        cursor.execute(found.texts["sqlite"], dict.fromkeys(_names(found)))
    check_columns(found, columns)
    assert (
        sqlite.cursor()
        .execute("explain " + found.texts["sqlite"], dict.fromkeys(_names(found)), can_cache=False)
        .fetchall()
    )


def _names(found: Statement) -> set[str]:
    import re

    return set(re.findall(r":([a-z_]\w*)", found.texts["sqlite"]))


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_postgres_prepares_it(pg_clean: str, name: str) -> None:
    found = STATEMENTS[name]
    if "postgres" not in found.texts:
        pytest.skip(f"only for SQLite: {found.doc}")
    settings = Settings(pg_clean, "test")
    with psycopg.connect(pg_clean) as connection:
        prepared = connection.pgconn.prepare(b"s", settings.sql(found).encode())
        assert not prepared.error_message, f"{found.where}: {prepared.error_message.decode()}"
        result = connection.pgconn.describe_prepared(b"s")
        columns = [str(result.fname(index), "utf-8") for index in range(result.nfields)]
        check_columns(found, columns)


def check_columns(found: Statement, columns: list[str]) -> None:
    if found.record is not None:
        assert columns == [field.name for field in dataclasses.fields(found.record)], found.where
    elif found.result:
        assert len(columns) == len(found.result.split(",")), found.where


def test_writing_statements_are_known_as_such(sqlite: apsw.Connection) -> None:
    for name, found in STATEMENTS.items():
        if "sqlite" not in found.texts or name == "store_backup":
            continue
        cursor = sqlite.cursor()
        readonly: list[bool] = []

        def trace(traced: apsw.Cursor, _sql: str, _bindings: Any, seen: list[bool] = readonly) -> bool:
            seen.append(traced.is_readonly)
            return False

        cursor.exec_trace = trace
        with pytest.raises(apsw.ExecTraceAbort):
            cursor.execute(found.texts["sqlite"], dict.fromkeys(_names(found)))
        if not readonly[0]:
            assert found.writes, f"{found.where}: it writes, and would run on a reading connection"


def test_a_missing_name_and_a_wrong_record_fail_when_bound() -> None:
    with pytest.raises(LookupError, match="no statement 'nothing_here'"):
        statement("nothing_here")
    with pytest.raises(LookupError, match=r"agents\.sql:\d+: agent_get gives Agent, bound to None"):
        statement("agent_get")


@pytest.mark.parametrize("schema", ["public", 'we"ird', "it's", "a.b", "main", "Ünï 🤖", "x; drop table agents; --"])
def test_the_schema_is_put_in_as_a_quoted_name(schema: str) -> None:
    text = in_schema("select 'main.agents', main.agents.x, ':y', \"main.z\" from main.agents -- main.t\n", schema)
    quoted = '"' + schema.replace('"', '""') + '"'
    literal = quoted.replace("'", "''")
    assert text == f"select '{literal}.agents', {quoted}.agents.x, ':y', \"main.z\" from {quoted}.agents -- main.t\n"


def test_parameters_in_texts_and_comments_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowmem import statement as module

    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "x.sql").write_text(
        "-- name: x_get :many text, int\n-- Says :nothing.\nselect ':a' || :b, :c::int -- it's :d\n/* :e */ where :b <> $$ :f $$;\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(module, "sql_root", lambda: tmp_path)
    module._catalogue.cache_clear()
    try:
        found = statement("x_get")
        assert found.params == ("b", "c")
        assert "':a' || $1, $2::int" in found.texts["postgres"]
        assert "$1 <> $$ :f $$" in found.texts["postgres"]
    finally:
        module._catalogue.cache_clear()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("-- name: X :one int\nselect 1", "bad header"),
        ("-- name: x\nselect 1", "bad header"),
        ("-- name: x :one int\nselect 1;\n-- name: x :one int\nselect 2", "stands at"),
    ],
)
def test_a_bad_file_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str) -> None:
    from crowmem import statement as module

    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "x.sql").write_text(text, encoding="utf-8")
    monkeypatch.setattr(module, "sql_root", lambda: tmp_path)
    module._catalogue.cache_clear()
    try:
        with pytest.raises(ValueError, match=rf"common/x\.sql:\d.*{error}"):
            module._catalogue()
    finally:
        module._catalogue.cache_clear()


@pytest.mark.parametrize(
    ("postgres", "lite", "error"),
    [
        ("-- name: x :one int\nselect 1", None, "no text for the other dialect"),
        ("-- name: x :one int\nselect 1", "-- name: x :many int\nselect 1", "disagree in the shape"),
        ("-- name: x :one int\nselect :a", "-- name: x :one int\nselect :b", "disagree in the parameters"),
    ],
)
def test_dialects_that_disagree_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: str, lite: str | None, error: str
) -> None:
    from crowmem import statement as module

    for folder, text in (("postgres", postgres), ("sqlite", lite)):
        (tmp_path / folder).mkdir()
        if text:
            (tmp_path / folder / "x.sql").write_text(text, encoding="utf-8")
    monkeypatch.setattr(module, "sql_root", lambda: tmp_path)
    module._catalogue.cache_clear()
    try:
        bound = statement("x")
        with pytest.raises(ValueError, match=error):
            print(bound.texts)
    finally:
        module._catalogue.cache_clear()

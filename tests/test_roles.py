"""The roles of a PostgreSQL store: a reader cannot write, a writer cannot drop."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest

from crowmem import Memory
from crowmem.cli import main
from crowmem.errors import CrowmemError, ReadOnly

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["public", "tenant-1"])
def schema(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def roles(pg_fresh: str, schema: str) -> Iterator[dict[str, str]]:
    """URLs of a store for its owner, a reader and a writer."""
    Memory.open(pg_fresh, schema=schema).close()
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert main(["roles", "--schema", schema]) in (0, None)
    with psycopg.connect(pg_fresh, autocommit=True) as owner:
        for _ in range(2):  # a repeat changes nothing
            owner.execute(shown.getvalue().encode())
        owner.execute(
            "create role ann login; grant crowmem_reader to ann; create role bob login; grant crowmem_writer to bob"
        )
    yield {"owner": pg_fresh, **{name: pg_fresh.replace("//postgres@", f"//{quote(name)}@") for name in ("ann", "bob")}}
    with psycopg.connect(pg_fresh, autocommit=True) as owner:
        owner.execute("drop owned by crowmem_reader, crowmem_writer, ann, bob")
        owner.execute("drop role ann, bob, crowmem_writer, crowmem_reader")


def test_a_writer_works_and_a_reader_reads(roles: dict[str, str], schema: str) -> None:
    with Memory.open(roles["bob"], schema=schema) as writer:
        writer.agents.create("s-1-1", "s")
        writer.messages.add("s-1-1", {"role": "user", "content": "hello"})
        writer.mailbox.send("s", "mail")
        assert writer.search.messages("hello") != []
        for read_only in (True, False):
            with Memory.open(roles["ann"], schema=schema, read_only=read_only) as reader:
                assert len(reader.messages.load("s-1-1")) == 1
                assert len(reader.sessions.list()) == 1
                with pytest.raises(ReadOnly):
                    reader.messages.add("s-1-1", {"n": 1})
                with pytest.raises(ReadOnly):
                    reader.sessions.delete("s")
                with pytest.raises(ReadOnly):
                    reader.mailbox.claim("s")
        with Memory.open(roles["ann"], schema=schema, read_only=True) as reader:
            assert [hit.agent_id for hit in reader.search.messages("hello")] == ["s-1-1"]
        assert writer.sessions.delete("s") is not None


@pytest.mark.parametrize(
    "sql",
    [
        "drop table {schema}.messages",
        "truncate {schema}.messages",
        "alter table {schema}.messages add column x int",
        "drop schema {schema} cascade",
        "delete from {schema}.crowmem_steps",
        "create table {schema}.mine (x int)",
    ],
)
@pytest.mark.parametrize("who", ["ann", "bob"])
def test_nobody_but_the_owner_changes_the_schema(roles: dict[str, str], schema: str, who: str, sql: str) -> None:
    with psycopg.connect(roles[who]) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(sql.format(schema=f'"{schema}"').encode())


def test_a_stranger_gets_one_clear_error(roles: dict[str, str], schema: str) -> None:
    with psycopg.connect(roles["owner"], autocommit=True) as owner:
        owner.execute("create role eve login")
    try:
        with pytest.raises(CrowmemError):
            Memory.open(roles["owner"].replace("//postgres@", "//eve@"), schema=schema)
    finally:
        with psycopg.connect(roles["owner"], autocommit=True) as owner:
            owner.execute("drop role eve")

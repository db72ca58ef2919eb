"""The command line and the MCP server over a PostgreSQL schema other than public; a SQLite file has none."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from doors import Door, fill

from crowmem import Memory
from crowmem.mcp.source import Source

if TYPE_CHECKING:
    from pathlib import Path

TEAM = "it's a team"


@pytest.mark.postgres
def test_every_command_works_in_the_schema_it_is_given_and_in_no_other(pg_clean: str, capsys: Any) -> None:
    door = Door(pg_clean, capsys)
    assert door("--schema", TEAM, "mail", "send", "box", "hello").code == 0
    assert [one["content"] for one in door("mail", "claim", "box", "--schema", TEAM, "--json").records] == ["hello"]
    with Memory.open(pg_clean, schema=TEAM) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add("s-1-1", {"role": "user", "content": "needle"})
    assert "needle" in door("--schema", TEAM, "search", "needle").out
    assert "s-1-1" in door("agents", "--schema", TEAM).out
    assert door("agents").out == ""
    assert door("delete", "s", "--yes", "--schema", TEAM).code == 0
    missing = door("sessions", "--schema", "theirs")
    assert missing.code == 1
    assert "schema 'theirs': there is no store there yet" in missing.err
    assert f'schema "{TEAM}"' in door("status", "--schema", TEAM).out
    assert "schema" not in door("status").lines[1]


@pytest.mark.postgres
def test_a_copy_between_two_schemas_of_one_database(pg_clean: str, capsys: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "crow.db")
    fill(file)
    door = Door(pg_clean, capsys)
    assert door.bare("copy", file, pg_clean, "--target-schema", "one").code == 0
    assert door.bare("copy", pg_clean, pg_clean, "--schema", "one", "--target-schema", "two").code == 0
    listed = Door(file, capsys)("sessions", "--json").records
    assert listed
    for schema in ("one", "two"):
        assert door("sessions", "--json", "--schema", schema).records == listed
    for schema, told in (("pg_mine", "schema 'pg_mine' begins with 'pg_'"), ("", "schema is empty")):
        bad = door.bare("copy", file, pg_clean, "--target-schema", schema)
        assert bad.code == 2
        assert told in bad.err
    assert door.bare("copy", pg_clean, str(tmp_path / "back.db"), "--schema", "one").code == 0
    same = door.bare("copy", pg_clean, pg_clean, "--schema", "one")
    assert same.code == 1
    assert "schema 'one': source and target are the same store" in same.err


@pytest.mark.postgres
def test_the_server_reads_the_schema_it_is_given(pg_clean: str) -> None:
    with Memory.open(pg_clean, schema=TEAM) as memory:
        memory.agents.create("s-1-1", "s")

    async def sessions() -> list[str]:
        source = Source(pg_clean, None, TEAM)
        try:
            async with source.reading() as memory:
                return [one.session_id for one in await memory.sessions.list()]
        finally:
            await source.close()

    assert asyncio.run(sessions()) == ["s"]


def test_settings_for_a_client_name_the_schema(capsys: Any) -> None:
    door = Door("postgresql://crow@db.example/crow", capsys)
    for given, wanted in (((), []), (("--schema", TEAM), ["--schema", TEAM])):
        found = json.loads(door("mcp", "--print-config", "json", *given).out)["mcpServers"]["crowmem"]["args"]
        assert found[-1 - len(wanted) :] == [*wanted, "mcp"]


def test_a_schema_of_a_file_is_refused_before_anything_is_made(tmp_path: Path, capsys: Any) -> None:
    file = str(tmp_path / "crow.db")
    door = Door(file, capsys)
    for argv in (
        ["mail", "send", "box", "hello", "--schema", TEAM],
        ["mcp", "--print-config", "json", "--schema", TEAM],
        ["copy", str(tmp_path / "from.db"), file, "--target-schema", TEAM],
        ["copy", str(tmp_path / "from.db"), file, "--schema", TEAM],
    ):
        ran = door(*argv)
        assert (ran.code, ran.out) == (2, "")
        assert f'{file} is a SQLite file, which has no schema "{TEAM}"' in ran.err
    assert not (tmp_path / "crow.db").exists()


@pytest.mark.parametrize("argv", [["status"], ["roles"], ["mcp", "--print-config", "json"]])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pg_mine", "schema 'pg_mine' begins with 'pg_', which PostgreSQL keeps for itself: choose another"),
        ("x" * 64, f"schema '{'x' * 64}' is 64 bytes, at most 63 are allowed"),
        ("é" * 32, "is 64 bytes"),
        ("", "schema is empty"),
        ("a\0b", "holds a NUL at position 1"),
    ],
)
def test_a_name_that_no_schema_may_have_is_refused_by_each_command(
    argv: list[str], name: str, told: str, capsys: Any
) -> None:
    ran = Door("postgresql://crow@db.example/crow", capsys)(*argv, "--schema", name)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


@pytest.mark.postgres
def test_a_role_without_rights_is_told_what_to_do_and_leaves_nothing(
    pg_fresh: str, capsys: Any, tmp_path: Path
) -> None:
    file = str(tmp_path / "crow.db")
    fill(file)
    Memory.open(pg_fresh, schema="theirs").close()
    with psycopg.connect(pg_fresh, autocommit=True) as owner:
        before = owner.execute("select oid::text from pg_class union all select nspname from pg_namespace").fetchall()
        owner.execute("create role crow_stranger login")
        try:
            door = Door(pg_fresh.replace("//postgres@", "//crow_stranger@"), capsys)
            for argv in (
                ["import", file, "--schema", "mine"],
                ["mail", "send", "box", "hello", "--schema", "theirs"],
                ["sessions", "--schema", "theirs"],
                ["copy", file, door.url, "--target-schema", "mine"],
            ):
                ran = door.bare(*argv) if argv[0] == "copy" else door(*argv)
                assert ran.code in (1, 2)
                assert f"schema '{argv[-1]}': " in ran.err
                assert "permission denied for " in ran.err
                assert "connect as a role that may, or have the store's owner open it once" in ran.err
            after = owner.execute(
                "select oid::text from pg_class union all select nspname from pg_namespace"
            ).fetchall()
            assert sorted(after) == sorted(before)
        finally:
            owner.execute("drop role crow_stranger")

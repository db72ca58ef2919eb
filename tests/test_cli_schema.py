"""The command line and the MCP server over a PostgreSQL schema other than public; on SQLite the option changes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

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
    assert "there is no store in this database yet" in missing.err


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
    bad = door.bare("copy", file, pg_clean, "--target-schema", "pg_mine")
    assert bad.code == 2
    assert "schema 'pg_mine' begins with 'pg_'" in bad.err


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


def test_settings_for_a_client_name_the_schema(tmp_path: Path, capsys: Any) -> None:
    door = Door(str(tmp_path / "crow.db"), capsys)
    for given, wanted in (((), []), (("--schema", TEAM), ["--schema", TEAM])):
        found = json.loads(door("mcp", "--print-config", "json", *given).out)["mcpServers"]["crowmem"]["args"]
        assert found[-1 - len(wanted) :] == [*wanted, "mcp"]


def test_a_file_has_one_schema(tmp_path: Path, capsys: Any) -> None:
    door = Door(str(tmp_path / "crow.db"), capsys)
    assert door("mail", "send", "box", "hello", "--schema", TEAM).code == 0
    assert door("mail", "count", "box").out.startswith("pending")

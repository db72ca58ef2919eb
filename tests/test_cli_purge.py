"""``crowmem purge``: old sessions and finished mail go, what is young stays, and a dry run changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from crowmem import Memory
from crowmem.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")
    with Memory.open(found) as memory:
        for age in (1, 10, 100):
            stamp = datetime.now(UTC) - timedelta(days=age)
            memory.agents.create(f"d{age}-1-1", f"d{age}", created_at=stamp.isoformat())
            memory.messages.add(f"d{age}-1-1", {"role": "user", "content": "x"}, created_at=stamp)
        fork = memory.agents.fork("d100-1-1")
        memory.messages.add(fork.agent_id, {"role": "user", "content": "young"})  # a fork keeps its session
        memory.mailbox.send("box", "done")
        memory.mailbox.claim("box")
        memory.mailbox.send("box", "waiting")
    return found


def sessions(url: str) -> list[str]:
    with Memory.open(url) as memory:
        return sorted(info.session_id for info in memory.sessions.list(include_forks=True))


def test_a_dry_run_says_and_changes_nothing(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--db", url, "purge", "--sessions", "5d", "--mail", "0h", "--dry-run"]) in (0, None)
    shown = capsys.readouterr().out
    assert "d10" in shown
    assert "1 session would go" in shown
    assert sessions(url) == ["d1", "d10", "d100"]


def test_what_is_old_goes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--db", url, "--json", "purge", "--sessions", "5d", "--mail", "0h", "--yes"]) in (0, None)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("session_id") for line in lines] == ["d10", None]
    assert lines[1] == {"mail": 1}
    assert sessions(url) == ["d1", "d100"]
    with Memory.open(url) as memory:
        assert [one.content for one in memory.mailbox.pending("box")] == ["waiting"]


@pytest.mark.parametrize(
    "arguments", [[], ["--sessions", "5d"], ["--sessions", "soon", "--yes"], ["--mail", "-1d", "--yes"]]
)
def test_wrong_usage(url: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--db", url, "purge", *arguments]) == 2
    assert sessions(url) == ["d1", "d10", "d100"]
    assert capsys.readouterr().out == ""

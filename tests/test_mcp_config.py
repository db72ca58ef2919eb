"""What `crowmem mcp --print-config` prints, and that docs/agents.md says the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crowmem.cli import main
from crowmem.mcp.arguments import LIST_SESSIONS, QUERY_MEMORY, QUERY_SESSION
from crowmem.mcp.clients import CLIENTS, settings

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


def server(client: str, text: str) -> dict[str, Any]:
    """The server's entry in a client's settings."""
    if client == "codex":
        return dict(tomllib.loads(text)["mcp_servers"]["crowmem"])
    return dict(json.loads(text)["mcpServers"]["crowmem"])


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(client: str, *options: str) -> dict[str, Any]:
        assert main([*options, "mcp", "--print-config", client]) == 0
        out, err = capsys.readouterr()
        assert err.startswith("belongs into ")
        return server(client, out)

    return run


@pytest.mark.parametrize("client", list(CLIENTS))
def test_what_is_printed_starts_the_server(client: str, printed: Callable[..., dict[str, Any]]) -> None:
    entry = printed(client, "--db", "crows.db")
    command = [entry["command"], *entry["args"]]
    assert Path(command[0]).is_absolute()
    assert command[-3:] == ["--db", str(Path("crows.db").absolute()), "mcp"]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")
    assert entry.get("type") == ("stdio" if client == "claude-code" else None)


def test_the_installed_program_is_named_by_its_place(
    printed: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bin/crowmem", "mcp"])
    entry = printed("json", "--config", "~/conf", "--db", "postgresql://crow@db.example/crow")
    assert entry["command"] == str(Path("bin/crowmem").absolute())
    assert entry["args"] == [
        *("--db", "postgresql://crow@db.example/crow"),
        *("--config", str(Path.home() / "conf"), "mcp"),
    ]


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "ünicode 悬", "\x7f"])
def test_odd_paths_survive_both_formats(name: str) -> None:
    for client in CLIENTS:
        entry = server(client, settings(client, ["crowmem", "--db", name, "mcp"]))
        assert entry["args"] == ["--db", name, "mcp"]


def test_a_password_is_not_written_into_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--db", "postgresql://crow:s3cret@db/crow", "mcp", "--print-config", "json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "config.yaml" in err
    assert "s3cret" not in err


def test_an_unknown_client_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--print-config", "emacs"]) == 2
    assert "claude-code" in capsys.readouterr().err


def test_printing_needs_no_sdk() -> None:
    code = "import sys; from crowmem.cli import main; main(['mcp', '--print-config', 'codex']); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {name.split(".")[0] for name in ran.stdout.split()} & {"mcp", "pydantic", "anyio", "asyncio", "apsw"}


# --- docs/agents.md ----------------------------------------------------------


@pytest.mark.parametrize("client", list(CLIENTS))
def test_the_page_shows_the_settings_of_every_client(client: str) -> None:
    assert f"`crowmem mcp --print-config {client}`" in PAGE
    assert settings(client, ["crowmem", "mcp"]) in PAGE


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("list_sessions", LIST_SESSIONS), ("query_memory", QUERY_MEMORY), ("query_session", QUERY_SESSION)],
)
def test_the_page_tells_every_argument(tool: str, arguments: tuple[Any, ...]) -> None:
    found = re.search(rf"^\| `{tool}` \|(.*)$", PAGE, re.M)
    assert found
    assert set(re.findall(r"`(\w+)`", found[1])) == {one.name for one in arguments}

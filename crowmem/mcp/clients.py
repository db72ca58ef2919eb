"""What to put into the settings of the clients people use."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crowmem.errors import InvalidValue
from crowmem.urls import safe_url

CLIENTS = {
    "claude-code": "a project's .mcp.json; or for all of yours: claude mcp add --scope user crowmem -- {command}",
    "codex": "~/.codex/config.toml",
    "json": 'the file in which the client keeps its "mcpServers"',
}
"""The clients, and where their settings go."""


def settings(client: str, command: list[str]) -> str:
    """The settings of a client that make it start this server.

    Args:
        client: one of `CLIENTS`.
        command: how the server is started, as `command_line` gives it.
    """
    program, *rest = command
    if client == "codex":  # the strings of JSON are strings of TOML
        return f"[mcp_servers.crowmem]\ncommand = {json.dumps(program)}\nargs = {json.dumps(rest)}"
    server = {"command": program, "args": rest}
    if client == "claude-code":
        server = {"type": "stdio", **server}
    return json.dumps({"mcpServers": {"crowmem": server}}, indent=2)


def command_line(url: str | None, config: str | None, schema: str) -> list[str]:
    """How this crowmem is started as a server on the same store, from any folder and without a search path.

    Raises:
        InvalidValue: the address holds a password, which would stand in the client's settings.
    """
    if url is not None and safe_url(url) != url:
        raise InvalidValue(
            "--db holds a password, which the client would keep readable: put the address into config.yaml, or the "
            "password into ~/.pgpass"
        )
    program = Path(sys.argv[0])
    command = [str(program.absolute())] if program.name == "crowmem" else [sys.executable, "-m", "crowmem.cli"]
    if url is not None:
        command += ["--db", url if "://" in url or url.startswith("file:") else _absolute(url)]
    if config is not None:
        command += ["--config", _absolute(config)]
    if schema != "public":
        command += ["--schema", schema]
    return [*command, "mcp"]


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())

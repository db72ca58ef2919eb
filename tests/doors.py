"""What the tests of the command line share: running it, and a small store to run it on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from crowmem import Memory
from crowmem.cli import main

CALL = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "make test"}'}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a careful crow."},
    {"role": "user", "content": "Why does the nest leak?"},
    {"role": "assistant", "content": None, "reasoning_content": "Perhaps the twigs.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "name": "Bash", "content": "\n".join(f"line {n}" for n in range(1, 21))},
    {"role": "assistant", "content": "The twigs are loose."},
    {"role": "developer", "name": "reminder", "content": "inserted by the tool"},
]


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def records(self) -> list[Any]:
        """The JSON lines it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


class Door:
    """The command line on one store."""

    def __init__(self, url: str, capsys: Any) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *argv: str) -> Ran:
        """Run a command on this store."""
        return self.bare("--db", self.url, *argv)

    def bare(self, *argv: str) -> Ran:
        """Run a command line as it is."""
        self._capsys.readouterr()
        code = main(argv)
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)

    def open(self) -> Memory:
        return Memory.open(self.url)


def stamp(minute: int) -> str:
    return f"2026-01-02T03:{minute:02}:00+00:00"


def fill(url: str) -> None:
    """Two sessions: ``alpha`` with a conversation, a fork of it and a second agent, and ``beta`` with one message."""
    with Memory.open(url) as memory:
        memory.agents.create("alpha-1-1", "alpha", model_identifier="m-1", cwd="/nest", created_at=stamp(0))
        ids = memory.messages.add_many("alpha-1-1", TALK, created_ats=[stamp(n) for n in range(len(TALK))])
        memory.agents.fork("alpha-1-1", at=ids[1])
        memory.messages.add("alpha-1-2", {"role": "assistant", "content": "A fork answers."}, created_at=stamp(20))
        memory.agents.create("alpha-2-1", "alpha", model_identifier="m-2", cwd="/nest", created_at=stamp(21))
        memory.messages.add("alpha-2-1", {"role": "user", "content": "After compaction."}, created_at=stamp(22))
        memory.agents.create("beta-1-1", "beta", model_identifier="m-1", cwd="/tree", created_at=stamp(30))
        memory.messages.add("beta-1-1", {"role": "user", "content": "Another crow entirely."}, created_at=stamp(31))

"""Rows of a crow.db as the store takes them: agents, messages with their numbers, anchors of forks, tasks and mail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.errors import InvalidValue
from crowmem.ids import build_agent_id, parse_agent_id
from crowmem.images import extract, references
from crowmem.importers.crow_db import image
from crowmem.importers.rows import key_number, plain
from crowmem.repositories.imports import ImportRow
from crowmem.values import check_object, encode_object, optional_time_text, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_AGENT: dict[str, Any] = {
    "forked_at": None,
    "cwd": "",
    "prompt_id": None,
    "prompt_args": None,
    "system_prompt": "",
    "tool_definitions": "[]",
    "mcp_servers": None,
    "request_params": "{}",
    "model_identifier": "",
    "status": "active",
}
_TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
_TASK = ("tool_call_id", "sub_session", "model", "result")


def agent_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's row. In version 4 there were no forks, and no fork index in the id.

    Raises:
        InvalidValue: its id is none.
    """
    agent_id = row["agent_id"] if "fork_idx" in row else f"{row['agent_id']}-1"
    place = parse_agent_id(agent_id)
    found = {name: row.get(name, default) for name, default in _AGENT.items()}
    for name in ("prompt_args", "tool_definitions", "mcp_servers", "request_params"):
        found[name] = found[name] if _is_json(found[name]) else _AGENT[name]
    for name in ("cwd", "system_prompt", "model_identifier", "status"):
        found[name] = found[name] or ""
    own = {"agent_id": agent_id, "session_id": row.get("session_id") or place.session_id}
    places = {"agent_idx": place.agent_idx, "fork_idx": place.fork_idx}
    return {**found, **own, **places, "created_at": time_text("created_at", row["created_at"])}


def message_row(row: Mapping[str, Any], path: Path, *, keep_id: bool, images: bool) -> ImportRow:
    """A message's row; its text is taken over letter for letter, with the images it names.

    Raises:
        InvalidValue: its agent's id is none, or its text is no JSON object that can be stored.
    """
    agent_id = row["agent_id"] if "fork_idx" in row else f"{row['agent_id']}-1"
    place = parse_agent_id(agent_id)
    try:
        message = json.loads(row["data"])
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"message {row['id']} is no JSON ({error})") from None
    check_object(message, f"message {row['id']}")
    text, blobs = row["data"], {}
    if images:
        found = extract(message, f"message {row['id']}")
        if found.blobs:
            text = encode_object(found.message)
        named = {key: image(path, key) for key in references(message)}
        blobs = {**found.blobs, **{key: blob for key, blob in named.items() if blob is not None}}
    columns = {
        "id": row["id"] if keep_id else None,
        "fork_idx": place.fork_idx,
        "created_at": time_text("created_at", row["created_at"]),
        "data": text,
        "role": plain(row.get("role") or ""),
        "injected": 0,
        **{name: row.get(name) for name in _TOKENS},
    }
    return ImportRow(place.session_id, agent_id, (message_key(row["id"]),), 1, columns, blobs=blobs)


def message_key(number: int) -> int:
    """The key of a message by its number in the file."""
    return key_number(f"crow:{number}")


def task_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A task's row."""
    texts = {name: row.get(name) for name in _TASK}
    needed = {name: row.get(name) or "" for name in ("task_id", "owner_session", "prompt")}
    return {
        **texts,
        **needed,
        "kind": row.get("kind") or "subagent",
        "priority": row.get("priority") or "low",
        "status": row.get("status") or "completed",
        "key": key_number(f"task:{row['task_id']}"),
        "created_at": time_text("created_at", row["created_at"]),
        "finished_at": optional_time_text("finished_at", row.get("finished_at")),
    }


def delivery_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A piece of mail, with its number in the file."""
    needed = {name: row.get(name) or "" for name in ("session_id", "task_id", "content")}
    return {
        **needed,
        "number": row["id"],
        "key": key_number(f"mail:{row['id']}"),
        "priority": row.get("priority") or "low",
        "status": row.get("status") or "pending",
        "created_at": time_text("created_at", row["created_at"]),
        "delivered_at": optional_time_text("delivered_at", row.get("delivered_at")),
    }


class Anchors:
    """Where the forks of a file leave their trunks: the last message that each shares, by its number in the file."""

    def __init__(self, agents: list[dict[str, Any]]) -> None:
        self._anchors: dict[str, dict[str, int]] = {}  # trunk → fork → anchor
        self._best: dict[str, int] = {}
        for agent in agents:
            text = str(agent["forked_at"] or "")
            if agent["fork_idx"] > 1 and text.isascii() and text.isdigit():
                trunk = build_agent_id(agent["session_id"], agent["agent_idx"])
                self._anchors.setdefault(trunk, {})[agent["agent_id"]] = int(text)

    def saw(self, agent_id: str, number: int) -> None:
        """Note a message of an agent, should it be the last before an anchor."""
        for fork, anchor in self._anchors.get(agent_id, {}).items():
            if number <= anchor:
                self._best[fork] = number

    def found(self) -> list[dict[str, Any]]:
        """Each fork with its trunk and the keys that its anchor may be known by, the surest first."""
        return [
            {
                "agent_id": fork,
                "trunk": trunk,
                "session_id": parse_agent_id(trunk).session_id,
                "keys": [message_key(number) for number in dict.fromkeys((anchor, self._best.get(fork, anchor)))],
            }
            for trunk, forks in self._anchors.items()
            for fork, anchor in forks.items()
        ]


def _is_json(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

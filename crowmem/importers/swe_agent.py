"""SWE-agent and mini-SWE-agent: ``.traj`` files. ``history`` is the conversation, ``trajectory`` says it again as
steps.

Demonstrations (``is_demo``) are not of this run: they are kept as inserted text. There are no times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.conversations import Conversation, Said, read_conversations
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.items import Item
    from crowmem.importers.source import Head, Source

_OWN = ("history", "trajectory")


def sniff(head: Head) -> bool:
    """A history of an agent, steps, or messages with the statistics of a run."""
    found = head.object
    return _is_history(found) or _is_steps(found) or _is_mini(found)


def _is_history(found: dict[str, Any]) -> bool:
    first = next(iter(found.get("history") or []), None)
    return isinstance(first, dict) and "role" in first and ("agent" in first or "message_type" in first)


def _is_steps(found: dict[str, Any]) -> bool:
    first = next(iter(found.get("trajectory") or []), None)
    return isinstance(first, dict) and {"action", "observation", "response"} <= first.keys()


def _is_mini(found: dict[str, Any]) -> bool:
    info = found.get("info")
    run = isinstance(info, dict) and ("model_stats" in info or "exit_status" in info)
    return isinstance(found.get("messages"), list) and (run or "trajectory_format" in found)


def read(source: Source) -> Iterator[Item]:
    """The turns of one run."""
    yield from read_conversations(source, convert)


def convert(value: Any) -> Conversation | None:
    """A trajectory as a conversation."""
    if not isinstance(value, dict):
        return None
    if _is_history(value):
        return Conversation([_said(found) for found in value["history"] if isinstance(found, dict)])
    if _is_mini(value):
        return Conversation([_said(found) for found in value["messages"] if isinstance(found, dict)])
    if _is_steps(value):
        return Conversation([said for step in value["trajectory"] if isinstance(step, dict) for said in _step(step)])
    return None


def _said(found: dict[str, Any]) -> Said:
    message = {"role": chat.text(found.get("role")), "content": found.get("content")}
    for name in ("reasoning_content", "tool_calls", "tool_call_id", "name"):
        if found.get(name):
            message[name] = found[name]
    ids = found.get("tool_call_ids")
    if isinstance(ids, list) and ids:
        message["tool_call_id"] = chat.text(ids[0])
    if found.get("is_demo") is True:
        return Said(chat.injected("demonstration", found.get("content")), injected=True)
    return Said(message, chat.moment(found.get("timestamp")))


def _step(step: dict[str, Any]) -> list[Said]:
    return [
        Said({"role": "assistant", "content": step.get("response")}),
        Said({"role": "user", "content": step.get("observation")}),
    ]


FORMAT = Format(name="swe-agent", title="SWE-agent trajectories", sniff=sniff, read=read)

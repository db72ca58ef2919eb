"""trae-agent: a trajectory. ``llm_interactions`` repeats the whole history with each request; ``agent_steps`` has each
step once.

The messages before the first step are those of the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.conversations import Conversation, Said, read_conversations
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.items import Item
    from crowmem.importers.source import Head, Source


def sniff(head: Head) -> bool:
    """A trajectory with both lists."""
    return {"agent_steps", "llm_interactions"} <= head.object.keys()


def read(source: Source) -> Iterator[Item]:
    """The turns of one run."""
    yield from read_conversations(source, convert)


def convert(value: Any) -> Conversation | None:
    """A trajectory as a conversation."""
    if not isinstance(value, dict) or not isinstance(value.get("agent_steps"), list):
        return None
    steps = [step for step in value["agent_steps"] if isinstance(step, dict)]
    said = _beginning(value)
    for step in steps:
        said += _step(step)
    return Conversation(said, records=len(steps), model=chat.text(value.get("model")))


def _beginning(value: dict[str, Any]) -> list[Said]:
    first = next(iter(value.get("llm_interactions") or []), None)
    asked = first.get("input_messages") if isinstance(first, dict) else None
    said = []
    for message in asked or [{"role": "user", "content": value.get("task")}]:
        if isinstance(message, dict) and message.get("content"):
            role = chat.text(message.get("role"))
            said.append(Said({"role": role, "content": message["content"]}, injected=role == "system"))
    return said


def _step(step: dict[str, Any]) -> list[Said]:
    time = chat.moment(step.get("timestamp"))
    response = step.get("llm_response")
    response = response if isinstance(response, dict) else {}
    calls = [call for call in step.get("tool_calls") or [] if isinstance(call, dict)]
    names = {chat.text(call.get("call_id")): chat.text(call.get("name")) for call in calls}
    made = [chat.tool_call(call.get("call_id"), call.get("name"), call.get("arguments")) for call in calls]
    message = chat.assistant(response.get("content") or None, calls=made)
    said = [] if chat.is_empty(message) else [Said(message, time, anthropic.usage(response.get("usage")))]
    for result in step.get("tool_results") or []:
        if isinstance(result, dict):
            call_id = chat.text(result.get("call_id"))
            failed = result.get("success") is False
            text = chat.text(result.get("result")) or chat.text(result.get("error"))
            said.append(Said(chat.tool(call_id, text, name=names.get(call_id, ""), is_error=failed), time))
    if step.get("reflection"):
        said.append(Said(chat.injected("reflection", step["reflection"]), time, injected=True))
    return said


FORMAT = Format(name="trae-agent", title="trae-agent trajectories", sniff=sniff, read=read)

"""ShareGPT: ``{"conversations": [{"from": ..., "value": ...}]}``, with tool calls and results in two spellings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.conversations import Conversation, Said, read_conversations
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.items import Item
    from crowmem.importers.source import Head, Source

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
}
_CALLS = {"function_call", "tool_call"}
_RESULTS = {"observation", "tool", "function_response", "tool_response"}


def sniff(head: Head) -> bool:
    """A conversation at the top, in the first element, or in the first lines."""
    return any(convert(value) is not None for value in [*head.records[:3], *head.elements[:3], head.document])


def read(source: Source) -> Iterator[Item]:
    """The turns of one file."""
    yield from read_conversations(source, convert)


def convert(value: Any) -> Conversation | None:
    """A value as the conversation it is; turns of unknown speakers keep their name as the role."""
    turns = value.get("conversations") if isinstance(value, dict) else None
    if not isinstance(turns, list) or not turns:
        return None
    said: list[Said] = []
    calls = 0
    for position, turn in enumerate(turns):
        if not isinstance(turn, dict) or "from" not in turn or "value" not in turn:
            return None
        speaker, text = chat.text(turn["from"]), chat.text(turn["value"])
        if speaker in _CALLS:
            calls = position
            said.append(Said(chat.assistant(None, calls=_calls(text, position))))
        elif speaker in _RESULTS:
            said.append(Said(chat.tool(f"call-{calls}", text)))
        else:
            said.append(Said({"role": _ROLES.get(speaker, speaker), "content": text}))
    return Conversation(said, title=chat.text(value.get("title")))


def _calls(text: str, position: int) -> list[dict[str, Any]]:
    """The calls written in a turn: one or several objects of name and arguments, or text that is no such thing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    calls = found if isinstance(found, list) else [found]
    if not all(isinstance(call, dict) and "name" in call for call in calls):
        return [chat.tool_call(f"call-{position}", "function_call", text)]
    return [
        chat.tool_call(f"call-{position}" + (f".{index}" if index else ""), call["name"], call.get("arguments"))
        for index, call in enumerate(calls)
    ]


FORMAT = Format(name="sharegpt", title="ShareGPT", sniff=sniff, read=read)

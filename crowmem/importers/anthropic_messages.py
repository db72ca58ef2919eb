"""Recorded requests to Anthropic's Messages API with their responses, and request bodies by themselves."""

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
    """An exchange, or a body with blocks that OpenAI does not know."""
    return any(convert(value) is not None for value in [*head.records[:3], *head.elements[:3], head.document])


def read(source: Source) -> Iterator[Item]:
    """The turns of one file."""
    yield from read_conversations(source, convert)


def convert(value: Any) -> Conversation | None:
    """A recorded exchange or a request body as a conversation."""
    if not isinstance(value, dict):
        return None
    request, response = value.get("request", value), value.get("response")
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        return None
    answered = isinstance(response, dict) and response.get("type") == "message"
    if not answered and not anthropic.is_body(request["messages"]):
        return None
    names: dict[str, str] = {}
    said = []
    if request.get("system"):
        said.append(
            Said({"role": "system", "content": chat.simplest(anthropic.blocks_of(request["system"]))}, injected=True)
        )
    for found in request["messages"]:
        if isinstance(found, dict):
            said += [
                Said(made) for made in anthropic.messages(chat.text(found.get("role")), found.get("content"), names)
            ]
    model = chat.text(request.get("model"))
    if answered and isinstance(response, dict):
        model = chat.text(response.get("model")) or model
        message = anthropic.assistant(anthropic.blocks_of(response.get("content")))
        said.append(Said(message, usage=anthropic.usage(response.get("usage"))))
    return Conversation(said, model=model)


FORMAT = Format(name="anthropic-messages", title="Anthropic API bodies", sniff=sniff, read=read)

"""OpenAI chat messages: a list, ``{"messages": [...]}`` or ``{"traj": [...]}``, as one document, a list of such, or one
a line; single messages a line; recorded requests with their responses; whole dialogues as one text.

The messages are kept as they are: key order, unknown keys and all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.conversations import Conversation, Said, is_lines, read_conversations
from crowmem.importers.lines import Line, read_lines
from crowmem.importers.places import Format
from crowmem.importers.responses import from_items, is_input
from crowmem.importers.source import Head, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.items import Item

ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_LISTS = ("messages", "traj")


def is_message(value: Any) -> bool:
    """Whether a value is a chat message."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and value["role"] in ROLES
        and bool({"content", "tool_calls", "function_call"} & value.keys())
    )


def sniff(head: Head) -> bool:
    """A conversation, or a message, at the top, in the first element, or in the first lines."""
    values = [*head.records[:3], *head.elements[:3], head.document]
    return any(is_message(value) or convert(value) is not None for value in values)


def read(source: Source) -> Iterator[Item]:
    """The turns of one file."""
    yield from read_conversations(source, convert, message_lines=is_message(_first(source)))


def _first(source: Source) -> Any:
    """The first value of a file of lines, or the first element of a document."""
    if is_lines(source):
        lines = read_lines(Source(source.path), is_message, arrays=True)
        return next((line.value for line in lines if isinstance(line, Line)), None)
    return next(iter(Head(source.path).elements), None)


def convert(value: Any) -> Conversation | None:
    """A value as the conversation it is."""
    if is_message(value):
        return Conversation([Said(value)])
    if isinstance(value, list):
        return _messages(value, {})
    if not isinstance(value, dict):
        return None
    request, response = value.get("request"), value.get("response")
    if isinstance(request, dict):
        return _exchange(request, response if isinstance(response, dict) else {})
    for name in _LISTS:
        if isinstance(value.get(name), list):
            return _messages(value[name], value)
    if is_input(value.get("input")):
        return _exchange(value, {})
    if isinstance(value.get("messages_display"), str):
        return Conversation([Said({"role": "user", "content": value["messages_display"]})])
    return None


def _messages(messages: list[Any], about: dict[str, Any]) -> Conversation | None:
    if not messages or not any(is_message(message) for message in messages) or anthropic.is_body(messages):
        return None
    said = [Said(message) for message in messages if is_message(message)]
    other = len(messages) - len(said)
    return Conversation(
        said,
        model=chat.text(about.get("model")),
        title=chat.text(about.get("title")),
        passed={"an element that is no message": other} if other else {},
    )


def _exchange(request: dict[str, Any], response: dict[str, Any]) -> Conversation | None:
    """A recorded request and its response, of the chat or the Responses interface."""
    model = chat.text(response.get("model") or request.get("model"))
    time = chat.moment(response.get("created") or response.get("created_at"))
    counts = response.get("usage")
    counts = counts if isinstance(counts, dict) else {}
    if isinstance(request.get("messages"), list):
        found = _messages(request["messages"], request)
        if found is None:
            return None
        choices = [choice for choice in response.get("choices") or [] if isinstance(choice, dict)]
        answers = [choice["message"] for choice in choices[:1] if is_message(choice.get("message"))]
        used = chat.usage(counts.get("prompt_tokens"), counts.get("completion_tokens"), counts.get("total_tokens"))
        found.said += [Said(answer, time, used) for answer in answers]
        found.model = model
        return found
    if not is_input(request.get("input")):
        return None
    asked, answered = from_items(request["input"]), from_items(response.get("output") or [])
    used = chat.usage(counts.get("input_tokens"), counts.get("output_tokens"), counts.get("total_tokens"))
    said = [Said(message) for message in asked] + [Said(message, time) for message in answered]
    if answered:
        said[len(asked)].usage = used
    return Conversation(said, model=model)


FORMAT = Format(name="openai-chat", title="OpenAI chat messages", sniff=sniff, read=read)

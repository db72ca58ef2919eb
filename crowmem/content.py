"""The words of a message: what search covers, and what stands for it in a list."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TITLE_CHARACTERS = 50
_HALF = re.compile("[\0\ud800-\udfff]")


def search_text(message: Mapping[str, Any]) -> str:
    """The searchable text of a message, its parts joined by newlines.

    The content (text, or the text blocks of a list, nested lists of tool results included), the reasoning, and each
    tool call's name and arguments. What is not text is passed over.
    """
    content = message.get("content")
    if type(content) is str and "reasoning_content" not in message and "tool_calls" not in message:
        return content
    return "\n".join(part for part in _parts(message) if part)


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    yield from content_texts(message.get("content"))
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        yield reasoning
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield from _call(function)


def _call(function: Mapping[str, Any]) -> Iterator[str]:
    name, arguments = function.get("name"), function.get("arguments")
    if isinstance(name, str):
        yield name
    if isinstance(arguments, str):
        yield from _leaves(_decoded(arguments))
    elif isinstance(arguments, (dict, list)):
        yield from _leaves(arguments)


def content_texts(content: Any) -> Iterator[str]:
    """The texts of a content value: itself, or those of its blocks."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, str):
                yield block
            elif isinstance(block, dict):
                text = block.get("text")
                if isinstance(text, str):
                    yield text
                elif block.get("type") == "tool_result":
                    yield from content_texts(block.get("content"))
                elif block.get("type") == "tool_use":
                    yield from _call({"name": block.get("name"), "arguments": block.get("input")})


def _decoded(arguments: str) -> Any:
    """Arguments as the model wrote them: JSON text, whose escapes would be glued to words, or free text."""
    if "\\" not in arguments:
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _leaves(value: Any) -> Iterator[str]:
    """Keys and texts of a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)


def title(message: Mapping[str, Any]) -> str | None:
    """The first 50 characters of a message's content, trimmed; None when it has no text.

    Half characters and NULs, which a plain text column cannot hold, are replaced by U+FFFD.
    """
    content = message.get("content")
    text = content if type(content) is str else " ".join(content_texts(content))
    text = text.strip()[:TITLE_CHARACTERS].strip()
    if not text.isascii() or "\0" in text:
        text = _HALF.sub("\ufffd", text)
    return text or None


def tool_names(message: Mapping[str, Any]) -> list[str]:
    """The names of the tools that a message calls, in order, without repeats."""
    if "tool_calls" not in message and type(message.get("content")) is str:
        return []
    names = [call.get("name") for call in _calls(message)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def _calls(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The functions of a message's tool calls, in OpenAI's form and in Anthropic's blocks."""
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield function
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                yield {"name": block.get("name"), "arguments": block.get("input")}

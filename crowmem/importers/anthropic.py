"""Messages of Anthropic's API, which several tools keep as they are, as messages in the OpenAI chat shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """Content as a list of blocks, whatever form it has."""
    if isinstance(content, list):
        return [block if isinstance(block, dict) else {"type": "text", "text": chat.text(block)} for block in content]
    return [] if content is None else [{"type": "text", "text": chat.text(content)}]


def assistant(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """An assistant message of a reply's blocks; blocks of kinds not known here stay in the content as they are."""
    content: list[dict[str, Any]] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            reasoning.append(chat.text(block.get("thinking")))
        elif kind in _CALLS:
            calls.append(chat.tool_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind == "redacted_thinking" or (kind == "text" and not chat.text(block.get("text")).strip()):
            continue  # nothing to read in it
        else:
            content.append(block)
    return chat.assistant(chat.simplest(content), reasoning, calls)


def call_names(blocks: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Id and tool name of each call among some blocks."""
    for block in blocks:
        if block.get("type") in _CALLS:
            yield chat.text(block.get("id")), chat.text(block.get("name"))


def result(block: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A ``tool_result`` block as a tool message; its content is text, or a list of text and pictures."""
    call_id = chat.text(block.get("tool_use_id"))
    content = block.get("content")
    if isinstance(content, list):
        content = chat.simplest(content)
    return chat.tool(call_id, content, name=names.get(call_id, ""), is_error=block.get("is_error") is True)


def messages(role: str, content: Any, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """One message as one or more: each tool result for itself, then what the user said.

    Args:
        role: as it stands there.
        content: text or blocks.
        names: call ids and tool names seen so far; added to.
    """
    blocks = blocks_of(content)
    if role == "assistant":
        names.update(call_names(blocks))
        yield assistant(blocks)
        return
    yield from (result(block, names) for block in blocks if block.get("type") == "tool_result")
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    if rest:
        yield {"role": role, "content": chat.simplest(rest)}


def usage(found: Any) -> dict[str, int] | None:
    """Token counts; what was read from or written to the cache counts as asked."""
    if not isinstance(found, dict):
        return None
    asked = sum(
        count
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        if isinstance(count := found.get(name), int)
    )
    return chat.usage(asked, found.get("output_tokens"))


def is_body(messages_found: Any) -> bool:
    """Whether a list of messages can only be Anthropic's: it has blocks that OpenAI does not know."""
    return isinstance(messages_found, list) and any(
        isinstance(block, dict) and (block.get("type") in ("tool_result", "thinking", *_CALLS) or "source" in block)
        for message in messages_found
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for block in message["content"]
    )

"""A message as a reader sees it: what was said, thought, called and answered, in order.

Stored messages come in several shapes: OpenAI's fields, Anthropic's blocks, references to images. Doors that show
messages share this one reading of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SAID, THOUGHT, CALLED, ANSWERED, IMAGE = "said", "thought", "called", "answered", "image"

# What each mode shows. Other speakers than these (system prompts, inserted text) are heard in "full" only.
MODES: dict[str, frozenset[str]] = {
    "conversation": frozenset({SAID, IMAGE}),
    "with_thinking": frozenset({SAID, IMAGE, THOUGHT}),
    "with_tools": frozenset({SAID, IMAGE, CALLED, ANSWERED}),
    "full": frozenset({SAID, IMAGE, THOUGHT, CALLED, ANSWERED}),
}
SPEAKERS = ("user", "assistant", "tool", "function")


class Part(NamedTuple):
    """One part of a message: its kind, its text, and the tool's name where there is one."""

    kind: str
    text: str
    name: str = ""
    is_error: bool = False


def visible_parts(message: Mapping[str, Any], mode: str) -> list[Part]:
    """The parts of a message that a mode shows; none when the mode leaves it out.

    Args:
        message: as stored.
        mode: one of `MODES`.
    """
    if mode != "full" and message.get("role") not in SPEAKERS:
        return []
    return [part for part in parts(message) if part.kind in MODES[mode] and part.text.strip()]


def parts(message: Mapping[str, Any]) -> Iterator[Part]:
    """All parts of a message. What has none of the known shapes is shown as JSON; nothing fails."""
    if isinstance(thought := message.get("reasoning_content") or message.get("reasoning"), str):
        yield Part(THOUGHT, thought)
    content = message.get("content")
    if message.get("role") in ("tool", "function"):
        yield Part(ANSWERED, _text(content), _name(message.get("name")), bool(message.get("is_error")))
        yield from (part for part in _blocks(content) if part.kind == IMAGE)
    else:
        yield from _blocks(content)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else [message.get("function_call")]:
        if isinstance(call, dict):
            called = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), dict)), call)
            yield Part(CALLED, _arguments(called.get("arguments", called.get("input"))), _name(called.get("name")))


def _blocks(content: Any) -> Iterator[Part]:
    if isinstance(content, str):
        yield Part(SAID, content)
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, str):
            yield Part(SAID, block)
        elif kind == "tool_use":
            yield Part(CALLED, _arguments(block.get("input")), _name(block.get("name")))
        elif kind == "tool_result":
            yield Part(ANSWERED, _text(block.get("content")), "", bool(block.get("is_error")))
        elif kind in ("thinking", "redacted_thinking"):
            yield Part(THOUGHT, _name(block.get("thinking")))
        elif kind in ("image", "image_url", "input_image", "image_ref"):
            yield Part(IMAGE, _image(block))
        elif isinstance(block, dict) and isinstance(block.get("text"), str):
            yield Part(SAID, block["text"])
        else:
            yield Part(SAID, _json(block))


def _text(content: Any) -> str:
    """A tool's answer as text."""
    if content is None:
        return ""
    if not isinstance(content, (str, list)):
        return _json(content)
    return "\n".join(part.text for part in _blocks(content) if part.kind != IMAGE)


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else "{}" if value is None else _json(value)


def _image(block: Mapping[str, Any]) -> str:
    """Where an image is, or what kind it is; its bytes are not text."""
    source = block.get("source") or block.get("image_url")
    inner = source if isinstance(source, dict) else {"url": source}
    url = _name(inner.get("url"))
    if url.startswith("data:"):
        return url[len("data:") : 80].partition(";")[0] or "image"
    kind = block.get("mime") or block.get("mimeType") or inner.get("media_type")
    return _name(block.get("path")) or url or _name(kind) or "image"


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

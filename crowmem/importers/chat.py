"""Building blocks of the OpenAI chat shape, shared by the parsers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any


def moment(value: Any) -> datetime | None:
    """A time as transcripts write it: ISO 8601 text, or seconds or milliseconds since 1970. None when it is none.

    Text without a zone is taken as UTC.
    """
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def digest(*parts: str) -> str:
    """A short fingerprint of texts: 16 hex digits."""
    found = blake2b(digest_size=8)
    for part in parts:
        found.update(part.encode(errors="surrogatepass"))
        found.update(b"\0")
    return found.hexdigest()


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def compact(value: Any) -> str:
    """The JSON text of a value, as it stands in a tool call's arguments."""
    return _encode(value)


def arguments(value: Any) -> str:
    """A tool call's arguments: text as it is (free text too), anything else as JSON."""
    return value if isinstance(value, str) else compact({} if value is None else value)


def tool_call(call_id: Any, name: Any, value: Any) -> dict[str, Any]:
    """One entry of ``tool_calls``."""
    return {
        "id": text(call_id),
        "type": "function",
        "function": {"name": text(name), "arguments": arguments(value)},
    }


def assistant(
    content: Any, reasoning: list[str] | None = None, calls: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """An assistant message; content is None when it only calls tools."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    said = "\n\n".join(part for part in reasoning or [] if part)
    if said:
        message["reasoning_content"] = said
    if calls:
        message["tool_calls"] = calls
    return message


def tool(call_id: Any, content: Any, *, name: str = "", is_error: bool = False) -> dict[str, Any]:
    """The result of a tool call."""
    message: dict[str, Any] = {"role": "tool", "tool_call_id": text(call_id)}
    if name:
        message["name"] = name
    message["content"] = "" if content is None else content
    if is_error:
        message["is_error"] = True
    return message


def injected(kind: str, content: Any) -> dict[str, Any]:
    """Text that a tool put into the conversation. The role is ``developer``, OpenAI's word for it; ``name`` says what
    it is.
    """
    return {"role": "developer", "name": kind, "content": content}


def usage(prompt: Any, completion: Any, total: Any = None) -> dict[str, int] | None:
    """Token counts; None when the source has none."""
    counts = [int(value) if isinstance(value, (int, float)) else 0 for value in (prompt, completion, total)]
    if not any(counts):
        return None
    return {
        "prompt_tokens": counts[0],
        "completion_tokens": counts[1],
        "total_tokens": counts[2] or counts[0] + counts[1],
    }


def text(value: Any) -> str:
    """A value as text; "" for None."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def simplest(blocks: list[dict[str, Any]]) -> Any:
    """Content blocks in their simplest form: None for none, the text of a single text block, else the list."""
    if not blocks:
        return None
    if len(blocks) == 1 and blocks[0].get("type") == "text" and isinstance(blocks[0].get("text"), str):
        return blocks[0]["text"]
    return blocks


def is_empty(message: dict[str, Any]) -> bool:
    """Whether an assistant message says nothing, thinks nothing and calls nothing."""
    return not (message.get("content") or message.get("reasoning_content") or message.get("tool_calls"))

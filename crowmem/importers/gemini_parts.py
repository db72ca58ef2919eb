"""Parts of Google's message format, as Gemini CLI and Qwen Code keep them, as parts of chat messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Parts:
    """What a list of parts holds."""

    content: list[dict[str, Any]] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)  # tool messages


def split(parts: Any) -> Parts:
    """Sort parts by what they are; a plain text is one part."""
    found = Parts()
    if isinstance(parts, str):
        parts = [{"text": parts}]
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, str):
            part = {"text": part}
        if not isinstance(part, dict):
            continue
        if isinstance(part.get("text"), str):
            if part.get("thought") is True:
                found.reasoning.append(part["text"])
            elif part["text"]:
                found.content.append({"type": "text", "text": part["text"]})
        elif isinstance(part.get("functionCall"), dict):
            call = part["functionCall"]
            found.calls.append(chat.tool_call(call.get("id") or call.get("name"), call.get("name"), call.get("args")))
        elif isinstance(part.get("functionResponse"), dict):
            found.results.append(response(part["functionResponse"], {}))
        elif isinstance(part.get("inlineData"), dict):
            found.content.append(_data(part["inlineData"]))
        else:
            found.content.append({"type": "part", **part})
    return found


def response(value: dict[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """A ``functionResponse`` as a tool message; the output alone when it is text.

    Args:
        value: the response.
        about: the call it belongs to, for the id and the name where the response has none.
    """
    body = value.get("response")
    content: Any = body
    if isinstance(body, dict):
        content = next((body[key] for key in ("output", "error", "content") if isinstance(body.get(key), str)), None)
        if content is None or len(body) > 1:
            content = chat.compact(body)
    elif body is not None and not isinstance(body, str):
        content = chat.compact(body)
    failed = isinstance(body, dict) and "error" in body
    name = chat.text(value.get("name") or about.get("name"))
    return chat.tool(value.get("id") or about.get("id") or name, content, name=name, is_error=failed)


def _data(value: dict[str, Any]) -> dict[str, Any]:
    mime, data = chat.text(value.get("mimeType")), chat.text(value.get("data"))
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}
    return {"type": "file", "file": {"file_data": f"data:{mime};base64,{data}"}}

"""Item lists of OpenAI's Responses API (``input``, ``output``) as chat messages."""

from __future__ import annotations

from typing import Any

from crowmem.importers import chat
from crowmem.importers.codex_items import CALLS, OUTPUTS, call, content, output, reasoning


def is_input(value: Any) -> bool:
    """Whether a value can be a request's ``input``: a text, or items."""
    if isinstance(value, str):
        return bool(value)
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(item, dict) and ("role" in item or item.get("type") in CALLS + OUTPUTS) for item in value[:3]
        )
    )


def from_items(items: Any) -> list[dict[str, Any]]:
    """The messages of a list of items; reasoning, text and calls of one answer become one message."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    found: list[dict[str, Any]] = []
    answer = _Answer(found)
    for item in items:
        if not isinstance(item, dict):
            continue
        kind = item.get("type") or ("message" if "role" in item else "")
        if kind == "message" and item.get("role") != "assistant":
            answer.close()
            found.append({"role": chat.text(item.get("role")), "content": content(item.get("content"))})
        elif kind in OUTPUTS:
            answer.close()
            found.append(chat.tool(item.get("call_id"), output(item)))
        else:
            answer.add(item, kind)
    answer.close()
    return found


class _Answer:
    def __init__(self, found: list[dict[str, Any]]) -> None:
        self._found = found
        self._reasoning: list[str] = []
        self._content: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []

    def add(self, item: dict[str, Any], kind: str) -> None:
        if kind == "reasoning":
            self._reasoning += reasoning(item)
        elif kind == "message":
            if self._content:
                self.close()
            text = content(item.get("content"))
            self._content += [{"type": "text", "text": text}] if isinstance(text, str) else text or []
        elif kind in CALLS:
            self._calls.append(call(item, kind))

    def close(self) -> None:
        message = chat.assistant(chat.simplest(self._content), self._reasoning, self._calls)
        if not chat.is_empty(message):
            self._found.append(message)
        self._reasoning, self._content, self._calls = [], [], []

"""Grok CLI: ``~/.grok/sessions/<folder>/<id>/chat_history.jsonl``, OpenAI's messages with a ``type`` for a role.

The lines have neither ids nor times: a message goes by its position and its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.codex_items import reasoning
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source

_TYPES = ("system", "user", "assistant", "reasoning", "tool_result", "backend_tool_call")
_OWN = {"model_fingerprint", "prompt_index", "synthetic_reason", "model_id", "kind"}


def sniff(head: Head) -> bool:
    """Known types only, and a field of this tool."""
    records = head.records
    return all(record.get("type") in _TYPES for record in records) and any(_OWN & record.keys() for record in records)


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    yield from read_events(source, _Reader(source), lambda value: value.get("type") in _TYPES)


class _Reader(EventReader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if source.path.stem == "chat_history" and not source.state:
            self.session = source.path.parent.name
        self._thoughts: list[str] = []

    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind, content = record.get("type"), record.get("content")
        if kind not in _TYPES:
            self.passed(kind)
            return
        self.source.records += 1
        if kind == "reasoning":
            if self.held is None:
                self.hold(line)
            self._thoughts += reasoning(record)
            return
        thoughts, self._thoughts, self.held = self._thoughts, [], None
        if kind == "assistant":
            self.model = chat.text(record.get("model_id")) or self.model
            found = [call for call in record.get("tool_calls") or [] if isinstance(call, dict)]
            calls = [chat.tool_call(call.get("id"), call.get("name"), call.get("arguments")) for call in found]
            self.called(calls)
            yield self.numbered(chat.assistant(content or None, thoughts, calls), line)
            return
        if any(thoughts):
            yield self.numbered(chat.assistant(None, thoughts), line)
        if kind == "user":
            simple = chat.simplest([_picture(block) for block in anthropic.blocks_of(content)])
            yield self.prompt(simple, line, inserted="environment" if record.get("synthetic_reason") else "")
        elif kind == "system":
            yield self.numbered({"role": "system", "content": content}, line, injected=True)
        elif kind == "tool_result":
            call_id = chat.text(record.get("tool_call_id"))
            yield self.numbered(chat.tool(call_id, content, name=self.names.get(call_id, "")), line)
        else:
            call = record.get("kind")
            call = call if isinstance(call, dict) else {}
            made = chat.tool_call(call.get("id"), call.get("tool_type"), call.get("action"))
            yield self.numbered(chat.assistant(None, calls=[made]), line)


def _picture(block: dict[str, Any]) -> dict[str, Any]:
    """A picture given by its URL, in OpenAI's spelling."""
    if block.get("type") == "image" and isinstance(block.get("url"), str):
        return {"type": "image_url", "image_url": {"url": block["url"]}}
    return block


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The sessions' folder."""
    return below(home / ".grok" / "sessions")


FORMAT = Format(name="grok", title="Grok CLI", sniff=sniff, read=read, discover=discover)

"""Antigravity's command line: steps of a conversation, ``{step_index, source, type, status, created_at, content}`` a
line.

Results name no call: they answer the calls of the step before them in their order. A message goes by its position and
text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source

_REQUEST = re.compile(r"<USER_REQUEST>\s*(.*?)\s*</USER_REQUEST>", re.DOTALL)


def sniff(head: Head) -> bool:
    """Lines that are steps."""
    return any(is_record(record) for record in head.records[:3])


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    return {"step_index", "source", "type", "status"} <= value.keys()


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    yield from read_events(source, _Reader(source), is_record)


class _Reader(EventReader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if source.path.stem == "transcript":
            self.session = source.path.parent.name
        self._waiting: list[list[str]] = source.state.get("waiting", [])  # id and tool of calls without a result

    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind, content = chat.text(record.get("type")), chat.text(record.get("content"))
        time = record.get("created_at")
        if kind != "PLANNER_RESPONSE" and not content:
            self.passed(kind)
            return
        self.source.records += 1
        if kind == "PLANNER_RESPONSE":
            calls = self._calls(record)
            yield self.numbered(chat.assistant(content or None, [chat.text(record.get("thinking"))], calls), line, time)
        elif kind == "USER_INPUT":
            found = _REQUEST.search(content)
            rest = _REQUEST.sub("", content).strip() if found else ""
            if rest:
                yield self.prompt(rest, line, time, inserted="meta")
            yield self.prompt(found[1] if found else content, line, time)
        elif record.get("source") == "SYSTEM":
            yield self.prompt(content, line, time, inserted="compact-summary" if kind == "CHECKPOINT" else "meta")
        else:
            call_id, name = self._waiting.pop(0) if self._waiting else [f"step-{line.number}", kind.lower()]
            yield self.numbered(chat.tool(call_id, content, name=name), line, time)

    def _calls(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        found = [call for call in record.get("tool_calls") or [] if isinstance(call, dict)]
        step = record.get("step_index")
        calls = [chat.tool_call(f"step-{step}.{n}", call.get("name"), call.get("args")) for n, call in enumerate(found)]
        self._waiting = [[call["id"], call["function"]["name"]] for call in calls]
        return calls

    def state(self) -> dict[str, Any]:
        return {**super().state(), "waiting": list(self._waiting)}


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The folder of all conversations."""
    return below(home / ".gemini" / "antigravity-cli")


FORMAT = Format(name="antigravity", title="Antigravity", sniff=sniff, read=read, discover=discover)

"""agentkit tapes: ``~/.coding-agent/tapes/<id>.jsonl``, an entry ``{id, kind, payload, timestamp}`` a line.

Parallel calls are entries of their own: neighbouring ``tool_call`` entries become one assistant message. Anchors and
events are not messages; a fold hides entries from the model, they stay in the tape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.places import Format, below, folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source

_KINDS = ("message", "tool_call", "tool_result", "event", "anchor")


def sniff(head: Head) -> bool:
    """Entries of a tape."""
    return any(is_record(record) for record in head.records[:3])


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole entry."""
    return value.get("kind") in _KINDS and isinstance(value.get("payload"), dict) and "id" in value


def read(source: Source) -> Iterator[Item]:
    """The turns of one tape."""
    yield from read_events(source, _Reader(source), is_record)


class _Reader(EventReader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._calls: list[tuple[dict[str, Any], Line]] = []

    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind, payload = record.get("kind"), record.get("payload")
        if not isinstance(payload, dict) or kind not in ("message", "tool_call", "tool_result"):
            self.passed(kind)
            return
        self.source.records += 1
        if kind == "tool_call":
            if not self._calls:
                self.hold(line)
            self._calls.append((payload, line))
            return
        yield from self.close()
        if kind == "message":
            yield self.turn(_key(line), dict(payload), line, record.get("timestamp"))
            return
        call_id = chat.text(payload.get("tool_call_id"))
        name, failed = self.names.get(call_id, ""), payload.get("is_error") is True
        message = chat.tool(call_id, payload.get("content"), name=name, is_error=failed)
        yield self.turn(_key(line), message, line, record.get("timestamp"))

    def close(self) -> Iterator[Item]:
        called, self._calls, self.held = self._calls, [], None
        if not called:
            return
        calls = [chat.tool_call(call.get("id"), call.get("name"), call.get("arguments")) for call, _line in called]
        self.called(calls)
        line = called[0][1]
        message = chat.assistant(None, calls=calls)
        yield self.turn(_key(line), message, line, line.value.get("timestamp"), parts=len(calls))


def _key(line: Line) -> str:
    return f"e:{chat.text(line.value.get('id')) or line.number}"


def discover(home: Path, env: Mapping[str, str]) -> list[Path]:
    """Tapes of the coding agent, and of a data folder that the environment names."""
    found = below(home / ".coding-agent" / "tapes")
    return found + (below(folder(env, "AGENT_DATA_DIR", home) / "tapes") if env.get("AGENT_DATA_DIR") else [])


FORMAT = Format(name="agentkit-tape", title="agentkit tapes", sniff=sniff, read=read, discover=discover)

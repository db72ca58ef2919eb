"""Qwen Code: ``~/.qwen/projects/<path>/chats/<id>.jsonl``, an envelope like Claude Code's around Gemini's parts.

Lines of one ``uuid`` are one message; what a rewind left behind stays in the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.gemini_parts import Parts, split
from crowmem.importers.places import Format, below
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source

_TYPES = ("user", "assistant", "tool_result", "system")


def sniff(head: Head) -> bool:
    """Envelopes around messages with parts, or system records with a payload."""
    return any(
        is_record(record) and ("systemPayload" in record or _parts(record) is not None) for record in head.records
    )


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    return value.get("type") in _TYPES and "sessionId" in value and "uuid" in value


def _parts(record: dict[str, Any]) -> Any:
    message = record.get("message")
    return message.get("parts") if isinstance(message, dict) else None


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    yield from read_events(source, _Reader(source), is_record)


@dataclass(slots=True)
class _Open:
    """A reply whose next line may belong to it."""

    uuid: str
    parts: Parts
    line: Line
    time: Any
    usage: dict[str, int] | None = None
    lines: int = 1


class _Reader(EventReader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._open: _Open | None = None

    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind = record.get("type")
        if not is_record(record) or kind == "system":
            self.passed(record.get("subtype") or kind)
            title = (record.get("systemPayload") or {}).get("customTitle")
            if title:
                yield self.facts(title=chat.text(title))
            return
        self.source.records += 1
        uuid = chat.text(record["uuid"])
        if self._open is None or self._open.uuid != uuid or kind != "assistant":
            yield from self.close()
        self.session = chat.text(record["sessionId"])
        self.cwd = chat.text(record.get("cwd")) or self.cwd
        self.git_branch = chat.text(record.get("gitBranch")) or self.git_branch
        self.model = chat.text(record.get("model")) or self.model
        found, time = split(_parts(record)), record.get("timestamp")
        if kind == "assistant":
            self._reply(uuid, found, line, time, record.get("usageMetadata"))
            return
        for result in found.results:
            yield self.turn(f"t:{uuid}:{result['tool_call_id']}", result, line, time)
        if found.content:
            content = chat.simplest(found.content)
            inserted = wrapper(content) if isinstance(content, str) else ""
            message = chat.injected(inserted, content) if inserted else {"role": "user", "content": content}
            yield self.turn(f"u:{uuid}", message, line, time, injected=bool(inserted))

    def close(self) -> Iterator[Item]:
        reply, self._open, self.held = self._open, None, None
        if reply is None:
            return
        message = chat.assistant(chat.simplest(reply.parts.content), reply.parts.reasoning, reply.parts.calls)
        if chat.is_empty(message):
            self.passed("empty reply")
            return
        yield self.turn(f"m:{reply.uuid}", message, reply.line, reply.time, usage=reply.usage, parts=reply.lines)

    def _reply(self, uuid: str, found: Parts, line: Line, time: Any, counts: Any) -> None:
        usage = None
        if isinstance(counts, dict):
            usage = chat.usage(
                counts.get("promptTokenCount"), counts.get("candidatesTokenCount"), counts.get("totalTokenCount")
            )
        if self._open is None:
            self._open = _Open(uuid, found, line, time, usage)
            self.hold(line)
            return
        reply = self._open
        reply.parts.content += found.content
        reply.parts.reasoning += found.reasoning
        reply.parts.calls += found.calls
        reply.usage = usage or reply.usage
        reply.lines += 1


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The chats of all projects."""
    return below(home / ".qwen" / "projects")


FORMAT = Format(
    name="qwen-code",
    title="Qwen Code",
    sniff=sniff,
    read=read,
    discover=discover,
    resume=("qwen", "--resume", "{session}"),
)

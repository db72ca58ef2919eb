"""Cursor's agent transcripts: ``~/.cursor/projects/<folder>/agent-transcripts/<id>.jsonl``, a role and Anthropic's
blocks a line.

The lines have neither ids nor times: a message goes by its position and its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source


def sniff(head: Head) -> bool:
    """Lines of a role and a message, and nothing that other tools add."""
    return bool(head.records) and all(is_record(record) for record in head.records[:3])


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    return value.get("role") in ("user", "assistant") and isinstance(value.get("message"), dict) and "type" not in value


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    yield from read_events(source, _Reader(source), is_record)


class _Reader(EventReader):
    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        message = record.get("message")
        if not isinstance(message, dict):
            self.passed("record without a message")
            return
        self.source.records += 1
        for made in anthropic.messages(chat.text(record.get("role")), message.get("content"), self.names):
            if made["role"] == "user":
                yield self.prompt(made["content"], line)
            else:
                yield self.numbered(made, line)


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The transcripts of all projects."""
    return below(*sorted((home / ".cursor" / "projects").glob("*/agent-transcripts")))


FORMAT = Format(name="cursor", title="Cursor agent transcripts", sniff=sniff, read=read, discover=discover)

"""Gemini CLI: ``~/.gemini/tmp/<project>/chats/session-*.json``, since spring 2026 ``.jsonl``.

In both forms a message has an id and may be written again with more in it: the larger one counts. Results stand inside
the calls. In lines there are also updates of the header (``$set``) and ``$rewindTo``; what was rewound stays in the
memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.conversations import is_lines
from crowmem.importers.document import members
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.gemini_parts import response, split
from crowmem.importers.guard import guarded
from crowmem.importers.items import Item, Mark, Skip
from crowmem.importers.lines import Line
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.source import Head, Source

_NOTES = ("info", "warning", "error")
_MESSAGES = ("user", "gemini", "model", *_NOTES)


def sniff(head: Head) -> bool:
    """A header with a session and a project."""
    return any({"sessionId", "projectHash"} <= found.keys() for found in [head.object, *head.records[:1]])


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    return ("id" in value and value.get("type") in _MESSAGES) or "$set" in value or "$rewindTo" in value


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    reader = _Reader(source)
    if is_lines(source):
        yield from read_events(source, reader, is_record)
        return
    with source.open() as stream:
        for member in members(stream):
            line = Line(member.line, 0, member.value)
            if member.broken:
                yield Skip(str(source.path), member.line, member.broken)
            elif member.key == "messages" and isinstance(member.value, dict):
                yield from guarded(reader.event(member.value, line), source, member.line)
            elif member.key is not None:
                yield from guarded(reader.event({member.key: member.value}, line), source, member.line)
    yield reader.facts()
    yield Mark(0, 0)  # the whole file is written anew


class _Reader(EventReader):
    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind = record.get("type")
        if "id" in record and kind in _MESSAGES:
            self.source.records += 1
            yield from self._message(record, chat.text(kind), line)
        elif "$rewindTo" in record:
            self.passed("$rewindTo")
        elif isinstance(record.get("$set"), dict):
            self.passed("$set")
            for message in record["$set"].get("messages") or []:
                if isinstance(message, dict) and is_record(message):
                    yield from self.event(message, line)
        elif "sessionId" in record or "kind" in record or "projectHash" in record:
            self._header(record)
        elif not record.keys() <= {"startTime", "lastUpdated", "summary", "meta", "directories", "messages"}:
            self.passed(kind or "member " + ", ".join(record))

    def _header(self, record: dict[str, Any]) -> None:
        if record.get("sessionId"):
            self.session = chat.text(record["sessionId"])
        if record.get("kind") == "subagent":  # these lie in a folder named after the session they belong to
            self.session, self.agent = self.source.path.parent.name, self.session

    def _message(self, record: dict[str, Any], kind: str, line: Line) -> Iterator[Item]:
        found = split(record.get("content", record.get("parts")))
        key, time = f"m:{chat.text(record['id'])}", record.get("timestamp")
        if kind == "user":
            yield from self._sized(key, {"role": "user", "content": chat.simplest(found.content) or ""}, line, time)
            return
        if kind in _NOTES:
            yield from self._sized(key, chat.injected(kind, chat.simplest(found.content)), line, time, injected=True)
            return
        self.model = chat.text(record.get("model")) or self.model
        calls = [call for call in record.get("toolCalls") or [] if isinstance(call, dict)]
        made = [chat.tool_call(call.get("id"), call.get("name"), call.get("args")) for call in calls]
        message = chat.assistant(
            chat.simplest(found.content), [*_thoughts(record.get("thoughts")), *found.reasoning], made + found.calls
        )
        if chat.is_empty(message):
            self.passed("empty reply")
        else:
            yield from self._sized(key, message, line, time, usage=_usage(record.get("tokens")))
        for call in calls:
            for result in _results(call):
                yield from self._sized(f"t:{result['tool_call_id']}", result, line, call.get("timestamp"))

    def _sized(self, key: str, message: dict[str, Any], line: Line, time: Any, **more: Any) -> Iterator[Item]:
        yield self.turn(key, message, line, time, parts=len(chat.compact(message)), **more)


def _thoughts(thoughts: Any) -> list[str]:
    found = [thought for thought in thoughts or [] if isinstance(thought, dict)]
    return [
        "\n".join(filter(None, (chat.text(one.get("subject")), chat.text(one.get("description"))))) for one in found
    ]


def _results(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The results inside a call; what was shown to the user serves where there is no other."""
    responses = [
        part["functionResponse"]
        for part in call.get("result") or []
        if isinstance(part, dict) and "functionResponse" in part
    ]
    if responses:
        yield from (response(found, call) for found in responses if isinstance(found, dict))
    elif call.get("resultDisplay"):
        shown = call["resultDisplay"]
        yield chat.tool(
            call.get("id"), shown if isinstance(shown, str) else chat.compact(shown), name=chat.text(call.get("name"))
        )


def _usage(tokens: Any) -> dict[str, int] | None:
    if not isinstance(tokens, dict):
        return None
    said = sum(count for name in ("output", "thoughts") if isinstance(count := tokens.get(name), int))
    return chat.usage(tokens.get("input"), said, tokens.get("total"))


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """Running and finished sessions."""
    return below(*sorted((home / ".gemini" / "tmp").glob("*/chats")), home / ".gemini" / "history")


FORMAT = Format(
    name="gemini-cli",
    title="Gemini CLI",
    sniff=sniff,
    read=read,
    discover=discover,
    resume=("gemini", "--resume", "{session}"),
)

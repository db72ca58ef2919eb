"""pi and OpenClaw: ``~/.pi/agent/sessions/--<cwd>--/<time>_<id>.jsonl``, a header and entries; also Factory's Droid.

The entries form a tree by ``id`` and ``parentId``; all branches are kept, in the order of the file. Droid writes the
same frame around Anthropic's messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.places import Format, below, folder
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source

_HEADERS = ("session", "session_start")
_ENTRIES = (
    *_HEADERS,
    "message",
    "compaction",
    "branch_summary",
    "custom",
    "custom_message",
    "model_change",
    "thinking_level_change",
    "label",
    "session_info",
)


def sniff(head: Head) -> bool:
    """A header, or messages inside entries."""
    return any(is_record(record) for record in head.records[:3])


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    kind = value.get("type")
    if kind == "message":
        return isinstance(value.get("message"), dict) and "role" in value["message"] and "sessionId" not in value
    return kind in _HEADERS and "id" in value and "cwd" in value


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    yield from read_events(source, _Reader(source), lambda value: value.get("type") in _ENTRIES)


class _Reader(EventReader):
    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind, time = record.get("type"), record.get("timestamp")
        message = record.get("message")
        if kind == "message" and isinstance(message, dict):
            self.source.records += 1
            self.model = chat.text(message.get("model")) or self.model
            yield from self._message(record, message, line, time)
            return
        self.passed(kind)
        if kind in _HEADERS:
            self.session = chat.text(record.get("id")) or self.session
            self.cwd = chat.text(record.get("cwd"))
            self.model = chat.text(record.get("modelId")) or self.model
            title = chat.text(record.get("title") or record.get("sessionTitle"))
            yield self.facts(title=title, parent=chat.text(record.get("parentSession") or record.get("parent")))
        elif kind == "session_info" and record.get("name"):
            yield self.facts(title=chat.text(record["name"]))
        elif kind == "model_change":
            self.model = chat.text(record.get("modelId"))
        elif kind in ("compaction", "branch_summary") and record.get("summary"):
            yield self._entry(record, chat.injected("compact-summary", record["summary"]), line, injected=True)
        elif kind == "custom_message" and record.get("content"):
            yield self._entry(record, chat.injected("meta", _content(record["content"])), line, injected=True)

    def _entry(
        self,
        record: dict[str, Any],
        message: dict[str, Any],
        line: Line,
        *,
        usage: dict[str, int] | None = None,
        injected: bool = False,
    ) -> Item:
        """Entries go by their id; old files have none, there the time and the text serve."""
        key = chat.text(record.get("id")) or chat.digest(chat.text(record.get("timestamp")), chat.compact(message))
        key = f"e:{key}:{message['role']}:{message.get('tool_call_id', '')}"
        return self.turn(key, message, line, record.get("timestamp"), usage=usage, injected=injected)

    def _message(self, record: dict[str, Any], message: dict[str, Any], line: Line, time: Any) -> Iterator[Item]:
        role, content = chat.text(message.get("role")), message.get("content")
        if role == "toolResult":
            made = chat.tool(
                message.get("toolCallId"),
                _content(content),
                name=chat.text(message.get("toolName")),
                is_error=message.get("isError") is True,
            )
            yield self._entry(record, made, line)
        elif role == "assistant":
            made = anthropic.assistant([_block(block) for block in anthropic.blocks_of(content)])
            self.called(made.get("tool_calls", []))
            if not chat.is_empty(made):
                yield self._entry(record, made, line, usage=_usage(message.get("usage")))
            elif message.get("errorMessage"):
                yield self._entry(record, chat.injected("client-error", message["errorMessage"]), line, injected=True)
            else:
                self.passed("empty reply")
        elif role == "user":
            for made in anthropic.messages("user", content, self.names):
                found = made["content"]
                inserted = wrapper(found) if made["role"] == "user" and isinstance(found, str) else ""
                if inserted:
                    made = chat.injected(inserted, found)
                yield self._entry(record, made, line, injected=bool(inserted))
        else:
            text = _content(content if content is not None else _command(message))
            yield self._entry(record, chat.injected(role or "meta", text), line, injected=True)


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """pi's spelling of a call as Anthropic's; all else is the same."""
    if block.get("type") == "toolCall":
        return {"type": "tool_use", "id": block.get("id"), "name": block.get("name"), "input": block.get("arguments")}
    return block


def _content(content: Any) -> Any:
    return chat.simplest(anthropic.blocks_of(content))


def _command(message: dict[str, Any]) -> str:
    """A command the user ran beside the conversation, and its output."""
    return "\n".join(chat.text(message[name]) for name in ("command", "output", "summary") if message.get(name))


def _usage(found: Any) -> dict[str, int] | None:
    if not isinstance(found, dict):
        return None
    asked = sum(count for name in ("input", "cacheRead", "cacheWrite") if isinstance(count := found.get(name), int))
    return chat.usage(asked, found.get("output"))


def resumes(path: Path) -> bool:
    """Whether pi itself wrote it: OpenClaw writes the same lines, and its agents are no sessions of pi's."""
    return ".openclaw" not in path.parts


def discover(home: Path, env: Mapping[str, str]) -> list[Path]:
    """The sessions of pi, and of OpenClaw's agents."""
    top = folder(env, "PI_CODING_AGENT_DIR", home / ".pi" / "agent")
    claws = sorted((home / ".openclaw" / "agents").glob("*/sessions"))
    return below(top / "sessions", *claws)


FORMAT = Format(
    name="pi",
    title="pi and OpenClaw",
    sniff=sniff,
    read=read,
    discover=discover,
    resume=("pi", "--session", "{session}"),
    resumes=resumes,
)

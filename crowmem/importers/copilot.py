"""GitHub Copilot CLI: ``~/.copilot/session-state/<id>/events.jsonl``, ``{type, data, id, parentId, timestamp}`` a line.

An assistant message may come in chunks with one ``messageId``. Calls stand in the message, results in
``tool.execution_complete``; hooks and bookkeeping are over a third of the lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.places import Format, below
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item, Turn
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source

_SAME = 100  # first characters that tell a longer output from another text


def sniff(head: Head) -> bool:
    """Events whose type has a dot, with data and an id."""
    return any(is_record(record) for record in head.records[:3])


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    kind = value.get("type")
    return (
        isinstance(kind, str)
        and ("." in kind or kind == "abort")
        and isinstance(value.get("data"), dict)
        and "id" in value
    )


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    yield from read_events(source, _Reader(source), is_record)


class _Reader(EventReader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if source.path.stem == "events":
            self.session = source.state.get("session", source.path.parent.name)
        self._open: tuple[str, Turn] | None = None
        self._thought = ""  # reasoning that came as an event of its own

    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind, data = chat.text(record.get("type")), record.get("data")
        data = data if isinstance(data, dict) else {}
        time, agent = record.get("timestamp"), chat.text(data.get("parentToolCallId"))
        key = f"e:{chat.text(record.get('id'))}:{chat.digest(chat.compact(data))}"
        if kind == "assistant.message":
            self.source.records += 1
            yield from self._reply(data, line, time, agent)
            return
        yield from self.close()
        if kind == "user.message":
            self.source.records += 1
            text = chat.text(data.get("content"))
            inserted = wrapper(text)
            message = chat.injected(inserted, text) if inserted else {"role": "user", "content": text}
            yield self.turn(key, message, line, time, injected=bool(inserted), agent=agent)
        elif kind == "system.message":
            self.source.records += 1
            message = {"role": "system", "content": chat.text(data.get("content"))}
            yield self.turn(key, message, line, time, injected=True, agent=agent)
        elif kind == "tool.execution_complete":
            self.source.records += 1
            yield self.turn(f"t:{chat.text(data.get('toolCallId'))}:{key}", self._result(data), line, time, agent=agent)
        elif kind == "system.notification":
            message = chat.injected("notification", chat.text(data.get("content")))
            yield self.turn(key, message, line, time, injected=True)
        else:
            yield from self._other(kind, data)

    def close(self) -> Iterator[Item]:
        reply, self._open, self.held = self._open, None, None
        if reply is None:
            return
        if chat.is_empty(reply[1].message):
            self.passed("empty reply")
        else:
            yield reply[1]

    def _other(self, kind: str, data: dict[str, Any]) -> Iterator[Item]:
        self.passed(kind)
        if kind == "assistant.reasoning":
            self._thought = chat.text(data.get("content"))
        elif kind in ("session.start", "session.resume"):
            context = data.get("context")
            context = context if isinstance(context, dict) else {}
            self.session = chat.text(data.get("sessionId")) or self.session
            self.model = chat.text(data.get("selectedModel")) or self.model
            self.cwd = chat.text(context.get("cwd")) or self.cwd
            self.git_branch = chat.text(context.get("branch")) or self.git_branch
        elif kind == "session.model_change":
            self.model = chat.text(data.get("newModel")) or self.model
        elif kind.startswith("session.") and isinstance(data.get("title"), str):
            yield self.facts(title=data["title"])

    def _reply(self, data: dict[str, Any], line: Line, time: Any, agent: str) -> Iterator[Item]:
        self.model = chat.text(data.get("model")) or self.model
        requests = [request for request in data.get("toolRequests") or [] if isinstance(request, dict)]
        calls = [chat.tool_call(one.get("toolCallId"), one.get("name"), one.get("arguments")) for one in requests]
        self.called(calls)
        thought = chat.text(data.get("reasoningText")) or self._thought
        self._thought = ""
        message = chat.assistant(chat.text(data.get("content")) or None, [thought], calls)
        usage = chat.usage(0, data.get("outputTokens"))
        message_id = chat.text(data.get("messageId"))
        if self._open and message_id and self._open[0] == message_id and data.get("chunkIndex"):
            _append(self._open[1], message)
            return
        yield from self.close()
        key = f"m:{message_id}:{chat.digest(chat.text(time))}"
        turn = self.turn(key, message, line, time, usage=usage, agent=agent)
        self.hold(line)
        self._open = (message_id, turn)

    def _result(self, data: dict[str, Any]) -> dict[str, Any]:
        result = data.get("result") or data.get("error")
        if isinstance(result, dict):
            seen, whole = chat.text(result.get("content")), chat.text(result.get("detailedContent"))
            longer = len(whole) > len(seen) and whole.startswith(seen[:_SAME])
            content: Any = (whole if longer else seen) or chat.text(result.get("message")) or chat.compact(result)
        else:
            content = result
        call_id = chat.text(data.get("toolCallId"))
        name = self.names.get(call_id, "")
        return chat.tool(call_id, content, name=name, is_error=data.get("success") is False)


def _append(turn: Turn, message: dict[str, Any]) -> None:
    """Add a chunk to a message."""
    turn.parts += 1
    for name in ("content", "reasoning_content", "tool_calls"):
        more = message.get(name)
        if more:
            had = turn.message.get(name)
            turn.message[name] = had + more if had else more


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The sessions' folder."""
    return below(home / ".copilot" / "session-state")


FORMAT = Format(
    name="copilot-cli",
    title="GitHub Copilot CLI",
    sniff=sniff,
    read=read,
    discover=discover,
    resume=("copilot", "--resume", "{session}"),
)

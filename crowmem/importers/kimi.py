"""Kimi Code CLI: ``~/.kimi/sessions/.../wire.jsonl``, the agent's events. A step of the model begins, brings text,
thoughts and calls with their results, and ends with its tokens; the step becomes one message, the results follow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.events import EventReader, read_events
from crowmem.importers.places import Format, below
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.items import Item, Turn
    from crowmem.importers.lines import Line
    from crowmem.importers.source import Head, Source

_OWN = ("context.append_message", "context.append_loop_event", "turn.prompt", "config.update", "llm.request")


def sniff(head: Head) -> bool:
    """A protocol version, or events of the loop."""
    return any("protocol_version" in record or is_record(record) for record in head.records)


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    return value.get("type") in _OWN and "time" in value


def read(source: Source) -> Iterator[Item]:
    """The turns of one agent."""
    yield from read_events(source, _Reader(source), lambda value: "type" in value and "time" in value)


class _Step:
    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.content: list[dict[str, Any]] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.results: list[Turn] = []


class _Reader(EventReader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._step: _Step | None = None
        if source.path.stem != "wire":
            return
        folder = source.path.parent  # of the session, or of one of its sub-agents
        self.session = folder.name
        if folder.parent.name == "subagents":
            self.session, self.agent = folder.parent.parent.name, folder.name

    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        kind, time = record.get("type"), record.get("time")
        if kind == "context.append_loop_event" and isinstance(record.get("event"), dict):
            self.source.records += 1
            yield from self._loop(record["event"], line, time)
        elif kind == "context.append_message" and isinstance(record.get("message"), dict):
            self.source.records += 1
            yield from self.close()
            yield self._message(record["message"], line, time)
        else:
            self.passed(kind)
            self.model = chat.text(record.get("model") or record.get("modelAlias")) or self.model
            self.cwd = chat.text(record.get("cwd")) or self.cwd
            if kind == "context.apply_compaction" and record.get("summary"):
                yield from self.close()
                message = chat.injected("compact-summary", record["summary"])
                yield self.turn(f"i:{time}:{chat.digest(chat.compact(message))}", message, line, time, injected=True)

    def close(self) -> Iterator[Item]:
        step, self._step, self.held = self._step, None, None
        if step is None:
            return
        message = chat.assistant(chat.simplest(step.content), step.reasoning, step.calls)
        if chat.is_empty(message):
            self.passed("empty reply")
        else:
            step.turn.message = message
            yield step.turn
        yield from step.results

    def _message(self, message: dict[str, Any], line: Line, time: Any) -> Turn:
        content = chat.simplest(anthropic.blocks_of(message.get("content")))
        origin = message.get("origin")
        kind = origin.get("kind") if isinstance(origin, dict) else ""
        inserted = wrapper(content) if isinstance(content, str) else ""
        if kind not in (None, "", "user") and not inserted:
            inserted = "meta"
        role = chat.text(message.get("role"))
        made = chat.injected(inserted, content) if inserted else {"role": role, "content": content}
        return self.turn(f"i:{time}:{chat.digest(chat.compact(made))}", made, line, time, injected=bool(inserted))

    def _loop(self, event: dict[str, Any], line: Line, time: Any) -> Iterator[Item]:
        kind = event.get("type")
        if kind == "step.begin":
            yield from self.close()
            self.hold(line)
            self._step = _Step(self.turn(f"m:{chat.text(event.get('uuid'))}", {}, line, time))
            return
        step = self._step
        if step is None:
            step = self._step = _Step(self.turn(f"m:{chat.text(event.get('stepUuid')) or time}", {}, line, time))
            self.hold(line)
        step.turn.parts += 1
        if kind == "content.part" and isinstance(event.get("part"), dict):
            part = event["part"]
            if part.get("type") == "think":
                step.reasoning.append(chat.text(part.get("think")))
            else:
                step.content.append(part)
        elif kind == "tool.call":
            call = chat.tool_call(event.get("toolCallId"), event.get("name"), event.get("args"))
            self.called([call])
            step.calls.append(call)
        elif kind == "tool.result":
            step.results.append(self._result(event, line, time))
        elif kind == "step.end" and isinstance(event.get("usage"), dict):
            used = event["usage"]
            asked = [used.get(name) for name in ("inputOther", "inputCacheRead", "inputCacheCreation")]
            step.turn.usage = chat.usage(sum(count for count in asked if isinstance(count, int)), used.get("output"))

    def _result(self, event: dict[str, Any], line: Line, time: Any) -> Turn:
        result = event.get("result")
        result = result if isinstance(result, dict) else {"output": result}
        output = result.get("output")
        content = (
            chat.simplest(anthropic.blocks_of(output)) if isinstance(output, (list, str)) else chat.compact(result)
        )
        call_id = chat.text(event.get("toolCallId"))
        failed = result.get("isError") is True
        message = chat.tool(call_id, content, name=self.names.get(call_id, ""), is_error=failed)
        return self.turn(f"t:{call_id}:{chat.digest(chat.compact(message))}", message, line, time)


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The sessions' folders of old and new versions."""
    return below(home / ".kimi" / "sessions", home / ".kimi-code" / "sessions")


FORMAT = Format(
    name="kimi",
    title="Kimi Code CLI",
    sniff=sniff,
    read=read,
    discover=discover,
    resume=("kimi", "--session", "{session}"),
)

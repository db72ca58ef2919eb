"""OpenHands: lists of events, one event a file (``~/.openhands/sessions/<id>/events/<n>.json``), or lists in
``history``.

An action with ``tool_call_metadata`` carries the model's whole reply; several actions of one reply repeat it, so it is
taken once. Observations answer by the call's id, or by ``cause``. Changes of state are not conversation. Times have no
zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.conversations import Conversation, Said, read_conversations
from crowmem.importers.document import members
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, Turn
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.source import Head, Source

_STATE = ("agent_state_changed", "change_agent_state", "null", "recall", "system", "condensation")


def sniff(head: Head) -> bool:
    """An event, a list of events, or lines with a history of events."""
    values = [head.object, *head.elements[:1], *[_first(record.get("history")) for record in head.records[:1]]]
    return any(_is_event(value) for value in values)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _is_event(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and {"source", "timestamp"} <= value.keys()
        and bool({"action", "observation"} & value.keys())
    )


def read(source: Source) -> Iterator[Item]:
    """The turns of one file."""
    folder = source.path.parent
    if folder.name == "events":
        yield from _single(source, folder.parent.name)
        return
    with source.open() as stream:
        listed = next((member.key is None and not member.broken for member in members(stream)), False)
    if listed:
        yield from _list(source)
    else:
        yield from read_conversations(source, _history)


def _list(source: Source) -> Iterator[Item]:
    """A whole file that is one list of events: a single conversation."""
    with source.open() as stream:
        events = [member.value for member in members(stream) if not member.broken]
    yield from read_conversations(source, lambda value: _once(value, events))


def _once(value: Any, events: list[Any]) -> Conversation | None:
    """All events of a list as one conversation, at its first event; the others are in it already."""
    return _conversation(events) if value == events[0] else Conversation([], records=0)


def _history(value: Any) -> Conversation | None:
    events = value.get("history") if isinstance(value, dict) else None
    return _conversation(events) if isinstance(events, list) else None


def _conversation(events: list[Any]) -> Conversation:
    reader = _Events()
    said = [one[1] for event in events if isinstance(event, dict) for one in reader.event(event)]
    return Conversation(said, records=len(events), model=reader.model, passed=reader.passed)


def _single(source: Source, session: str) -> Iterator[Item]:
    whole: dict[str, Any] = {}
    with source.open() as stream:
        for member in members(stream):
            if member.key is not None and member.index is None:
                whole[member.key] = member.value
    source.records += 1
    yield from guarded(_turns(source, session, whole), source, 1)
    yield Mark(0, 0)


def _turns(source: Source, session: str, event: dict[str, Any]) -> Iterator[Item]:
    reader = _Events()
    for key, said in reader.event(event):
        yield Turn(
            session, MAIN, (key,), said.message, 1, said.created_at, said.usage, reader.model, injected=said.injected
        )
    source.passed.update(reader.passed)


class _Events:
    def __init__(self) -> None:
        self.model = ""
        self.passed: dict[str, int] = {}
        self._replies: set[str] = set()

    def event(self, event: dict[str, Any]) -> Iterator[tuple[str, Said]]:
        """The messages of one event, each with its key."""
        kind = chat.text(event.get("action") or event.get("observation"))
        if kind in _STATE:
            self.passed[f"event {kind}"] = self.passed.get(f"event {kind}", 0) + 1
            return
        time = chat.moment(event.get("timestamp"))
        if "observation" in event:
            yield f"e:{event.get('id')}", Said(self._observation(event, kind), time)
        elif isinstance(event.get("tool_call_metadata"), dict):
            yield from self._reply(event["tool_call_metadata"], time)
        else:
            yield f"e:{event.get('id')}", Said(_action(event, kind), time)

    def _reply(self, metadata: dict[str, Any], time: Any) -> Iterator[tuple[str, Said]]:
        response = metadata.get("model_response")
        response = response if isinstance(response, dict) else {}
        reply_id = chat.text(response.get("id"))
        if reply_id in self._replies:
            self.passed["another call of the same reply"] = self.passed.get("another call of the same reply", 0) + 1
            return
        self._replies.add(reply_id)
        self.model = chat.text(response.get("model")) or self.model
        choice = _first(response.get("choices"))
        found = choice.get("message") if isinstance(choice, dict) else None
        message = dict(found) if isinstance(found, dict) else {"role": "assistant", "content": None}
        if not message.get("tool_calls"):
            call = chat.tool_call(metadata.get("tool_call_id"), metadata.get("function_name"), None)
            message["tool_calls"] = [call]
        used = response.get("usage")
        used = used if isinstance(used, dict) else {}
        usage = chat.usage(used.get("prompt_tokens"), used.get("completion_tokens"), used.get("total_tokens"))
        yield f"r:{reply_id or metadata.get('tool_call_id')}", Said(message, time, usage)

    def _observation(self, event: dict[str, Any], kind: str) -> dict[str, Any]:
        metadata = event.get("tool_call_metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        call_id = metadata.get("tool_call_id") or f"event-{event.get('cause')}"
        name = chat.text(metadata.get("function_name")) or kind
        return chat.tool(call_id, event.get("content"), name=name, is_error=kind == "error")


def _action(event: dict[str, Any], kind: str) -> dict[str, Any]:
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    if kind == "message":
        role = "user" if event.get("source") == "user" else "assistant"
        images = [{"type": "image_url", "image_url": {"url": url}} for url in arguments.get("image_urls") or []]
        text = chat.text(arguments.get("content"))
        return {"role": role, "content": [{"type": "text", "text": text}, *images] if images else text}
    thought = chat.text(arguments.get("thought"))
    given = {name: value for name, value in arguments.items() if name != "thought"}
    return chat.assistant(thought or None, calls=[chat.tool_call(f"event-{event.get('id')}", kind, given)])


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The sessions' folder."""
    return below(home / ".openhands" / "sessions")


FORMAT = Format(name="openhands", title="OpenHands", sniff=sniff, read=read, discover=discover)

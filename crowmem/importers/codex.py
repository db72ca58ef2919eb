"""OpenAI Codex CLI: ``~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl``, ``{timestamp, type, payload}`` a line.

Only ``response_item`` lines are the conversation; ``event_msg`` says the same again for the screen, ``compacted`` holds
a whole earlier history. One response of the model is several items (reasoning, text, calls) and becomes one message;
the outputs of its calls follow. The response's tokens come later, in a ``token_count`` event, so a response is held
until the next one, or a prompt. Before mid-2025 the items stood bare, without an envelope, after a line with the
session's id.

The first ``session_meta`` names the session and the agent. A sub-agent's file and a fork begin with the parent's lines
written again, under the time of the copy and behind the parent's own ``session_meta``: a fork keeps them, being a
session of its own, a sub-agent shares the session that has them already and passes them over.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.codex_items import CALLS, OUTPUTS, content, output, picture
from crowmem.importers.codex_response import Response
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.lines import Line, read_lines
from crowmem.importers.places import Format, below, folder
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.source import Head, Source

_MARK_BYTES = 8 * 1024 * 1024
_COPY = timedelta(seconds=2)  # lines of the parent are written in one go when a thread is made
_ENVELOPES = (
    "session_meta",
    "turn_context",
    "response_item",
    "event_msg",
    "compacted",
    "world_state",
    "inter_agent_communication_metadata",
)
_BARE = ("message", "reasoning", *CALLS, *OUTPUTS)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_KEPT = ("session", "agent", "cwd", "branch", "model", "total", "bare")


def sniff(head: Head) -> bool:
    """Lines with an envelope, or an old file: its first line has the session's id, the next ones are bare items."""
    records = head.records
    if any(is_record(record) for record in records):
        return True
    return (
        bool(records) and {"id", "timestamp"} <= records[0].keys() and any(_is_bare(record) for record in records[1:])
    )


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole line."""
    return value.get("type") in _ENVELOPES and isinstance(value.get("payload"), dict)


def _is_bare(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    whole = "role" in value if kind == "message" else kind in _BARE
    return "payload" not in value and "message" not in value and (whole or "record_type" in value)


def read(source: Source) -> Iterator[Item]:
    """The turns of one file."""
    reader = _Reader(source)
    marked = source.offset
    for line in read_lines(source, is_record):
        if isinstance(line, Skip):
            yield line
            continue
        yield from guarded(reader.line(line), source, line.number)
        if source.offset - marked > _MARK_BYTES:
            marked = source.offset
            yield reader.mark()
    yield from reader.close()
    yield reader.mark()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._state: dict[str, Any] = dict(source.state)
        self._open: Response | None = None
        self._last: tuple[int, int, dict[str, Any]] | None = None  # where the newest response began
        self._names: dict[str, str] = {}
        self._copying = False
        self._made: Any = None  # when the thread was made
        if "session" not in self._state:
            found = _UUID.search(source.path.stem.removesuffix(".jsonl"))
            self._state.update(session=found[0] if found else source.path.stem, agent=MAIN)

    def line(self, line: Line) -> Iterator[Item]:
        record = line.value
        kind, payload = chat.text(record.get("type")), record.get("payload")
        if not isinstance(payload, dict):
            yield from self._bare(line)
        elif kind == "response_item":
            yield from self._item(payload, line, record.get("timestamp"))
        elif kind == "session_meta":
            yield from self._meta(payload)
        elif kind == "turn_context":
            self._source.passed[kind] += 1
            self._state["model"] = chat.text(payload.get("model")) or self._state.get("model", "")
            self._state["cwd"] = chat.text(payload.get("cwd")) or self._state.get("cwd", "")
        elif kind == "event_msg":
            yield from self._event(payload)
        elif kind == "compacted" and chat.text(payload.get("message")).strip():
            message = chat.injected("compact-summary", payload["message"])
            yield from self._alone(message, payload, line, record.get("timestamp"), injected=True)
        else:
            self._source.passed[kind or "record without a type"] += 1

    def mark(self) -> Mark:
        """Reading may go on from the first line of the newest response, with the state of that moment."""
        if self._last is None or (self._open is None and self._source.offset - self._last[0] > _MARK_BYTES):
            self._source.state = dict(self._state)
            return Mark(self._source.offset, self._source.line)
        offset, line, state = self._last
        self._source.state = state
        return Mark(offset, line)

    def close(self) -> Iterator[Turn]:
        """Yield the open response and its outputs."""
        response, self._open = self._open, None
        if response is None:
            return
        message = response.message()
        if chat.is_empty(message):
            self._source.passed["reasoning without text"] += 1
        else:
            response.turn.message = message
            yield response.turn
        yield from response.drawn
        yield from response.outputs

    def _meta(self, payload: dict[str, Any]) -> Iterator[Item]:
        if self._state.get("named"):
            other = payload.get("id") != self._state["thread"]
            self._copying = other and self._state["agent"] != MAIN
            self._source.passed["session_meta of another thread" if other else "session_meta"] += 1
            return
        spawn = payload.get("source")
        spawn = spawn.get("subagent") if isinstance(spawn, dict) else None
        thread = chat.text(payload.get("id")) or self._state["session"]
        parent = chat.text(payload.get("parent_thread_id"))
        session = chat.text(payload.get("session_id"))
        if spawn is not None or parent:
            session = session if session and session != thread else parent or thread
        self._state.update(
            named=True,
            thread=thread,
            session=session or thread,
            agent=thread if session and session != thread else MAIN,
            cwd=chat.text(payload.get("cwd")),
        )
        git = payload.get("git")
        self._state["branch"] = chat.text(git.get("branch")) if isinstance(git, dict) else ""
        self._made = chat.moment(payload.get("timestamp"))
        if self._state["agent"] == MAIN:
            yield SessionFacts(
                self._state["session"],
                cwd=self._state["cwd"],
                git_branch=self._state["branch"],
                parent=chat.text(payload.get("forked_from_id")),
            )

    def _event(self, payload: dict[str, Any]) -> Iterator[Item]:
        kind = chat.text(payload.get("type"))
        self._source.passed[f"event {kind}"] += 1
        if kind == "token_count":
            self._tokens(payload.get("info"))
        elif kind == "thread_name_updated" and self._state["agent"] == MAIN:
            yield SessionFacts(
                self._state["session"], title=chat.text(payload.get("thread_name") or payload.get("name"))
            )

    def _tokens(self, info: Any) -> None:
        """Give the open response its tokens. Counts that did not move repeat an older event."""
        if not isinstance(info, dict) or not isinstance(info.get("last_token_usage"), dict):
            return
        total = info.get("total_token_usage")
        moved = total is None or total != self._state.get("total")
        self._state["total"] = total
        if self._open is not None and moved and self._open.turn.usage is None:
            last = info["last_token_usage"]
            self._open.turn.usage = chat.usage(
                last.get("input_tokens"), last.get("output_tokens"), last.get("total_tokens")
            )
            self._open.turn.parts += 1  # more is known of it, so it replaces one read before the count
            self._open.complete = True

    def _bare(self, line: Line) -> Iterator[Item]:
        record = line.value
        if _is_bare(record) and record.get("type") in _BARE:
            yield from self._item(record, line, record.get("timestamp"))
        elif "id" in record and "timestamp" in record and not self._state.get("named"):
            yield from self._meta(record)
        else:
            self._source.passed[
                chat.text(record.get("record_type") or record.get("type")) or "record without a type"
            ] += 1

    def _item(self, item: dict[str, Any], line: Line, time: Any) -> Iterator[Item]:
        self._source.records += 1
        kind = chat.text(item.get("type"))
        if self._copying and self._is_copy(time):
            self._source.passed["the parent's lines, copied"] += 1
        elif kind == "message" and item.get("role") != "assistant":
            yield from self._prompt(item, line, time)
        elif kind in OUTPUTS:
            yield from self._output(item, line, time)
        elif kind in CALLS or kind in ("message", "reasoning"):
            yield from self._response(item, kind, line, time)
        elif kind == "agent_message":
            message = {
                "role": "user",
                "name": chat.text(item.get("author")) or "agent",
                "content": content(item.get("content")),
            }
            yield from self._alone(message, item, line, time)
        else:
            self._source.passed[f"item {kind}"] += 1

    def _is_copy(self, time: Any) -> bool:
        written = chat.moment(time)
        self._copying = bool(written and self._made and written - self._made < _COPY)
        return self._copying

    def _prompt(self, item: dict[str, Any], line: Line, time: Any) -> Iterator[Item]:
        found = content(item.get("content"))
        first = found if isinstance(found, str) else next((block.get("text") or "" for block in found or []), "")
        kind = "instructions" if item.get("role") != "user" else wrapper(chat.text(first))
        message = chat.injected(kind, found) if kind else {"role": "user", "content": found}
        yield from self._alone(message, item, line, time, injected=bool(kind))

    def _alone(
        self, message: dict[str, Any], item: dict[str, Any], line: Line, time: Any, *, injected: bool = False
    ) -> Iterator[Turn]:
        yield from self.close()
        yield self._turn(self._key("i", item, line, time), message, line, time, injected=injected)

    def _output(self, item: dict[str, Any], line: Line, time: Any) -> Iterator[Item]:
        call_id = chat.text(item.get("call_id"))
        message = chat.tool(call_id, output(item), name=self._names.get(call_id, ""))
        turn = self._turn(f"o:{call_id}:{_print(message)}", message, line, time)
        if self._open is None:
            yield turn
        else:
            self._open.outputs.append(turn)

    def _response(self, item: dict[str, Any], kind: str, line: Line, time: Any) -> Iterator[Item]:
        response = self._open
        if response is None or response.is_followed_by(kind):
            state = dict(self._state)
            yield from self.close()
            turn = self._turn(self._key("r", item, line, time), {}, line, time)
            turn.parts = 0
            self._open = response = Response(turn, line.offset, line.number - 1, state)
            self._last = (line.offset, line.number - 1, state)
        made = response.add(item, kind)
        if made is not None:
            self._names[made["id"]] = made["function"]["name"]
            if (drawn := picture(item)) is not None:
                message = chat.tool(made["id"], [drawn], name=made["function"]["name"])
                response.drawn.append(self._turn(f"o:{made['id']}:{_print(message)}", message, line, time))

    def _key(self, prefix: str, item: dict[str, Any], line: Line, time: Any) -> str:
        """Items go by their time and text, and without a time by their line."""
        return f"{prefix}:{chat.digest(chat.text(time) or str(line.number), chat.compact(item))}"

    def _turn(self, key: str, message: dict[str, Any], line: Line, time: Any, *, injected: bool = False) -> Turn:
        while len(self._names) > 256:
            del self._names[next(iter(self._names))]
        state = self._state
        return Turn(
            state["session"],
            state["agent"],
            (key,),
            message,
            line.number,
            chat.moment(time),
            model=state.get("model", ""),
            cwd=state.get("cwd", ""),
            git_branch=state.get("branch", ""),
            injected=injected,
        )


def _print(message: dict[str, Any]) -> str:
    return chat.digest(chat.compact(message["content"]))  # some models use a call id more than once


def discover(home: Path, env: Mapping[str, str]) -> list[Path]:
    """Running and archived sessions."""
    top = folder(env, "CODEX_HOME", home / ".codex")
    return below(top / "sessions", top / "archived_sessions")


FORMAT = Format(
    name="codex",
    title="Codex CLI",
    sniff=sniff,
    read=read,
    discover=discover,
    resume=("codex", "resume", "{session}"),
)

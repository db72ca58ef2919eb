"""opencode: exported sessions, and the storage folder of versions up to 1.1 (``~/.local/share/opencode/storage``).

In the storage a session, its messages and their parts are files of their own; the session's file is read, and the
others with it. A message that is read again with more in it (a running call that has ended) counts. A sub-agent's
session is an agent of its parent's session. Diffs in a message's summary and copies of outputs in a call's metadata are
not conversation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.document import members
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.places import Format, below, folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.source import Head, Source

_IGNORED = ("step-start", "step-finish", "snapshot", "patch", "agent", "retry")


def sniff(head: Head) -> bool:
    """An export, or one of the storage's files."""
    found = head.object
    return _is_export(found) or _is_session(found) or _is_message(found) or _is_part(found)


def _is_export(found: dict[str, Any]) -> bool:
    return _is_session(found.get("info")) and isinstance(found.get("messages"), list)


def _is_session(found: Any) -> bool:
    return isinstance(found, dict) and {"id", "projectID", "directory", "time"} <= found.keys()


def _is_message(found: dict[str, Any]) -> bool:
    return {"id", "sessionID", "role", "time"} <= found.keys()


def _is_part(found: dict[str, Any]) -> bool:
    return {"id", "sessionID", "messageID", "type"} <= found.keys()


def read(source: Source) -> Iterator[Item]:
    """The turns of one session; nothing for a message or a part by itself."""
    session: Session | None = None
    shape: dict[str, Any] = {}
    with source.open() as stream:
        for member in members(stream):
            if member.broken:
                yield Skip(str(source.path), member.line, member.broken)
            elif member.key == "info" and _is_session(member.value):
                session = Session(source, member.value)
                yield session.facts()
            elif member.key == "messages" and session is not None and isinstance(member.value, dict):
                info, parts = member.value.get("info"), member.value.get("parts")
                if isinstance(info, dict):
                    made = session.message(info, parts if isinstance(parts, list) else [], member.line)
                    yield from guarded(made, source, member.line)
            elif member.key is not None and member.index is None:
                shape[member.key] = member.value
    if session is None and _is_session(shape):
        session = Session(source, shape)
        yield session.facts()
        yield from _stored(source, session)
    elif session is None:
        source.passed["a message or part, read with its session's file"] += 1
    yield Mark(0, 0)


def companions(path: Path) -> list[Path]:
    """The files of a stored session that change while its own file may not: folders of its messages and their parts."""
    top = path.parent.parent.parent
    return [top / "message", top / "part"] if path.parent.parent.name == "session" else []


def _stored(source: Source, session: Session) -> Iterator[Item]:
    """Messages and parts from the folders beside the session's; both sort by id in the order they were made."""
    top = source.path.parent.parent.parent
    for path in sorted((top / "message" / session.id).glob("*.json")):
        info = _load(path)
        if isinstance(info, Skip):
            yield info
        elif _is_message(info):
            found = [_load(piece) for piece in sorted((top / "part" / chat.text(info["id"])).glob("*.json"))]
            yield from (part for part in found if isinstance(part, Skip))
            yield from guarded(session.message(info, found, 1), source, 1)


def _load(path: Path) -> dict[str, Any] | Skip:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return Skip(str(path), 1, f"not readable ({type(error).__name__}: {str(error)[:80]})")
    return found if isinstance(found, dict) else Skip(str(path), 1, "not a JSON object")


class Session:
    """One session: turns its messages into items."""

    def __init__(self, source: Source, info: Mapping[str, Any]) -> None:
        """Take the session's id, or its parent's with itself as the agent."""
        self.id = chat.text(info["id"])
        self._source = source
        self._parent = chat.text(info.get("parentID"))
        self._info = info

    def facts(self) -> SessionFacts:
        """Title and folder; a sub-agent's title is not its parent's."""
        title = "" if self._parent else chat.text(self._info.get("title"))
        return SessionFacts(self._parent or self.id, title, chat.text(self._info.get("directory")))

    def message(self, info: Mapping[str, Any], parts: list[Any], line: int) -> Iterator[Item]:
        """One message with its parts."""
        self._source.records += 1
        parts = [part for part in parts if isinstance(part, dict)]
        if info.get("role") == "user":
            yield from self._user(info, parts, line)
        else:
            yield from self._assistant(info, parts, line)

    def _user(self, info: Mapping[str, Any], parts: list[dict[str, Any]], line: int) -> Iterator[Item]:
        own = [block for part in parts if not part.get("synthetic") and (block := self._block(part))]
        inserted = [block for part in parts if part.get("synthetic") and (block := self._block(part))]
        if inserted:
            message = chat.injected("synthetic", chat.simplest(inserted))
            yield self._turn(f"m:{info['id']}:synthetic", message, info, line, injected=True)
        if own:
            message = {"role": "user", "content": chat.simplest(own)}
            yield self._turn(f"m:{info['id']}", message, info, line)

    def _assistant(self, info: Mapping[str, Any], parts: list[dict[str, Any]], line: int) -> Iterator[Item]:
        content = [block for part in parts if (block := self._block(part))]
        reasoning = [chat.text(part.get("text")) for part in parts if part.get("type") == "reasoning"]
        tools = [part for part in parts if part.get("type") == "tool"]
        calls = [chat.tool_call(part.get("callID"), part.get("tool"), _state(part).get("input")) for part in tools]
        message = chat.assistant(chat.simplest(content), reasoning, calls)
        if info.get("summary") is True:
            message = chat.injected("compact-summary", message["content"])
            yield self._turn(f"m:{info['id']}", message, info, line, injected=True)
        elif chat.is_empty(message):
            self._source.passed["empty reply"] += 1
        else:
            yield self._turn(f"m:{info['id']}", message, info, line, usage=_usage(info.get("tokens")))
        for part in tools:
            state = _state(part)
            if state.get("status") in ("completed", "error"):
                result = chat.tool(
                    part.get("callID"),
                    _output(state),
                    name=chat.text(part.get("tool")),
                    is_error=state["status"] == "error",
                )
                key = f"t:{chat.text(part.get('id')) or chat.text(part.get('callID'))}"
                yield self._turn(key, result, info, line, time=state.get("time", {}).get("end"))

    def _block(self, part: dict[str, Any]) -> dict[str, Any] | None:
        kind = part.get("type")
        if kind == "text" and chat.text(part.get("text")).strip() and not part.get("ignored"):
            return {"type": "text", "text": part["text"]}
        if kind == "file":
            return _file(part)
        if kind not in ("text", "reasoning", "tool"):
            self._source.passed[f"part {kind}"] += 1
        return None

    def _turn(
        self,
        key: str,
        message: dict[str, Any],
        info: Mapping[str, Any],
        line: int,
        *,
        usage: dict[str, int] | None = None,
        injected: bool = False,
        time: Any = None,
    ) -> Turn:
        model, path, made = info.get("model"), info.get("path"), info.get("time")
        named = model.get("modelID") if isinstance(model, dict) else model
        created = made.get("created") if isinstance(made, dict) else None
        return Turn(
            self._parent or self.id,
            self.id if self._parent else MAIN,
            (key,),
            message,
            line,
            chat.moment(time or created),
            usage,
            chat.text(info.get("modelID") or named),
            chat.text(path.get("cwd") if isinstance(path, dict) else self._info.get("directory")),
            injected=injected,
            parts=len(chat.compact(message)),
        )


def _state(part: dict[str, Any]) -> dict[str, Any]:
    state = part.get("state")
    return state if isinstance(state, dict) else {}


def _output(state: dict[str, Any]) -> Any:
    """A call's result: its text, with the pictures attached to it."""
    text = state.get("output") if state.get("status") == "completed" else state.get("error")
    attached = [_file(part) for part in state.get("attachments") or [] if isinstance(part, dict)]
    if not attached:
        return text if isinstance(text, str) else chat.compact(text)
    return [{"type": "text", "text": chat.text(text)}, *attached]


def _file(part: dict[str, Any]) -> dict[str, Any]:
    url, mime = chat.text(part.get("url")), chat.text(part.get("mime"))
    if mime.startswith("image/") and url.startswith(("data:", "http:", "https:")):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "mime": mime, "filename": chat.text(part.get("filename")), "url": url}


def _usage(tokens: Any) -> dict[str, int] | None:
    if not isinstance(tokens, dict):
        return None
    cache = tokens.get("cache")
    cache = cache if isinstance(cache, dict) else {}
    asked = [tokens.get("input"), cache.get("read"), cache.get("write")]
    said = [tokens.get("output"), tokens.get("reasoning")]
    return chat.usage(*(sum(count for count in counts if isinstance(count, int)) for counts in (asked, said)))


def discover(home: Path, env: Mapping[str, str]) -> list[Path]:
    """The data folder."""
    return below(folder(env, "XDG_DATA_HOME", home / ".local" / "share") / "opencode")


FORMAT = Format(
    name="opencode",
    title="opencode",
    sniff=sniff,
    read=read,
    discover=discover,
    companions=companions,
    resume=("opencode", "--session", "{session}"),
)

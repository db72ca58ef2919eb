"""Cline and Roo Code: stored sessions (``{version, sessionId, messages}``), and ``api_conversation_history.json`` of a
task.

The messages are Anthropic's. A compaction keeps the id of the prompt it stands for, so it goes by a key of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.document import members
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, Skip, Turn
from crowmem.importers.places import Format, below
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.source import Head, Source

_HISTORY = "api_conversation_history"
_EXTENSIONS = ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline")
_EDITORS = ("Code", "Code - Insiders", "Cursor", "VSCodium", "Windsurf")


def sniff(head: Head) -> bool:
    """A stored session, or a list of Anthropic messages."""
    found = head.object
    stored = {"sessionId", "messages", "version"} <= found.keys() and isinstance(found["messages"], list)
    return stored or (bool(head.elements) and _is_history(head.elements))


def _is_history(messages: list[Any]) -> bool:
    plain = all(isinstance(one, dict) and one.get("role") in ("user", "assistant") for one in messages)
    return plain and anthropic.is_body(messages)


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    session = source.path.parent.name if source.path.stem == _HISTORY else source.path.stem
    names: dict[str, str] = {}
    number = 0
    with source.open() as stream:
        for member in members(stream):
            if member.broken:
                yield Skip(str(source.path), member.line, member.broken)
            elif member.key == "sessionId":
                session = chat.text(member.value)
            elif member.key in (None, "messages") and isinstance(member.value, dict):
                source.records += 1
                made = _turns(session, number, member.value, names, member.line)
                yield from guarded(made, source, member.line)
                number += 1
    yield Mark(0, 0)


def _turns(session: str, number: int, found: dict[str, Any], names: dict[str, str], line: int) -> Iterator[Item]:
    about = found.get("modelInfo")
    model = chat.text(about.get("id")) if isinstance(about, dict) else ""
    metadata = found.get("metadata")
    compaction = isinstance(metadata, dict) and metadata.get("kind") == "compaction"
    base = chat.text(found.get("id")) or str(number)
    for message in anthropic.messages(chat.text(found.get("role")), found.get("content"), names):
        if message["role"] == "assistant" and chat.is_empty(message):
            continue
        made, injected = _sorted_out(message, compaction)
        print_ = chat.digest(chat.compact(message)) if compaction or not found.get("id") else ""
        key = f"m:{base}:{message['role']}:{message.get('tool_call_id', '')}:{print_}"
        usage = _usage(found.get("metrics")) if message["role"] == "assistant" else None
        created = chat.moment(found.get("ts"))
        yield Turn(session, MAIN, (key,), made, line, created, usage, model, injected=injected)


def _sorted_out(message: dict[str, Any], compaction: bool) -> tuple[dict[str, Any], bool]:
    if message["role"] != "user":
        return message, False
    if compaction:
        return chat.injected("compact-summary", message["content"]), True
    content = message["content"]
    kind = wrapper(content) if isinstance(content, str) else ""
    return (chat.injected(kind, content), True) if kind else (message, False)


def _usage(found: Any) -> dict[str, int] | None:
    if not isinstance(found, dict):
        return None
    asked = [found.get(name) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")]
    return chat.usage(sum(count for count in asked if isinstance(count, int)), found.get("outputTokens"))


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The tasks' folders of the extensions in all editors, and the command line's."""
    tops = [home / ".config", home / "Library" / "Application Support", home / "AppData" / "Roaming"]
    found = [
        top / editor / "User" / "globalStorage" / extension / "tasks"
        for top in tops
        for editor in _EDITORS
        for extension in _EXTENSIONS
    ]
    return below(*found, home / ".cline" / "data")


FORMAT = Format(name="cline", title="Cline and Roo Code", sniff=sniff, read=read, discover=discover)

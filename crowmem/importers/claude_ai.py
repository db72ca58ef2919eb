"""claude.ai's account export: ``conversations.json``, a list of ``{uuid, name, created_at, chat_messages}``; also
inside the zip.

``text`` and ``content`` of a message say the same; the content is taken, the text where there is none. Attachments hold
the text of files the user gave, which is set apart from what was written.
"""

from __future__ import annotations

import zipfile
from typing import IO, TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.document import members
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.source import Head, Source

_NAME = "conversations.json"
_PEEK = 4096


def sniff(head: Head) -> bool:
    """A list of conversations with chat messages, or a zip that has one."""
    if head.raw.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(head.path) as archive, archive.open(_NAME) as stream:
                start = stream.read(_PEEK)
                return b'"chat_messages"' in start or (b'"uuid"' in start and b'"mapping"' not in start)
        except (zipfile.BadZipFile, KeyError, OSError):
            return False
    return any(_is_conversation(found) for found in [head.object, *head.elements[:1]])


def _is_conversation(value: Any) -> bool:
    return isinstance(value, dict) and "uuid" in value and isinstance(value.get("chat_messages"), list)


def read(source: Source) -> Iterator[Item]:
    """The turns of all conversations of a file."""
    with source.open() as stream:
        zipped = stream.read(4) == b"PK\x03\x04"
    if zipped:
        with zipfile.ZipFile(source.path) as archive, archive.open(_NAME) as stream:
            yield from _document(source, stream)
    else:
        with source.open() as stream:
            yield from _document(source, stream)
    yield Mark(0, 0)


def _document(source: Source, stream: IO[bytes]) -> Iterator[Item]:
    whole: dict[str, Any] = {}
    for member in members(stream):
        if member.broken:
            yield Skip(str(source.path), member.line, member.broken)
        elif member.key is None and _is_conversation(member.value):
            yield from guarded(_conversation(source, member.value, member.line), source, member.line)
        elif member.index is not None and member.key is not None:
            whole.setdefault(member.key, []).append(member.value)
        elif member.key is not None:
            whole[member.key] = member.value
    if _is_conversation(whole):
        yield from guarded(_conversation(source, whole, 1), source, 1)


def _conversation(source: Source, value: dict[str, Any], line: int) -> Iterator[Item]:
    session = chat.text(value["uuid"])
    yield SessionFacts(session, chat.text(value.get("name")), model=chat.text(value.get("model")))
    names: dict[str, str] = {}
    for found in value["chat_messages"]:
        if not isinstance(found, dict):
            continue
        source.records += 1
        key, created = chat.text(found.get("uuid")), chat.moment(found.get("created_at"))
        for number, (message, injected) in enumerate(_messages(found, names)):
            parts = len(chat.compact(message))
            keys = (f"m:{key}:{number}",)
            yield Turn(session, MAIN, keys, message, line, created, injected=injected, parts=parts)


def _messages(found: dict[str, Any], names: dict[str, str]) -> Iterator[tuple[dict[str, Any], bool]]:
    blocks = [block for block in found.get("content") or [] if isinstance(block, dict)]
    if not blocks:
        blocks = anthropic.blocks_of(found.get("text"))
    if found.get("sender") == "assistant":
        names.update(anthropic.call_names(blocks))
        said = [block for block in blocks if block.get("type") != "tool_result"]
        yield anthropic.assistant([_plain(block) for block in said]), False
        for block in blocks:
            if block.get("type") == "tool_result":
                yield anthropic.result(block, names), False
        return
    for attachment in found.get("attachments") or []:
        if isinstance(attachment, dict) and attachment.get("extracted_content"):
            name = chat.text(attachment.get("file_name"))
            yield chat.injected("attachment", f"{name}\n{chat.text(attachment['extracted_content'])}"), True
    yield {"role": "user", "content": chat.simplest([_plain(block) for block in blocks]) or ""}, False


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    """A text block without the times and empty citations that the export puts into each."""
    return {"type": "text", "text": block["text"]} if isinstance(block.get("text"), str) else block


FORMAT = Format(name="claude-ai-export", title="claude.ai export", sniff=sniff, read=read)

"""ChatGPT's account export: ``conversations.json``, a list of conversations, or one of them in a file; also inside the
zip.

A conversation is a tree. The path from ``current_node`` up to the root, reversed, is the main agent; answers that were
regenerated lie beside it, and each such branch becomes an agent of its own, with the nodes that the path has not.
"""

from __future__ import annotations

import zipfile
from typing import IO, TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.document import members
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.source import Head, Source


def sniff(head: Head) -> bool:
    """A conversation with a mapping, or a zip that has a list of such."""
    if head.raw.startswith(b"PK\x03\x04"):
        return bool(_zipped(head))
    return any(_is_conversation(found) for found in [head.object, *head.elements[:1]])


def _zipped(head: Head) -> list[str]:
    try:
        with zipfile.ZipFile(head.path) as archive:
            return [name for name in archive.namelist() if _is_export(name)] if b"chat_messages" not in head.raw else []
    except (zipfile.BadZipFile, OSError):
        return []


def _is_export(name: str) -> bool:
    last = name.rsplit("/", 1)[-1]
    return last.startswith("conversations") and last.endswith(".json")


def _is_conversation(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict) and "current_node" in value


def read(source: Source) -> Iterator[Item]:
    """The turns of all conversations of a file."""
    with source.open() as stream:
        zipped = stream.read(4) == b"PK\x03\x04"
    if not zipped:
        with source.open() as stream:
            yield from _document(source, stream)
    else:
        with zipfile.ZipFile(source.path) as archive:
            for name in sorted(filter(_is_export, archive.namelist())):
                with archive.open(name) as stream:
                    yield from _document(source, stream)
    yield Mark(0, 0)


def _document(source: Source, stream: IO[bytes]) -> Iterator[Item]:
    whole: dict[str, Any] = {}
    line = 1
    for member in members(stream):
        if member.broken:
            yield Skip(str(source.path), member.line, member.broken)
        elif member.key is not None and member.index is None:
            whole[member.key] = member.value
        elif member.key is None and _is_conversation(member.value):
            yield from guarded(_Conversation(source, member.value, member.line).items(), source, member.line)
        elif member.key is None:
            source.passed["an element that is no conversation"] += 1
    if _is_conversation(whole):
        yield from guarded(_Conversation(source, whole, line).items(), source, line)


class _Conversation:
    def __init__(self, source: Source, value: dict[str, Any], line: int) -> None:
        self._source = source
        self._value = value
        self._line = line
        self._nodes: dict[str, Any] = {key: node for key, node in value["mapping"].items() if isinstance(node, dict)}
        self._session = chat.text(value.get("conversation_id") or value.get("id")) or source.path.stem
        self._model = chat.text(value.get("default_model_slug"))

    def items(self) -> Iterator[Item]:
        """The shown path first, then the branches, each from where it leaves what has been yielded."""
        yield SessionFacts(self._session, chat.text(self._value.get("title")), model=self._model)
        seen: set[str] = set()
        shown = self._path(chat.text(self._value.get("current_node")))
        yield from self._turns(shown, MAIN, seen)
        for leaf in [key for key, node in self._nodes.items() if not node.get("children")]:
            branch = [key for key in self._path(leaf) if key not in seen]
            if branch:
                yield from self._turns(branch, f"branch-{branch[0]}", seen)

    def _path(self, leaf: str) -> list[str]:
        path: list[str] = []
        passed: set[str] = set()
        while leaf in self._nodes and leaf not in passed:
            path.append(leaf)
            passed.add(leaf)
            leaf = chat.text(self._nodes[leaf].get("parent"))
        return path[::-1]

    def _turns(self, path: list[str], agent: str, seen: set[str]) -> Iterator[Item]:
        thoughts: list[str] = []
        for key in path:
            seen.add(key)
            found = self._nodes[key].get("message")
            if not isinstance(found, dict):
                continue
            self._source.records += 1
            content = found.get("content")
            content = content if isinstance(content, dict) else {}
            if content.get("content_type") == "thoughts":
                thoughts += [
                    chat.text(one.get("content")) for one in content.get("thoughts") or [] if isinstance(one, dict)
                ]
                continue
            message = self._message(key, found, content, thoughts)
            if message is None:
                self._source.passed[f"{content.get('content_type')} without text"] += 1
                continue
            thoughts = []
            metadata = found.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            hidden = found.get("weight") == 0 or metadata.get("is_visually_hidden_from_conversation") is True
            if message["role"] == "user" and hidden:
                message = chat.injected("hidden", message["content"])
            created = chat.moment(found.get("create_time"))
            model = chat.text(metadata.get("model_slug")) or self._model
            injected = hidden or message["role"] in ("system", "developer")
            keys = (f"n:{chat.text(found.get('id')) or key}",)
            parts = len(chat.compact(message))
            yield Turn(
                self._session, agent, keys, message, self._line, created, model=model, injected=injected, parts=parts
            )

    def _message(
        self, key: str, found: dict[str, Any], content: dict[str, Any], thoughts: list[str]
    ) -> dict[str, Any] | None:
        author = found.get("author")
        author = author if isinstance(author, dict) else {}
        role, recipient = chat.text(author.get("role")), chat.text(found.get("recipient"))
        text = _content(content)
        if role == "tool":
            asked = chat.text(self._nodes[key].get("parent"))
            return chat.tool(asked, text, name=chat.text(author.get("name"))) if text else None
        if role == "assistant" and recipient not in ("", "all"):
            return chat.assistant(None, thoughts, [chat.tool_call(key, recipient, text)])
        if role == "assistant":
            message = chat.assistant(text, thoughts)
            return None if chat.is_empty(message) else message
        if content.get("content_type") in ("user_editable_context", "model_editable_context") and text:
            return chat.injected("instructions", text)
        return {"role": role, "content": text} if text else None


def _content(content: dict[str, Any]) -> Any:
    """The text of a message, or its blocks when it has more than text; None when there is none."""
    kind = content.get("content_type")
    parts = content.get("parts")
    if kind == "reasoning_recap":
        return None
    if isinstance(parts, list):
        blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts if part]
        if all(block.get("type") == "text" for block in blocks if isinstance(block, dict)):
            return "\n".join(block["text"] for block in blocks) or None
        return [
            {"type": chat.text(block.get("content_type")) or "part", **block}
            for block in blocks
            if isinstance(block, dict)
        ]
    for name in ("text", "result", "user_profile", "user_instructions", "content"):
        if isinstance(content.get(name), str) and content[name]:
            return content[name]
    return None


FORMAT = Format(name="chatgpt-export", title="ChatGPT export", sniff=sniff, read=read)

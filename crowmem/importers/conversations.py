"""Files of whole conversations without ids, times or sessions: one JSON document, or a conversation or a message a
line.

A conversation goes by the file's name, a fingerprint of its beginning up to the model's first answer, and its position;
so the same file elsewhere is the same conversation, and two runs of one prompt are two. A message goes by its position
and its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from crowmem.importers import chat
from crowmem.importers.document import members
from crowmem.importers.guard import ODD, guarded
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.lines import read_lines
from crowmem.importers.source import HEAD_BUDGET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from crowmem.importers.source import Source

_ANSWERED = 40  # messages looked at for the model's first answer


@dataclass(slots=True)
class Said:
    """One message of a conversation, and what is known beside it."""

    message: dict[str, Any]
    created_at: datetime | None = None
    usage: dict[str, int] | None = None
    injected: bool = False


@dataclass(slots=True)
class Conversation:
    """A conversation as a format's converter finds it."""

    said: list[Said]
    records: int = 0  # messages as the source counts them; 0 for as many as were said
    model: str = ""
    title: str = ""
    cwd: str = ""
    passed: dict[str, int] = field(default_factory=dict)


Convert: TypeAlias = Callable[[Any], Conversation | None]


def read_conversations(source: Source, convert: Convert, *, message_lines: bool = False) -> Iterator[Item]:
    """The turns of a file of conversations.

    Args:
        source: the file.
        convert: a JSON value → the conversation it is, or None when it is none.
        message_lines: whether all values of the file together are one conversation, a message each.
    """
    reader = _Reader(source, convert, message_lines)
    if is_lines(source):
        for line in read_lines(source, lambda value: _is_one(convert, value), arrays=True):
            if isinstance(line, Skip):
                yield line
            else:
                yield from guarded(reader.value(line.value, line.number), source, line.number)
        yield from reader.end()
        source.state = reader.state()
        yield Mark(source.offset, source.line)
        return
    whole: dict[str, Any] = {}
    with source.open() as stream:
        for member in members(stream):
            if member.broken:
                yield Skip(str(source.path), member.line, member.broken)
                whole.clear()  # half a conversation; it is read when it is whole
            elif member.key is None:
                yield from guarded(reader.value(member.value, member.line), source, member.line)
            elif member.index is None:
                whole[member.key] = member.value
            else:
                whole.setdefault(member.key, []).append(member.value)
    if whole:
        yield from guarded(reader.value(whole, 1), source, 1)
    yield from reader.end()
    source.state = reader.state()
    yield Mark(0, 0)  # a document that grows is written anew


def _is_one(convert: Convert, value: Any) -> bool:
    try:
        return convert(value) is not None
    except ODD:
        return False


def is_lines(source: Source) -> bool:
    """Whether a file holds JSON values line by line, and not one document.

    A single line is taken as a document, unless reading goes on from a line.
    """
    if source.offset:
        return True
    with source.open() as stream:
        whole = 0
        budget = HEAD_BUDGET
        while budget > 0 and (line := stream.readline(budget)):
            budget -= len(line)
            bare = line.removeprefix(b"\xef\xbb\xbf").strip(b"\0 \t\r\n")
            if not bare or bare.startswith(b"//"):
                continue
            if whole:
                return True
            try:
                value = json.loads(bare)
            except (ValueError, RecursionError):
                return False
            whole += isinstance(value, (dict, list))
    return False


class _Reader:
    def __init__(self, source: Source, convert: Convert, message_lines: bool) -> None:
        self._source = source
        self._convert = convert
        self._message_lines = message_lines
        kept = source.state if source.offset else {}
        self._base: str = kept.get("base", "")
        self._asked: list[Any] = kept.get("asked", [])  # of a first conversation without an answer: length, fingerprint
        self._index: int = kept.get("index", 0)  # of the next conversation, or the next message
        self._waiting: list[tuple[Said, int]] = []

    def state(self) -> dict[str, Any]:
        """What a later run needs to go on with the same names."""
        return {"base": self._base, "index": self._index, "asked": self._asked}

    def value(self, value: Any, line: int) -> Iterator[Item]:
        """One value of the file: a conversation, or a message of the only one."""
        found = self._convert(value)
        if found is None:
            self._source.passed["a value that is no conversation"] += 1
            return
        self._source.records += found.records or len(found.said)
        self._source.passed.update(found.passed)
        if self._message_lines:
            self._waiting += [(said, line) for said in found.said]
            if self._base or _is_answered([said for said, _line in self._waiting]) or len(self._waiting) > _ANSWERED:
                yield from self._messages()
            return
        self._name(found.said)
        session = f"{self._base}.{self._index}"
        self._index += 1
        yield SessionFacts(session, title=found.title, cwd=found.cwd, model=found.model)
        for position, said in enumerate(found.said):
            yield _turn(session, position, said, line, found)

    def end(self) -> Iterator[Item]:
        """What waited for the beginning to be known."""
        yield from self._messages()

    def _messages(self) -> Iterator[Item]:
        if not self._waiting:
            return
        self._name([said for said, _line in self._waiting])
        for said, line in self._waiting:
            yield _turn(f"{self._base}.0", self._index, said, line, None)
            self._index += 1
        self._waiting.clear()

    def _name(self, said: list[Said]) -> None:
        """Name the file's conversations after its first one; one that has been answered since keeps its name."""
        if self._base:
            return
        former = self._source.former
        count, asked = former.get("asked") or (0, "")
        if count and _print(said[:count]) == asked:
            self._base = former["base"]
        else:
            self._base = f"{self._source.path.stem}.{_print(_beginning(said))}"
        if not _is_answered(said):
            self._asked = [len(said), _print(said)]


def _beginning(said: list[Said]) -> list[Said]:
    """The messages up to the first answer."""
    answers = (number for number, one in enumerate(said[:_ANSWERED], 1) if one.message.get("role") == "assistant")
    return said[: next(answers, _ANSWERED)]


def _print(said: list[Said]) -> str:
    return chat.digest(*(chat.compact(one.message) for one in said))


def _is_answered(said: list[Said]) -> bool:
    return any(one.message.get("role") == "assistant" for one in said)


def _turn(session: str, position: int, said: Said, line: int, of: Conversation | None) -> Turn:
    return Turn(
        session,
        MAIN,
        (f"{position}:{chat.digest(chat.compact(said.message))}",),
        said.message,
        line,
        said.created_at,
        said.usage,
        model=of.model if of else "",
        cwd=of.cwd if of else "",
        injected=said.injected,
    )

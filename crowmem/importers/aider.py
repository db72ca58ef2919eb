"""aider: ``.aider.chat.history.md`` in a project, all its sessions in one markdown file.

``# aider chat started at <time>`` begins a session, ``#### `` lines are the user's, ``> `` lines the tool's, the rest
is the model's. There are no ids: a message goes by its session's time and its position, and replaces itself when it has
grown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.items import MAIN, Item, Mark, Turn
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.source import Head, Source

_STARTED = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*$")
_USER = "#### "


def sniff(head: Head) -> bool:
    """A session's headline, or the tool's and the user's lines."""
    lines = head.text.splitlines()
    started = any(_STARTED.match(line) for line in lines)
    user = any(line.startswith(_USER) for line in lines)
    return started or (user and sum(line.startswith("> ") for line in lines) > 1)


def read(source: Source) -> Iterator[Item]:
    """The turns of one file; reading goes on at the last session's headline."""
    reader = _Reader(source)
    begin = (source.offset, source.line)
    with source.open() as stream:
        stream.seek(source.offset)
        for data in stream:
            text = data.decode(errors="replace").rstrip("\r\n")
            if not data.endswith(b"\n") and _may_become(text):
                break
            found = _STARTED.match(text)
            if found:
                yield from reader.close()
                begin = (source.offset, source.line)
                reader.start(found[1])
            source.offset += len(data)
            source.line += 1
            if not found:
                yield from reader.line(text)
    yield from reader.close()
    yield Mark(*begin)


def _may_become(text: str) -> bool:
    """Whether a last line that is being written may still become a headline or the user's."""
    return _USER.startswith(text) or text.startswith("# aider chat started") or "# aider chat started".startswith(text)


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._session = ""
        self._time: Any = None
        self._position = 0
        self._role = ""
        self._lines: list[str] = []
        self._first = 1

    def start(self, time: str) -> None:
        """A new session."""
        self._session = f"aider.{time.replace(' ', 'T').replace(':', '-')}"
        self._time, self._position, self._role = time, 0, ""

    def line(self, text: str) -> Iterator[Turn]:
        """One line, which goes on with the message or begins another."""
        if text.startswith(_USER) or text == _USER.rstrip():
            role, text = "user", text[len(_USER) :]
            self._source.records += 1
        elif text.startswith(">"):
            role, text = "tool", text[1:].removeprefix(" ")
        elif not text.strip():
            role = self._role  # a blank line belongs to what is around it
        else:
            role = "assistant"
        if role != self._role:
            yield from self.close()
            self._role, self._first = role, self._source.line
        if role:
            self._lines.append(text)

    def close(self) -> Iterator[Turn]:
        """Yield the message that the lines so far make."""
        role, text = self._role, "\n".join(line.removesuffix("  ") for line in self._lines).strip()
        self._role, self._lines = "", []
        if not role or not text:
            return
        if not self._session:  # the file begins in the middle of a session
            self._session = f"aider.{chat.digest(text)}"
        message: dict[str, Any] = {"role": role, "content": text}
        if role == "tool":
            message = {"role": "tool", "tool_call_id": "", "name": "aider", "content": text}
        keys = (f"{self._position}:{role}",)
        self._position += 1
        yield Turn(self._session, MAIN, keys, message, self._first, chat.moment(self._time), parts=len(text))


FORMAT = Format(name="aider", title="aider", sniff=sniff, read=read)

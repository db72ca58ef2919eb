"""Logs of one session, an event a line: what their parsers share.

A parser derives from `EventReader`, says in ``event`` what a record means, and keeps what later lines need in the
fields below; they are saved with each mark, so that reading may go on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from crowmem.importers import chat
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.lines import IsRecord, Line, read_lines
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from crowmem.importers.source import Source

_MARK_BYTES = 8 * 1024 * 1024
_NAMES = 256  # calls whose tool name is remembered for their results
_SAVED = 64  # of these, the ones that are saved
_KEPT = ("session", "agent", "model", "cwd", "git_branch", "position")


class Place(NamedTuple):
    """Where reading may go on, and with which state."""

    offset: int
    line: int  # whole lines before it
    state: dict[str, Any]


class EventReader:
    """The state of one log being read."""

    def __init__(self, source: Source) -> None:
        """Start where the source's state says, or with the file's name as the session."""
        self.source = source
        self.session: str = source.path.stem
        self.agent = MAIN
        self.model = ""
        self.cwd = ""
        self.git_branch = ""
        self.position = 0  # of the next message, for logs whose lines have neither ids nor times
        self.names: dict[str, str] = dict(source.state.get("names", {}))
        self.held: Place | None = None  # of the first line of what is not complete yet
        for name in _KEPT:
            if name in source.state:
                setattr(self, name, source.state[name])

    def event(self, record: dict[str, Any], line: Line) -> Iterator[Item]:
        """Turn one record into items."""
        raise NotImplementedError

    def close(self) -> Iterator[Item]:
        """Yield what is still held; the file has ended."""
        yield from ()

    def turn(
        self,
        key: str,
        message: dict[str, Any],
        line: Line,
        time: Any = None,
        *,
        usage: dict[str, int] | None = None,
        injected: bool = False,
        agent: str = "",
        parts: int = 1,
    ) -> Turn:
        """A turn with what is known now."""
        created: datetime | None = chat.moment(time)
        return Turn(
            self.session,
            agent or self.agent,
            (key,),
            message,
            line.number,
            created,
            usage,
            self.model,
            self.cwd,
            self.git_branch,
            injected,
            parts,
        )

    def numbered(self, message: dict[str, Any], line: Line, time: Any = None, *, injected: bool = False) -> Turn:
        """A turn that goes by its position in the log and its text."""
        key = f"{self.position}:{chat.digest(chat.compact(message))}"
        self.position += 1
        return self.turn(key, message, line, time, injected=injected)

    def prompt(self, content: Any, line: Line, time: Any = None, *, inserted: str = "") -> Turn:
        """A numbered turn of what the user said, or of what a tool put in."""
        inserted = inserted or (wrapper(content) if isinstance(content, str) else "")
        message = chat.injected(inserted, content) if inserted else {"role": "user", "content": content}
        return self.numbered(message, line, time, injected=bool(inserted))

    def facts(self, *, title: str = "", parent: str = "") -> SessionFacts:
        """What is known of the session now."""
        return SessionFacts(self.session, title, self.cwd, self.git_branch, self.model, parent)

    def hold(self, line: Line) -> None:
        """Keep a line from being passed: what begins in it may go on in the next one."""
        self.held = Place(line.offset, line.number - 1, self.state())

    def called(self, calls: list[dict[str, Any]]) -> None:
        """Remember the tools of some calls."""
        for call in calls:
            self.names[call["id"]] = call["function"]["name"]
        while len(self.names) > _NAMES:
            del self.names[next(iter(self.names))]

    def passed(self, kind: Any) -> None:
        """Count a record that is known and left out."""
        self.source.passed[chat.text(kind) or "record without a type"] += 1

    def state(self) -> dict[str, Any]:
        """The fields to be saved."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return {**kept, "names": dict(list(self.names.items())[-_SAVED:])}


def read_events(source: Source, reader: EventReader, is_record: IsRecord) -> Iterator[Item]:
    """The items of one log, with a mark every few megabytes and at the end."""
    marked = source.offset
    for line in read_lines(source, is_record):
        if isinstance(line, Skip):
            yield line
            continue
        yield from guarded(reader.event(line.value, line), source, line.number)
        if source.offset - marked > _MARK_BYTES:
            marked = source.offset
            yield _mark(source, reader)
    place = reader.held
    yield from reader.close()
    reader.held = place
    yield _mark(source, reader)


def _mark(source: Source, reader: EventReader) -> Mark:
    place = reader.held or Place(source.offset, source.line, reader.state())
    source.state = place.state
    return Mark(place.offset, place.line)

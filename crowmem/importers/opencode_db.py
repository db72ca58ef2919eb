"""opencode from 1.2 on: ``opencode.db``, a SQLite file whose tables hold the same JSON as the storage folder did.

The move from the folder lost sessions for some; both are read, and messages that both have come in once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.guard import guarded
from crowmem.importers.items import Item, Mark, Skip
from crowmem.importers.opencode import Session
from crowmem.importers.places import Format
from crowmem.importers.sqlite_files import companions, has_tables, opened, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from crowmem.importers.source import Head, Source

_SESSIONS = "select * from session"
# a message counts as changed when a part of it did; ids grow with time
_MESSAGES = """
    select id, session_id, time_updated, data from message
    where id > ? and (time_updated >= ? or id in (select message_id from part where time_updated >= ?))
    order by id limit ?
"""
_PARTS = "select id, time_updated, data from part where message_id = ? order by id"
_PAGE = 200


def sniff(head: Head) -> bool:
    """A SQLite file with opencode's tables."""
    return has_tables(head, {"session", "message", "part"}, set())


def read(source: Source) -> Iterator[Item]:
    """The turns of all sessions that changed since the last run."""
    with opened(source.path) as file:
        if file is None:
            yield Skip(str(source.path), 0, "not a SQLite file that can be read")
            return
        reader = _Reader(source, file)
        yield from reader.messages()
        source.state = {"updated": reader.newest}
    yield Mark(0, 0)


class _Reader:
    def __init__(self, source: Source, file: apsw.Connection) -> None:
        self._source = source
        self._file = file
        self._since: int = source.former.get("updated", 0)
        self.newest = self._since  # milliseconds since 1970

    def messages(self) -> Iterator[Item]:
        """Changed messages of all sessions, in the order they were made."""
        about = {row["id"]: row for row in rows(self._file, _SESSIONS, ())}
        sessions: dict[str, Session] = {}
        after = ""
        while page := rows(self._file, _MESSAGES, (after, self._since, self._since, _PAGE)):
            for message in page:
                after, session_id = message["id"], message["session_id"]
                if session_id not in sessions:
                    sessions[session_id] = Session(self._source, _info(session_id, about.get(session_id, {})))
                    yield sessions[session_id].facts()
                yield from self._message(sessions[session_id], message)

    def _message(self, session: Session, message: dict[str, Any]) -> Iterator[Item]:
        info = self._json(message["data"])
        parts = []
        for part in rows(self._file, _PARTS, (message["id"],)):
            self.newest = max(self.newest, int(part["time_updated"] or 0))
            parts.append({**self._json(part["data"]), "id": part["id"]})
        self.newest = max(self.newest, int(message["time_updated"] or 0))
        if info:
            yield from guarded(session.message({**info, "id": message["id"]}, parts, 1), self._source, 0)
        else:
            yield Skip(str(self._source.path), 0, f"message {chat.text(message['id'])} is no JSON object")

    def _json(self, text: Any) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _info(session_id: str, row: dict[str, Any]) -> dict[str, Any]:
    """A session's row under the names that its JSON has."""
    names = {"parentID": "parent_id", "directory": "directory", "title": "title"}
    return {"id": session_id, **{name: row.get(column) for name, column in names.items()}}


FORMAT = Format(
    name="opencode-db",
    title="opencode's database",
    sniff=sniff,
    read=read,
    companions=companions,
    resume=("opencode", "--session", "{session}"),
)

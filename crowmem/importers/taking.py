"""A crow.db on its way into a memory: its rows, table after table, as the store takes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.content import title
from crowmem.errors import InvalidValue
from crowmem.importers.crow_db import FORMAT
from crowmem.importers.crow_rows import Anchors, agent_columns, delivery_columns, message_row, task_columns
from crowmem.importers.guard import ODD
from crowmem.importers.items import Skip
from crowmem.importers.rows import plain
from crowmem.repositories.imports import ImportFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from crowmem.importers.items import StoreRow
    from crowmem.operation import Sync
    from crowmem.repositories.imports import ImportRow, Imports

_CONVERTED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "agents": agent_columns,
    "tasks": task_columns,
    "task_deliveries": delivery_columns,
}


class Taking:
    """One file: prompts and agents are added before its first message, the rest by `end`."""

    def __init__(self, imports: Imports[Sync], path: Path, *, images: bool) -> None:
        self._imports = imports
        self._path = path
        self._images = images
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self._anchors: Anchors | None = None
        self._numbered = False
        self._titled: set[str] = set()

    def row(self, row: StoreRow) -> Iterator[ImportRow | ImportFacts | Skip]:
        """Take one row; a message is given back as a row to be added, one that cannot be taken as a skip."""
        try:
            if row.table != "messages":
                convert = _CONVERTED.get(row.table, dict)
                self._tables.setdefault(row.table, []).append(convert(row.columns))
                return
            self._begin()
            found = message_row(row.columns, self._path, keep_id=self._numbered, images=self._images)
        except (InvalidValue, *ODD) as error:
            what = f"{row.table} row {row.columns.get('id') or row.columns.get('agent_id')}"
            yield Skip(str(self._path), 0, f"{what}: {error}")
            return
        if self._anchors is not None:
            self._anchors.saw(found.agent, row.columns["id"])
        yield found
        yield ImportFacts(found.session_id, FORMAT.name, plain(str(self._path)), opening=self._opening(found))

    def _opening(self, row: ImportRow) -> str:
        """What a message adds to its session's title: the user's first words do."""
        if row.columns["role"] != "user" or row.session_id in self._titled or row.columns["fork_idx"] != 1:
            return ""
        self._titled.add(row.session_id)
        return title(json.loads(row.columns["data"])) or ""

    def end(self) -> None:
        """Add what waited for the messages."""
        self._begin()
        forks = self._anchors.found() if self._anchors is not None else []
        tasks, mail = self._tables.get("tasks", []), self._tables.get("task_deliveries", [])
        self._imports.take_over_rest(forks, tasks, mail, numbered=self._numbered)

    def _begin(self) -> None:
        if self._anchors is None:
            agents = self._tables.get("agents", [])
            self._anchors = Anchors(agents)
            self._numbered = self._imports.take_over(self._tables.get("prompts", []), agents)

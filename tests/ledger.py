"""Which statements the suite ran on which database; the whole suite must have run every one on each that has it.

Loaded by conftest. Each process notes what it ran; when a whole run ends (`make test` sets CROWMEM_TEST_LEDGER to a folder),
the notes are put together, and a statement that never ran fails the run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from catalogue import bound_statements

from crowmem.drivers import sqlite, sqlite_async, sqlite_file
from crowmem.drivers.postgres_settings import Settings

ran: set[tuple[str, str]] = set()


def watch() -> None:
    """Note every statement from here on."""
    for module in (sqlite_file, sqlite, sqlite_async):
        for name in ("execute", "execute_batch"):
            setattr(module, name, _noting(getattr(module, name)))
    plain = Settings.sql

    def sql(self: Settings, statement: Any) -> str:
        ran.add(("postgres", statement.name))
        return plain(self, statement)

    Settings.sql = sql  # type: ignore[method-assign]


def _noting(function: Any) -> Any:
    def noted(connection: Any, statement: Any, *rest: Any) -> Any:
        ran.add(("sqlite", statement.name))
        return function(connection, statement, *rest)

    return noted


def never_run(notes: set[tuple[str, str]]) -> list[str]:
    """What is bound and was never run, as ``dialect: name``."""
    return sorted(
        f"{dialect}: {name}"
        for name, statement in bound_statements().items()
        for dialect in statement.texts
        if (dialect, name) not in notes
    )


def finish(session: pytest.Session) -> None:
    """Keep this process's notes; the one that ends last judges them."""
    folder = os.environ.get("CROWMEM_TEST_LEDGER")
    if not folder:
        return
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    (place / str(os.getpid())).write_text("\n".join(" ".join(one) for one in ran), encoding="utf-8")
    if hasattr(session.config, "workerinput"):
        return
    notes = {tuple(line.split()) for file in place.iterdir() for line in file.read_text("utf-8").splitlines() if line}
    missing = never_run(notes)  # type: ignore[arg-type]
    if missing and session.exitstatus == pytest.ExitCode.OK:
        print("\nstatements that no test ran:\n  " + "\n  ".join(missing))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

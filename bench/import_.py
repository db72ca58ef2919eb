"""Bulk: thousands of messages in one call beside the floor, and the import of other programs' histories.

The floor keeps the same messages in one transaction. The import has no floor: its row says how many messages and bytes
of the shared transcripts go in a second, recognised, parsed, keyed and stored, and how many when there is nothing new.

Run: python bench/import_.py [--dialect sqlite] [--full]
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from corpus import SHARED
from floors import AGENT, SESSION, PostgresFloor, SqliteFloor, messages
from harness import FLOOR, OURS, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory
from crowmem.ingest import import_paths

if TYPE_CHECKING:
    from pathlib import Path

    import pg_server

SIZE = 2000
BAR = 1 / 0.9  # at least 0.9 of the floor's rate


def compare(
    report: Report,
    dialect: str,
    floor: SqliteFloor | PostgresFloor,
    memory: Memory,
    count: int,
    server: pg_server.Server | None = None,
) -> None:
    """Bulk of so many messages."""
    case = f"{dialect} {count:,} in one call"
    if not report.wants(case):
        return
    memory.agents.create(AGENT, SESSION)
    given = messages(count, SIZE)
    taken = report.compare(
        case,
        {FLOOR: lambda _: floor.add_many(given), OURS: lambda _: memory.messages.add_many(AGENT, given)},
        calls=1,
        bar=BAR,
        server=server,
        durability="full",
    )
    for side, rounds in taken.items():
        report.row(f"{case}, rate", side, messages_s=round(count / rounds.figures()["p50_us"] * 1e6))


def import_transcripts(report: Report, dialect: str, memory: Memory, transcripts: Path) -> None:
    """Import the shared histories, then again."""
    for again in (False, True):
        case = f"{dialect} import{' again' if again else ''}"
        if not report.wants(case):
            continue
        started, cpu = time.perf_counter(), time.process_time()
        found = import_paths(memory, [transcripts])
        took = time.perf_counter() - started
        report.row(
            case,
            OURS,
            took_s=round(took, 2),
            cpu_s=round(time.process_time() - cpu, 2),
            messages=found.messages_added,
            messages_s=round(found.messages_added / took),
        )


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "", rounds=3).parse_args()
    count = 10_000 if options.full else 2000
    report = Report("import", options, message_bytes=SIZE)
    transcripts = SHARED / "transcripts"
    with folder_on_disk() as folder:
        if report.wants_dialect("sqlite"):
            floor = SqliteFloor(folder / "floor.db", "full")
            with Memory.open(folder / "crow.db") as memory:
                compare(report, "sqlite", floor, memory, count)
            floor.close()
            if transcripts.is_dir():
                with Memory.open(folder / "import.db") as memory:
                    import_transcripts(report, "sqlite", memory, transcripts)
    if report.wants_dialect("postgres"):
        with postgres() as server:
            bare = PostgresFloor(loopback(server, "floor"))
            with Memory.open(loopback(server, "crow")) as memory:
                compare(report, "postgres", bare, memory, count, server)
            bare.close()
            if transcripts.is_dir():
                with Memory.open(loopback(server, "import")) as memory:
                    import_transcripts(report, "postgres", memory, transcripts)
    report.table()


if __name__ == "__main__":
    main()

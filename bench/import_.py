"""Bulk: thousands of messages in one call beside the floor, and the import of other programs' histories.

The floor of bulk keeps the same messages in one transaction. That of an import only parses the lines of the same files
and inserts them in batches, without a word index: Claude Code's shared histories, repeated under new ids to 20 MB
(``--full``: 100 MB); its memory is that of both its processes together. The whole of the shared transcripts has no
floor: its row says how many messages go in a second, and when there is nothing new.

Run: python bench/import_.py [--dialect sqlite] [--full]
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

from corpus import SHARED
from floors import AGENT, SESSION, PostgresFloor, SqliteFloor, messages
from harness import FLOOR, OURS, ROOT, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory
from crowmem.ingest import import_paths

if TYPE_CHECKING:
    from pathlib import Path

    import pg_server

SIZE = 2000
BAR = 1 / 0.9  # at least 0.9 of the floor's rate
IMPORT_BAR = 0.6  # of the speed of a loop that only parses and inserts
MOST_MB = 200  # of memory
BATCH = 1000
_IDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?:msg|req|toolu)_\w+")

# what the process itself had at most, and the one that read ahead for it
PROBE = """
import resource, sys
from crowmem import Memory
from crowmem.ingest import import_paths
with Memory.open(sys.argv[1]) as memory:
    import_paths(memory, [sys.argv[2]])
own_kb = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print((own_kb + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024)
"""


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
        if not report.wants(f"{dialect} import again"):  # the first is what makes the second one such
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


def claude_history(place: Path, megabytes: int) -> int:
    """Write the shared histories of Claude Code again and again, each time under new ids; how many bytes."""
    source = SHARED / "transcripts" / "claude-code"
    texts = {path.relative_to(source): path.read_bytes() for path in sorted(source.rglob("*.jsonl"))}
    usable = {path: data.decode() for path, data in texts.items() if not data.startswith((b"\xff\xfe", b"\xfe\xff"))}
    written = number = 0
    while written < megabytes * 1_000_000:
        number += 1

        def renamed(found: re.Match[str], number: int = number) -> str:
            text = found[0]
            return f"{text}x{number}" if "_" in text else str(uuid.uuid5(uuid.NAMESPACE_OID, f"{text} {number}"))

        for path, text in usable.items():
            target = place / f"copy-{number}" / _IDS.sub(renamed, str(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            written += target.write_bytes(_IDS.sub(renamed, text).encode())
    return written


def parse_and_insert(place: Path, database: Path) -> None:
    """The floor of an import."""
    import apsw

    connection = apsw.Connection(str(database))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("create table lines (id integer primary key, file text, kind text, data text)")
    rows: list[tuple[str, object, str]] = []

    def keep() -> None:
        with connection:
            connection.executemany("insert into lines (file, kind, data) values (?, ?, ?)", rows).fetchall()
        rows.clear()

    for path in sorted(place.rglob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # one of them is broken
                    rows.append((path.name, json.loads(line).get("type"), line))
                if len(rows) == BATCH:
                    keep()
    keep()
    connection.close()


def import_claude(report: Report, folder: Path, megabytes: int) -> None:
    """The import of one format beside its floor, each into a new file, in turns."""
    case = f"sqlite import {megabytes} MB of claude-code"
    if not report.wants(case):
        return
    place = folder / "projects"
    written = claude_history(place, megabytes)
    speeds: dict[str, list[float]] = {FLOOR: [], OURS: []}
    for turn in range(report.options.rounds):
        for side in (FLOOR, OURS) if turn % 2 else (OURS, FLOOR):
            database = folder / f"{side}-{turn}.db"
            started = time.perf_counter()
            if side == FLOOR:
                parse_and_insert(place, database)
            else:
                with Memory.open(database) as memory:
                    added = import_paths(memory, [place]).messages_added
            speeds[side].append(written / (time.perf_counter() - started) / 1e6)
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, str(folder / "memory.db"), str(place)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    memory_mb = float(probe.stdout)
    report.row(f"{case}, memory", OURS, memory_mb=round(memory_mb, 1), bar=MOST_MB, holds=memory_mb < MOST_MB)
    share = statistics.median(ours / floor for ours, floor in zip(speeds[OURS], speeds[FLOOR], strict=True))
    report.row(case, FLOOR, mb_s=round(statistics.median(speeds[FLOOR]), 1))
    report.row(
        case,
        OURS,
        mb_s=round(statistics.median(speeds[OURS]), 1),
        messages=added,
        of_floor=round(share, 3),
        bar=IMPORT_BAR,
        holds=share >= IMPORT_BAR,
    )


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "", rounds=3).parse_args()
    count = 10_000 if options.full else 2000
    report = Report("import", options, message_bytes=SIZE)
    transcripts = SHARED / "transcripts"
    if not transcripts.is_dir():
        print(f"import: no transcripts at {transcripts}: the imports are left out", file=sys.stderr)
    with folder_on_disk() as folder:
        if report.wants_dialect("sqlite"):
            floor = SqliteFloor(folder / "floor.db", "full")
            with Memory.open(folder / "crow.db") as memory:
                compare(report, "sqlite", floor, memory, count)
            floor.close()
            if transcripts.is_dir():
                with Memory.open(folder / "import.db") as memory:
                    import_transcripts(report, "sqlite", memory, transcripts)
                import_claude(report, folder, 100 if options.full else 20)
    if report.wants_dialect("postgres"):
        with postgres(report) as server:
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

"""An agent's whole history, decoded and as text: crowmem beside the bare driver reading the same rows.

Run: python bench/load.py [--dialect sqlite] [--only "1,000"]
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from floors import SESSION, PostgresFloor, SqliteFloor, blocks, messages
from harness import FLOOR, OURS, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory

if TYPE_CHECKING:
    import pg_server

SIZE = 2000
COUNTS = (100, 1000, 10_000)
BARS = {"decoded": 1.1, "as text": 1.3}


def compare(
    report: Report,
    dialect: str,
    floor: SqliteFloor | PostgresFloor,
    memory: Memory,
    server: pg_server.Server | None = None,
) -> None:
    """Histories of each length."""
    for place, count in enumerate(COUNTS, 1):
        agent = f"{SESSION}-{place}-1"
        for some in blocks(messages(count, SIZE), 1000):
            floor.add_many(some, agent)
            memory.messages.add_many(agent, some)
        calls = max(1, 5000 // count)
        cases = {
            "decoded": (
                lambda _, agent=agent: [json.loads(text) for text in floor.texts(agent)],
                lambda _, agent=agent: memory.messages.load(agent),
            ),
            "as text": (
                lambda _, agent=agent: floor.texts(agent),
                lambda _, agent=agent: memory.messages.load_json(agent),
            ),
        }
        for what, (bare, ours) in cases.items():
            case = f"{dialect} {count:,} {what}"
            if report.wants(case):
                report.compare(case, {FLOOR: bare, OURS: ours}, calls=calls, bar=BARS[what], server=server)


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "").parse_args()
    report = Report("load", options, message_bytes=SIZE)
    with folder_on_disk() as folder:
        if report.wants_dialect("sqlite"):
            floor = SqliteFloor(folder / "floor.db", "normal")
            with Memory.open(folder / "crow.db", durability="normal") as memory:
                compare(report, "sqlite", floor, memory)
            floor.close()
    if report.wants_dialect("postgres"):
        with postgres(report) as server:
            bare = PostgresFloor(loopback(server, "floor"))
            with Memory.open(loopback(server, "crow")) as memory:
                compare(report, "postgres", bare, memory, server)
            bare.close()
    report.table()


if __name__ == "__main__":
    main()

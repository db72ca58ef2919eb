"""One message added, and a turn of two in one call: crowmem beside the floor, on both databases.

Run: python bench/append.py [--dialect sqlite] [--only "2 KB"] [--full] [--out results.jsonl]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floors import AGENT, SESSION, PostgresFloor, SqliteFloor, messages
from harness import FLOOR, OURS, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory

if TYPE_CHECKING:
    import pg_server

SIZES = {"200 B": 200, "2 KB": 2000}
BARS = {"sqlite 200 B": 1.25, "sqlite 2 KB": 1.15, "postgres 200 B": 1.15, "postgres 2 KB": 1.15}
TURN_BAR = 1.3


def compare(
    report: Report,
    case: str,
    floor: SqliteFloor | PostgresFloor,
    memory: Memory,
    calls: int,
    server: pg_server.Server | None = None,
    **facts: Any,
) -> None:
    """One message of each size, then a turn of two of 500 B."""
    memory.agents.create(AGENT, SESSION)
    for name, size in SIZES.items():
        if not report.wants(f"{case} {name}"):
            continue
        given = messages(calls, size)
        report.compare(
            f"{case} {name}",
            {
                FLOOR: lambda n, given=given: floor.add(given[n % calls]),
                OURS: lambda n, given=given: memory.messages.add(AGENT, given[n % calls]),
            },
            calls=calls,
            bar=BARS[f"{case.split(',')[0]} {name}"],
            server=server,
            **facts,
        )
    if report.wants(f"{case} turn of two"):
        turn = messages(2, 500)
        report.compare(
            f"{case} turn of two",
            {
                FLOOR: lambda _: floor.add_many(turn),
                OURS: lambda _: memory.messages.add_many(AGENT, turn),
            },
            calls=calls,
            bar=TURN_BAR,
            server=server,
            **facts,
        )


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "").parse_args()
    report = Report("append", options)
    calls = 400 if options.full else 100
    with folder_on_disk() as folder:
        for durability in ("full", "normal") if report.wants_dialect("sqlite") else ():
            floor = SqliteFloor(folder / f"floor-{durability}.db", durability)
            with Memory.open(folder / f"crow-{durability}.db", durability=durability) as memory:
                case = "sqlite" if durability == "full" else "sqlite, no sync"
                compare(report, case, floor, memory, calls, durability=durability)
            floor.close()
    if report.wants_dialect("postgres"):
        with postgres() as server:
            floor = PostgresFloor(loopback(server, "floor"))
            with Memory.open(loopback(server, "crow")) as memory:
                compare(report, "postgres", floor, memory, calls, server, durability="full")
            floor.close()
    report.table()


if __name__ == "__main__":
    main()

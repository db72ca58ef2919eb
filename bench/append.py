"""One message added, and a turn of two in one call: crowmem beside the floor, on both databases.

Run: python bench/append.py [--dialect sqlite] [--only "2 KB"] [--full] [--out results.jsonl]
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from floors import AGENT, SESSION, PostgresFloor, SqliteFloor, messages
from harness import DATABASES, FLOOR, OURS, Report, arguments, block, folder_on_disk, loopback, postgres

from crowmem import Memory

if TYPE_CHECKING:
    import pg_server

SIZES = {"200 B": 200, "2 KB": 2000}
BARS = {"sqlite 200 B": 1.25, "sqlite 2 KB": 1.15, "postgres 200 B": 1.15, "postgres 2 KB": 1.15}
TURN_BAR = 1.3
CPU_BAR_US, BACK_BAR_BYTES = 150, 400  # of one add on PostgreSQL: the client's processor time, what the server answers
CALLS = 100


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


def count_wire(report: Report, server: pg_server.Server) -> None:
    """What one add on PostgreSQL costs the client, and what a proxy between them counts once all is prepared."""
    from tcp_proxy import Wire

    case = "postgres one add"
    if not report.wants(case):
        return
    given = messages(CALLS, SIZES["2 KB"])
    with Memory.open(loopback(server, "wire")) as memory:
        costs = [
            block(lambda n: memory.messages.add(AGENT, given[n]), range(CALLS))[1] / CALLS
            for _ in range(report.options.rounds + 1)
        ]
    with Wire(server.address) as wire:
        url = server.url(f"{DATABASES}wire", host=wire.host, port=wire.port)
        with Memory.open(url, pool_size=1) as memory:
            for message in given:  # a statement is prepared when it has been seen a few times
                memory.messages.add(AGENT, message)
            before = wire.traffic
            for message in given:
                memory.messages.add(AGENT, message)
            seen = wire.traffic - before
    trips, back = seen.round_trips / CALLS, seen.to_client_bytes / CALLS
    cpu_us = statistics.median(costs[1:])
    report.row(case, "client", cpu_us=round(cpu_us, 1), bar=CPU_BAR_US, holds=cpu_us <= CPU_BAR_US)
    report.row(case, "round trips", trips=trips, bar=1, holds=trips == 1)
    report.row(case, "answer", bytes=back, bar=BACK_BAR_BYTES, holds=back < BACK_BAR_BYTES)


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "").parse_args()
    report = Report("append", options)
    calls = 4 * CALLS if options.full else CALLS
    with folder_on_disk() as folder:
        for durability in ("full", "normal") if report.wants_dialect("sqlite") else ():
            floor = SqliteFloor(folder / f"floor-{durability}.db", durability)
            with Memory.open(folder / f"crow-{durability}.db", durability=durability) as memory:
                case = "sqlite" if durability == "full" else "sqlite, no sync"
                compare(report, case, floor, memory, calls, durability=durability)
            floor.close()
    if report.wants_dialect("postgres"):
        with postgres(report) as server:
            floor = PostgresFloor(loopback(server, "floor"))
            with Memory.open(loopback(server, "crow")) as memory:
                compare(report, "postgres", floor, memory, calls, server, durability="full")
            floor.close()
            count_wire(report, server)
    report.table()


if __name__ == "__main__":
    main()

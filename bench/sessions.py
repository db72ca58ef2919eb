"""The list of sessions: a first page and a deep page by key, at growing numbers of sessions.

The floor is the bare statement on the bare driver, on the same file or server, its rows left as tuples. crowmem may
take 50 us more than that for records, or 150 us (SQLite) and 300 us (PostgreSQL) in all, whichever is more; and a page
may not grow by more than 30 % between the smallest number of sessions and the largest.

Run: python bench/sessions.py [--dialect sqlite] [--full]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness import FLOOR, OURS, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory
from crowmem.repositories.sessions import LATEST, LIST_TRUNK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pg_server

PAGE = 50
MOST_US = {"sqlite": 150, "postgres": 300}
RECORDS_US = 50
GROWTH = 1.3


def bare_page(dialect: str, where: Path | str) -> Callable[[Any, Any], list[Any]]:
    """A function that runs the statement of a page on a connection of its own."""
    if dialect == "sqlite":
        import apsw

        connection = apsw.Connection(str(where))
        text = LIST_TRUNK.texts["sqlite"]

        def sqlite_page(activity: Any, after: Any) -> list[Any]:
            page = {"activity": activity, "after": after, "limit": PAGE, "offset": 0}
            return list(connection.execute(text, page).fetchall())

        return sqlite_page
    import psycopg

    from crowmem.statement import in_schema

    server = psycopg.connect(str(where), autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor)
    server.execute(b"set jit = off")
    numbered = in_schema(LIST_TRUNK.texts["postgres"], "public").encode()

    def postgres_page(activity: Any, after: Any) -> list[Any]:
        page = {"activity": activity, "after": after, "limit": PAGE, "offset": 0}
        return list(server.execute(numbered, [page[name] for name in LIST_TRUNK.params]).fetchall())

    return postgres_page


def compare(
    report: Report, dialect: str, where: Path | str, counts: list[int], server: pg_server.Server | None = None
) -> None:
    """Pages at each number of sessions, in one growing store."""
    first: dict[str, float] = {}
    with Memory.open(where, durability="normal") as memory:
        there = 0
        for count in counts:
            fill(memory, there, count)
            there = count
            bare = bare_page(dialect, where)
            pages = memory.sessions.list(limit=max(PAGE, count // 2))
            middle = pages[-1]
            key = (middle.last_activity.isoformat(timespec="microseconds"), middle.session_id)
            sides = {
                "first page": (lambda _, bare=bare: bare(LATEST, ""), lambda _: memory.sessions.list(limit=PAGE)),
                "page by key": (
                    lambda _, key=key, bare=bare: bare(*key),
                    lambda _, middle=middle: memory.sessions.list(limit=PAGE, after=middle),
                ),
            }
            for what, (floor, ours) in sides.items():
                case = f"{dialect} {what}, {count:,} sessions"
                if not report.wants(case):
                    continue
                taken = report.compare(case, {FLOOR: floor, OURS: ours}, calls=200, server=server)
                bare_us, ours_us = (taken[name].figures()["p50_us"] for name in (FLOOR, OURS))
                most = max(MOST_US[dialect], bare_us + RECORDS_US)
                growth = ours_us / first[what] if what in first else None  # nothing smaller was measured
                first.setdefault(what, ours_us)
                report.row(
                    case,
                    "bar",
                    most_us=round(most, 1),
                    growth=growth and round(growth, 2),
                    holds=ours_us <= most and (growth or 0) <= GROWTH,
                )


def fill(memory: Memory, start: int, count: int) -> None:
    """Add sessions until there are so many."""
    for number in range(start, count):
        session = f"session-{number:05}"
        with memory.transaction() as tx:
            tx.agents.create(f"{session}-1-1", session, model_identifier="model", cwd=f"/srv/{number % 20}")
            tx.messages.add_many(
                f"{session}-1-1",
                [{"role": "user", "content": f"message {place} of {session}"} for place in range(PAGE)],
            )


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "").parse_args()
    counts = [100, 1000, 10_000] if options.full else [100, 1000]
    report = Report("sessions", options, messages_each=PAGE)
    with folder_on_disk() as folder:
        if report.wants_dialect("sqlite"):
            compare(report, "sqlite", folder / "crow.db", counts)
    if report.wants_dialect("postgres"):
        with postgres(report) as server:
            compare(report, "postgres", loopback(server, "crow"), counts, server)
    report.table()


if __name__ == "__main__":
    main()

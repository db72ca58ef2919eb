"""Tapes, checkpoints and session locks: crowmem beside a bare driver loop, and what must not grow with a tape.

Run: python bench/tapes.py [--dialect sqlite] [--only append] [--full] [--out results.jsonl]
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from floors import messages
from harness import FLOOR, OURS, ROOT, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory
from crowmem.holding import LONGEST_NAP_S
from crowmem.locks import LEASE_S

if TYPE_CHECKING:
    from pathlib import Path

    import pg_server

BAR = 1 / 0.85  # 85 % of the floor's throughput
LONG = 1_000_000
WINDOW = 20
WINDOW_BAR_MS = 5.0
CHECKPOINT_BAR = 2.0
PROCESSES, ENTRIES = 16, 1000
HOLDERS, POOL = 50, 4
FREED_BAR_S = {"postgres": 5.0, "sqlite": LEASE_S + LONGEST_NAP_S}  # on SQLite its lease, and a waiter's next look

SQLITE = """
create table tapes (tape_id text primary key, branch integer not null, length integer not null) without rowid;
create table entries (id integer primary key, entry text not null);
"""
POSTGRES = """
create table tapes (tape_id text primary key, branch bigint not null, length bigint not null) with (fillfactor = 40);
create table entries (
    branch bigint not null, position bigint not null, entry json not null, primary key (branch, position)
);
"""
POSTGRES_APPEND = """
with head as (
    update tapes set length = length + json_array_length($2::json) where tape_id = $1 returning branch, length
), added as (
    insert into entries (branch, position, entry)
    select branch, length - json_array_length($2::json) + place - 1, entry
    from head, json_array_elements($2::json) with ordinality as e (entry, place)
)
select length from head
"""


class SqliteFloor:
    """One apsw connection: a counter row, an insert an entry, one transaction."""

    def __init__(self, path: Path) -> None:
        import apsw

        self.connection = apsw.Connection(str(path), statementcachesize=100)
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", "full")
        self.connection.execute(SQLITE).fetchall()
        for branch, name in enumerate(("append", "load"), 1):
            self.connection.execute("insert into tapes values (?, ?, 0)", (name, branch))

    def append(self, tape: str, entries: list[dict[str, Any]]) -> int:
        """Append entries."""
        execute = self.connection.execute
        execute("begin immediate")
        [[branch, length]] = execute(
            "update tapes set length = length + ? where tape_id = ? returning branch, length", (len(entries), tape)
        ).fetchall()
        first = branch << 32 | (length - len(entries))
        rows = [(first + place, json.dumps(entry)) for place, entry in enumerate(entries)]
        self.connection.executemany("insert into entries (id, entry) values (?, ?)", rows).fetchall()
        execute("commit")
        return int(length)

    def load(self, tape: str) -> list[Any]:
        """Load every entry."""
        found = self.connection.execute(
            "select entry from entries where id >= (select branch << 32 from tapes where tape_id = ?1)"
            " and id < (select branch + 1 << 32 from tapes where tape_id = ?1) order by id",
            (tape,),
        ).fetchall()
        return decoded([text for (text,) in found])

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class PostgresFloor:
    """One psycopg connection in autocommit, every statement prepared."""

    def __init__(self, url: str) -> None:
        import psycopg
        from psycopg.adapt import Loader

        class Text(Loader):
            """JSON undecoded."""

            def load(self, data: Any) -> str:
                return bytes(data).decode()

        self.connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor, options="-c jit=off"
        )
        self.connection.adapters.register_loader("json", Text)
        self.execute = self.connection.cursor().execute  # one cursor for all: a new one costs 6 µs
        psycopg.Cursor(self.connection).execute(POSTGRES.encode(), prepare=False)
        for branch, name in enumerate(("append", "load"), 1):
            self.connection.execute("insert into tapes values ($1, $2, 0)", (name, branch))

    def append(self, tape: str, entries: list[dict[str, Any]]) -> int:
        """Append entries in one round trip."""
        [[length]] = self.execute(POSTGRES_APPEND, (tape, json.dumps(entries))).fetchall()
        return int(length)

    def load(self, tape: str) -> list[Any]:
        """Load every entry."""
        found = self.execute(
            "select entry from entries where branch = (select branch from tapes where tape_id = $1) order by position",
            (tape,),
        ).fetchall()
        return decoded([text for (text,) in found])

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def decoded(texts: list[str]) -> list[Any]:
    """Entries, read as one array: their keys are made once, which takes 0.4 of the time."""
    return list(json.loads(f"[{','.join(texts)}]"))


def entries(count: int) -> list[dict[str, Any]]:
    """Entries of some 400 bytes, as agentkit writes them."""
    return [
        {"id": f"{number:036}", "kind": "message", "payload": message, "timestamp": 1735689603.25 + number}
        for number, message in enumerate(messages(count, 250))
    ]


def beside(
    report: Report,
    dialect: str,
    floor: SqliteFloor | PostgresFloor,
    memory: Memory,
    server: pg_server.Server | None = None,
) -> None:
    """Appends of 1 and 10 entries, and loads, next to the bare loop."""
    calls = 400 if report.options.full else 100
    given = entries(1000)
    for size in (1, 10):
        if report.wants(f"{dialect} append {size}"):
            parts = [given[start : start + size] for start in range(1000 - size)]
            report.compare(
                f"{dialect} append {size}",
                {
                    FLOOR: lambda n, parts=parts: floor.append("append", parts[n % len(parts)]),
                    OURS: lambda n, parts=parts: memory.tapes.append("append", parts[n % len(parts)]),
                },
                calls=calls,
                bar=BAR,
                server=server,
            )
    for size in (100, 10_000):
        if report.wants(f"{dialect} load {size:,}"):
            while memory.tapes.length("load") < size:
                floor.append("load", given[:100])
                memory.tapes.append("load", given[:100])
            report.compare(
                f"{dialect} load {size:,}",
                {
                    FLOOR: lambda _: floor.load("load"),
                    OURS: lambda _: memory.tapes.load("load"),
                    "crowmem load_json": lambda _: memory.tapes.load_json("load"),
                },
                calls=100 if size == 100 else 5,
                bar=BAR,
                server=server,
            )


def long_tape(report: Report, dialect: str, memory: Memory) -> None:
    """A checkpoint and a window of a tape of a million entries."""
    if not report.wants(f"{dialect} long"):
        return
    report.begins(f"{dialect} long: filling the tapes")
    given = entries(10)
    memory.tapes.append("short", given)
    began = time.perf_counter()
    for _ in range(LONG // 10_000):
        memory.tapes.append("long", given * 1000)
    filled_s = time.perf_counter() - began
    memory.tapes.append("long", [{"kind": "anchor", "anchor_type": "handoff"}, *given, *given][:WINDOW])
    assert memory.tapes.window("long").window_start == LONG
    states = {"plugin_states": {"memory": {"facts": ["x" * 200]}}}
    taken = report.compare(
        f"{dialect} long: checkpoint",
        {
            "of 10": lambda _: memory.checkpoints.save("short", **states),
            "of 1,000,000": lambda _: memory.checkpoints.save("long", **states),
        },
        calls=50,
        fill_per_s=round(LONG / filled_s),
    )
    short, long = (statistics.median(taken[name].p50()) for name in ("of 10", "of 1,000,000"))
    report.row(
        f"{dialect} long: checkpoint",
        "ratio",
        ratio=long / short,
        bar=CHECKPOINT_BAR,
        holds=long / short <= CHECKPOINT_BAR,
    )
    window = report.compare(f"{dialect} long: window of 20", {OURS: lambda _: memory.tapes.window("long")}, calls=50)
    took_ms = window[OURS].figures()["p50_us"] / 1000
    report.row(f"{dialect} long: window of 20", "p50", p50_ms=took_ms, bar=WINDOW_BAR_MS, holds=took_ms < WINDOW_BAR_MS)


APPENDER = """
import sys
from crowmem import Memory
url, worker, batch, total = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Memory.open(url, busy_timeout_s=300) as memory:
    for first in range(0, total, batch):
        memory.tapes.append("crowd", [{"w": worker, "n": n} for n in range(first, first + batch)])
"""


def crowd(report: Report, dialect: str, url: str, memory: Memory) -> None:
    """Many processes append to one tape: nothing is lost, doubled or out of a process's order."""
    for batch in (1, 10):
        if not report.wants(f"{dialect} crowd {batch}"):
            continue
        memory.tapes.delete("crowd")
        began = time.perf_counter()
        command = [sys.executable, "-c", APPENDER, url]
        workers = [
            subprocess.Popen([*command, str(worker), str(batch), str(ENTRIES)], cwd=ROOT) for worker in range(PROCESSES)
        ]
        failed = sum(worker.wait() != 0 for worker in workers)
        took_s = time.perf_counter() - began
        found = memory.tapes.load("crowd")
        in_order = all(
            [entry["n"] for entry in found if entry["w"] == str(worker)] == list(range(ENTRIES))
            for worker in range(PROCESSES)
        )
        report.row(
            f"{dialect} crowd {batch}",
            f"{PROCESSES} processes",
            failed=failed,
            entries=len(found),
            entries_per_s=round(len(found) / took_s),
            holds=not failed and in_order and len(found) == PROCESSES * ENTRIES == memory.tapes.length("crowd"),
        )


HOLDER = """
import sys, time
from crowmem import Memory
with Memory.open(sys.argv[1]) as memory, memory.sessions.lock("killed"):
    print("held", flush=True)
    time.sleep(1000)
"""


def locks(report: Report, dialect: str, url: str) -> None:
    """How soon a killed holder's lock is free, and what many holders cost the pool."""
    if report.wants(f"{dialect} locks: killed"):
        freed_s = []
        with Memory.open(url) as memory:
            for _ in range(3):
                with subprocess.Popen(
                    [sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True, cwd=ROOT
                ) as holder:
                    assert holder.stdout is not None
                    assert holder.stdout.readline() == "held\n"
                    os.kill(holder.pid, signal.SIGKILL)
                    began = time.perf_counter()
                    with memory.sessions.lock("killed"):
                        freed_s.append(time.perf_counter() - began)
        bar = FREED_BAR_S[dialect]
        report.row(f"{dialect} locks: killed", OURS, worst_s=max(freed_s), bar=bar, holds=max(freed_s) <= bar)
    if report.wants(f"{dialect} locks: {HOLDERS} holders"):
        with (
            Memory.open(url, pool_size=POOL) as memory,
            Memory.open(url, pool_size=POOL) as burdened,
            ExitStack() as held,
        ):
            for number in range(HOLDERS):
                held.enter_context(burdened.sessions.lock(f"held {number}"))
            given = entries(1)
            report.compare(
                f"{dialect} locks: {HOLDERS} holders",
                {
                    FLOOR: lambda _: memory.tapes.append("free", given),
                    "with holders": lambda _: burdened.tapes.append("free", given),
                },
                calls=100,
            )


def main() -> None:
    """Run the cases that the command line asks for."""
    options = arguments(__doc__ or "").parse_args()
    report = Report("tapes", options, durability="full")
    if report.wants_dialect("sqlite"):
        with folder_on_disk() as folder:
            url = str(folder / "crow.db")
            floor = SqliteFloor(folder / "floor.db")
            with Memory.open(url) as memory:
                beside(report, "sqlite", floor, memory)
                crowd(report, "sqlite", url, memory)
                locks(report, "sqlite", url)
                long_tape(report, "sqlite", memory)
            floor.close()
    if report.wants_dialect("postgres"):
        with postgres(report) as server:
            url = loopback(server, "crow")
            bare = PostgresFloor(loopback(server, "floor"))
            with Memory.open(url) as memory:
                beside(report, "postgres", bare, memory, server)
                crowd(report, "postgres", url, memory)
                locks(report, "postgres", url)
                long_tape(report, "postgres", memory)
            bare.close()
    report.table()


if __name__ == "__main__":
    main()

"""Claims a second against the bare loop and the peers: rates, waits, decay, and whether anything was handed out twice.

Every cell fills a queue, lets claimers drain it and counts what came out. The floor of the same shape runs right beside
it: on PostgreSQL pgbench with one bare statement, on SQLite the same through apsw; ``ratio`` is the rate as a part of
the floor's, ``cpu_ratio`` the same for the processor time an item costs claimers and server, which a busy machine
disturbs less. Exit 1 when an item was handed out twice or lost.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from claimers import Drained, drain
from queues import PG_FLOOR_CLAIM, SIDES, Place, connect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    import pg_server

PG_SHAPES = [(1, 1), (4, 1), (16, 1), (4, 10), (4, 100), (16, 100)]
LITE_SHAPES = [(1, 1), (4, 1), (16, 1), (4, 100)]
PG_BARS = {(4, 1): 0.40, (16, 1): 0.28, (4, 100): 0.75, (16, 100): 1.0}
PG_FULL_BARS = {(4, 1): 0.50, (16, 1): 0.40}
LITE_BARS = {(1, 1): 0.75, (4, 1): 0.65, (16, 1): 0.60}
LEASE_BARS = {(16, 100): 0.6}
PRIVATE_BAR = 2.4
PG_PEERS = ("procrastinate", "pgqueuer", "pgmq")
LITE_PEERS = ("huey", "litequeue")
HISTORY = 200_000
MILLION = 1_000_000
EMPTY_BAR, SNAPSHOT_BAR, WORST_BAR_S = 2.0, 0.8, 0.2
WAKE_BAR_MS, WAKE_PROCESS_BAR_MS = 20.0, 30.0


class Claims:
    """One run of the measurement."""

    def __init__(self, report: harness.Report, options: argparse.Namespace) -> None:
        self.report = report
        self.seconds = 4.0 if options.full else 1.0
        self.rounds = options.rounds
        self.peers = not options.no_peers
        self.wrong: list[str] = []
        self.claims = self.doubles = self.lost = 0  # crowmem's own
        self.curves: dict[str, dict[int, float]] = {}
        self.server_cpu_us: Callable[[], float] | None = None

    # --- cells ---

    def cell(
        self, case: str, side: str, place: Place, *, claimers: int, batch: int, hot: bool = True, threads: bool = False
    ) -> Drained | None:
        """Fill, drain and check one queue; None when the side cannot be measured here."""
        known = SIDES[side]
        if known.needs and importlib.util.find_spec(known.needs) is None:
            self.report.row(case, side, skipped="not installed")
            return None
        items = int(self.seconds * (40_000 if batch == 1 else 100_000 if batch == 10 else 150_000))
        form = side in ("floor private", "crowmem private", "crow-cli")  # beside each other, over tables of one size
        items = items // 4 if known.needs or form else items
        boxes = max(1, items // batch) if form else 1 if hot else claimers
        items = boxes * batch if form else items // boxes * boxes
        try:
            known.fill(place, items, boxes)
            many = {"claimers": claimers, "batch": batch, "seconds": self.seconds, "threads": threads}
            cpu = None if place.is_sqlite else self.server_cpu_us
            found = drain(side, place, hot=hot and not form, server_cpu_us=cpu, **many)
        except Exception as error:
            if side.startswith(("floor", "crowmem")):
                raise
            self.report.row(case, side, skipped=f"{type(error).__name__}: {str(error)[:80]}")
            return None
        doubles = len(found.ids) - len(set(found.ids))
        lost = items - len(found.ids) - known.left(place) if known.left else 0
        if side.startswith("crowmem"):
            self.claims += len(found.ids)
            self.doubles += doubles
            self.lost += lost
        if doubles or lost:
            self.wrong.append(f"{case} {side}: {doubles} twice, {lost} lost")
        return found

    def pgbench(
        self, place: Place, server: Any, claimers: int, batch: int, hot: bool
    ) -> tuple[float, float | None] | None:
        """The bare statement in pgbench: items a second, and processor time an item; None where there is no pgbench."""
        program = getattr(server, "programs", Path("/nowhere")) / "pgbench"
        if not program.is_file():
            return None
        items = int(self.seconds * (60_000 if batch == 1 else 300_000))
        SIDES["floor"].fill(place, items, 1 if hot else claimers)
        box = "'box0'" if hot else "'box' || :client_id"
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(" ".join(PG_FLOOR_CLAIM.format(box=box, batch=batch).split()) + ";\n")
            script.flush()
            command = [program, "-n", "-M", "prepared", "-c", str(claimers), "-j", str(min(2, claimers))]
            command += ["-T", str(max(1, int(self.seconds))), "-f", script.name, place.url]
            commit = "on" if place.durability == "full" else "off"
            cpu = self._cpu_us()
            run = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, "PGOPTIONS": f"-c synchronous_commit={commit}"},
            )
        seconds = float(re.findall(r"tps = ([\d.]+)", run.stdout)[-1])
        calls = int(re.findall(r"transactions actually processed: (\d+)", run.stdout)[-1])
        taken = items - int(SIDES["floor"].left(place))  # type: ignore[misc]  # the floor counts what is left
        return taken / (calls / seconds), (self._cpu_us() - cpu) / max(1, taken) if self.server_cpu_us else None

    def _cpu_us(self) -> float:
        """What the server and the programs that were waited for have used."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (used.ru_utime + used.ru_stime) * 1e6 + (self.server_cpu_us() if self.server_cpu_us else 0.0)

    def compare(
        self,
        case: str,
        sides: list[str],
        place: Place | None,
        *,
        claimers: int,
        batch: int,
        bar: float | None = None,
        server: Any = None,
        fresh: Any = None,
        threads: bool = False,
    ) -> None:
        """The floor and the sides in turn, some rounds; each round gives a ratio."""
        if not self.report.wants(case):
            return
        self.report.begins(case)
        rates: dict[str, list[float]] = {}
        costs: dict[str, list[float | None]] = {}
        seen: dict[str, Drained] = {}
        for turn in range(self.rounds):
            order = ["floor", *sides] if turn % 2 == 0 else [*reversed(sides), "floor"]
            for side in order:
                if turn and SIDES[side].needs:
                    continue  # one round tells enough about a peer
                where = place or Place(fresh(), case.split()[-1])
                bare = self.pgbench(where, server, claimers, batch, hot=True) if side == "floor" and server else None
                if bare is None:
                    found = self.cell(case, side, where, claimers=claimers, batch=batch, threads=threads)
                    if found is None:
                        continue
                    cost = found.all_us if where.is_sqlite or self.server_cpu_us else None
                    seen[side], bare = found, (found.rate, cost)
                rates.setdefault(side, []).append(bare[0])
                costs.setdefault(side, []).append(bare[1])
        for side, found_rates in rates.items():
            floors = rates["floor"]
            ratio = statistics.median(one / floor for one, floor in zip(found_rates, floors, strict=False))
            about: dict[str, Any] = {
                "claimers": claimers,
                "batch": batch,
                "rate": round(statistics.median(found_rates)),
            }
            if side in seen:
                one = seen[side]
                about |= {"p50_us": round(one.p50_us), "p99_us": round(one.p99_us), "worst_us": round(one.worst_us)}
                about |= {"cpu_us": round(one.cpu_us, 1), "least": min(one.shares), "most": max(one.shares)}
            if side != "floor":
                about["ratio"] = round(ratio, 2)
                pairs = zip(costs[side], costs["floor"], strict=False)
                if known := [floor / one for one, floor in pairs if one and floor]:
                    about["cpu_ratio"] = round(statistics.median(known), 2)
                if bar and side.startswith("crowmem"):
                    about |= {"bar": bar, "holds": ratio >= bar}
            self.report.row(case, side, **about)
            if batch == 1:
                self.curves.setdefault(f"{case.split(' ', 1)[0]} {case.split()[-1]} {side}", {})[claimers] = about[
                    "rate"
                ]

    # --- parts ---

    def postgres(self, server: pg_server.Server) -> None:
        """Everything on PostgreSQL."""
        url = harness.loopback(server, "claims") if not getattr(server, "programs", None) else _own(server, "claims")
        peers = list(PG_PEERS) if self.peers else []
        process = getattr(server, "process", None)
        if process is not None and Path(f"/proc/{process.pid}/stat").is_file():
            self.server_cpu_us = functools.partial(_server_cpu_us, process.pid)
        for durability, bars in (("normal", PG_BARS), ("full", PG_FULL_BARS)):
            place = Place(url, durability)
            for claimers, batch in PG_SHAPES if durability == "normal" else PG_SHAPES[1:3]:
                _empty(place)
                sides = ["crowmem", *(peer for peer in peers if batch == 1 or SIDES[peer].batches)]
                shape = f"postgres {claimers}x{batch} {durability}"
                bar = bars.get((claimers, batch))
                self.compare(shape, sides, place, claimers=claimers, batch=batch, bar=bar, server=server)
        place = Place(url, "normal")
        _empty(place)
        for claimers, batch in ((4, 1), (16, 1), (16, 100)):
            shape = f"postgres lease+ack {claimers}x{batch} normal"
            bar = LEASE_BARS.get((claimers, batch))
            self.compare(shape, ["crowmem lease"], place, claimers=claimers, batch=batch, bar=bar, server=server)
        self.private(place)
        _empty(place)
        self.sending(place)
        self.decay(place)
        self.snapshot(place)
        self.waking(place)
        self.races(place)
        self.million(place)

    def million(self, place: Place) -> None:
        """What is missing to a million claims, so that duplicates and losses are looked for in as many."""
        case = "postgres a million claims"
        while self.report.options.full and self.report.wants(case) and self.claims < MILLION:
            self.report.begins(f"{case}, {self.claims:,} so far")
            self.cell(case, "crowmem", place, claimers=16, batch=10)

    def sqlite(self, fresh: Any) -> None:
        """Everything on SQLite."""
        peers = list(LITE_PEERS) if self.peers else []
        for durability in ("normal", "full"):
            for claimers, batch in LITE_SHAPES if durability == "normal" else ((4, 1), (16, 1)):
                for threads in (False, True):
                    kind = "threads" if threads else "processes"
                    case = f"sqlite {claimers}x{batch} {kind} {durability}"
                    if threads and (claimers, batch) not in ((4, 1), (16, 1)):
                        continue
                    bar = LITE_BARS.get((claimers, batch)) if durability == "normal" and not threads else None
                    sides = ["crowmem", *(peers if batch == 1 and not threads else [])]
                    many = {"claimers": claimers, "batch": batch, "bar": bar, "threads": threads}
                    self.compare(case, sides, None, fresh=fresh, **many)
        self.worst(fresh)
        self.sending(Place(fresh(), "normal"))
        self.decay(Place(fresh(), "normal"))
        self.waking(Place(fresh(), "full"))
        self.races(Place(fresh(), "normal"))

    def worst(self, fresh: Any) -> None:
        """The longest wait of 16 processes that flush every claim."""
        case = "sqlite worst claim 16x1 full"
        if self.report.wants(case):
            found = self.cell(case, "crowmem", Place(fresh(), "full"), claimers=16, batch=1)
            worst = found.worst_us / 1e6 if found else 0.0
            self.report.row(case, "crowmem", worst_s=round(worst, 3), bar=WORST_BAR_S, holds=worst <= WORST_BAR_S)

    def private(self, place: Place) -> None:
        """Whole small mailboxes, the form of crow-cli: its own claim, ours, and libpq with the least statement."""
        sides = ["floor private", "crowmem private", *(["crow-cli"] if self.peers else [])]
        for claimers, batch in ((4, 1), (16, 1), (16, 100)):
            case = f"postgres private {claimers}x{batch} normal"
            if not self.report.wants(case):
                continue
            self.report.begins(case)
            rates: dict[str, list[float]] = {}
            for turn in range(self.rounds):
                for side in sides if turn % 2 == 0 else reversed(sides):
                    _empty(place)
                    found = self.cell(case, side, place, claimers=claimers, batch=batch)
                    if found is not None:
                        rates.setdefault(side, []).append(found.rate)
            for side, measured in rates.items():
                about: dict[str, Any] = {
                    "claimers": claimers,
                    "batch": batch,
                    "rate": round(statistics.median(measured)),
                    "ratio": _ratio(measured, rates["floor private"]),
                }
                if "crow-cli" in rates and side != "crow-cli":
                    about["times_crow_cli"] = _ratio(measured, rates["crow-cli"])
                    if side == "crowmem private":
                        about |= {"bar": PRIVATE_BAR, "holds": about["times_crow_cli"] >= PRIVATE_BAR}
                self.report.row(case, side, **about)

    def sending(self, place: Place) -> None:
        """Items a second into a mailbox, one by one and a hundred at a time."""
        from crowmem import Memory

        dialect = "sqlite" if place.is_sqlite else "postgres"
        case = f"{dialect} send"
        if not self.report.wants(case):
            return
        with Memory.open(place.url, durability=place.durability) as memory:
            singles = _rate(lambda: memory.mailbox.send("sent", "x" * 200), self.seconds)
            batches = _rate(lambda: memory.mailbox.send_many("sent", ["x" * 200] * 100), self.seconds) * 100
            memory.mailbox.claim("sent")
        SIDES["floor"].fill(place, 1, 1)
        row = "(:id, :id, 'b', :content)" if not place.is_sqlite else "(:id, 'b', :content)"
        with contextlib.closing(connect(place)) as connection:
            numbers = iter(range(10**6, 10**9))
            values = row.replace(":id", "%(id)s").replace(":content", "%(content)s") if not place.is_sqlite else row
            columns = "(id, pos, box, content)" if not place.is_sqlite else "(id, box, content)"
            sql = f"insert into floor {columns} values {values}"
            more = {} if place.is_sqlite else {"prepare": True}

            def insert() -> None:
                connection.execute(sql, {"id": next(numbers), "content": "x" * 200}, **more)

            floor = _rate(insert, self.seconds)
        self.report.row(case, "floor", rate=round(floor))
        self.report.row(case, "crowmem", rate=round(singles), batched=round(batches), ratio=round(singles / floor, 2))

    def decay(self, place: Place) -> None:
        """What a claim costs on a mailbox with a long history, beside a fresh one."""
        from crowmem import Memory

        dialect = "sqlite" if place.is_sqlite else "postgres"
        case = f"{dialect} after {HISTORY:,} finished"
        if not self.report.wants(case):
            return
        self.report.begins(case)
        with Memory.open(place.url, durability=place.durability) as memory:
            box = memory.mailbox

            def deliver(address: str) -> None:
                box.send(address, "x")
                if len(box.claim(address, limit=1)) != 1:
                    self.wrong.append(f"{case}: an item was lost")

            def costs(address: str) -> tuple[float, float]:
                empty = _median_us(lambda: box.claim(address, limit=1), 300)
                return empty, _median_us(lambda: deliver(address), 300)

            costs("warm")
            fresh = costs("fresh")
            for _ in range(HISTORY // 20_000):
                box.send_many("old", ["x" * 50] * 20_000)
                while taken := box.claim("old", limit=1000):
                    self.claims += len(taken)
            old = costs("old")
        with Memory.open(place.url, durability=place.durability) as another:
            began = time.perf_counter()
            another.mailbox.claim("old", limit=1)
            first = (time.perf_counter() - began) * 1e6
            again = _median_us(lambda: another.mailbox.claim("old", limit=1), 300)
        ratio = statistics.median([old[0] / fresh[0], again / fresh[0]])
        about = {"fresh_empty_us": round(fresh[0], 1), "empty_us": round(old[0], 1), "new_process_us": round(again, 1)}
        about |= {
            "new_process_first_us": round(first),
            "fresh_item_us": round(fresh[1], 1),
            "item_us": round(old[1], 1),
        }
        self.report.row(case, "crowmem", **about, times=round(ratio, 2), bar=EMPTY_BAR, holds=ratio <= EMPTY_BAR)

    def snapshot(self, place: Place) -> None:
        """Drain rate while an old snapshot keeps every dead row from being cleared away."""
        case = "postgres old snapshot 4x1 normal"
        if not self.report.wants(case):
            return
        self.report.begins(case)
        ratios = []
        for _ in range(self.rounds):
            before = self.cell(case, "crowmem", place, claimers=4, batch=1)
            with connect(place) as holder:
                holder.execute("begin isolation level repeatable read")
                holder.execute("select count(*) from task_deliveries")
                from crowmem import Memory

                with Memory.open(place.url, durability="normal") as memory:
                    memory.mailbox.send_many("box0", ["x" * 200] * 30_000)
                    while taken := memory.mailbox.claim("box0", limit=1000):
                        self.claims += len(taken)
                    items = int(self.seconds * 20_000)
                    memory.mailbox.send_many("box0", ["x" * 200] * items)
                many = {"claimers": 4, "batch": 1, "seconds": self.seconds, "threads": False}
                after = drain("crowmem", place, hot=True, **many)
                self.claims += len(after.ids)
                holder.execute("rollback")
            ratios.append(after.rate / before.rate if before else 0.0)
        ratio = statistics.median(ratios)
        self.report.row(case, "crowmem", of_fresh=round(ratio, 2), bar=SNAPSHOT_BAR, holds=ratio >= SNAPSHOT_BAR)

    def waking(self, place: Place) -> None:
        """Delays of wake-ups, and what a thousand idle waiters cost."""
        import wakes

        dialect = "sqlite" if place.is_sqlite else "postgres"
        case = f"{dialect} wake-up"
        if not place.is_sqlite and self.report.wants(case):
            with connect(place) as connection:  # what millions of claims left behind is not what is measured here
                connection.execute("vacuum analyze")
                connection.execute("checkpoint")
        if not self.report.wants(case):
            return
        self.report.begins(case)
        for processes in (False, True):
            count = 500 if self.report.options.full else 100
            delays = wakes.delays_ms(place, count, processes=processes)
            p99 = delays[min(count - 1, count * 99 // 100)]
            bar = WAKE_PROCESS_BAR_MS if processes and place.is_sqlite else WAKE_BAR_MS
            about = {"p50_ms": round(delays[count // 2], 2), "p99_ms": round(p99, 2), "bar_ms": bar, "holds": p99 < bar}
            self.report.row(case, "processes" if processes else "threads", **about)
        if not place.is_sqlite:
            delays = wakes.bare_delays_ms(place, count)
            about = {
                "p50_ms": round(delays[count // 2], 2),
                "p99_ms": round(delays[min(count - 1, count * 99 // 100)], 2),
            }
            self.report.row(case, "floor", **about)
        part = wakes.idle_cpu(place, 3 * self.seconds)
        self.report.row(case, "1,000 idle", cores=round(part, 4))

    def races(self, place: Place) -> None:
        """Pairs of calls of which exactly one may win."""
        import races

        dialect = "sqlite" if place.is_sqlite else "postgres"
        count = 1000 if self.report.options.full else 100
        if self.report.wants(f"{dialect} races"):
            for name, lost in races.run(place, count).items():
                self.report.row(f"{dialect} races", name, rounds=count, wrong=lost, holds=lost == 0)
                if lost:
                    self.wrong.append(f"{dialect} {name}: {lost} of {count} races had no single winner")


def _server_cpu_us(pid: int) -> float:
    """Processor time of a server and all its backends, those that ended included."""
    total = 0.0
    for process in (str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()):
        with contextlib.suppress(OSError):  # one that ended meanwhile
            ticks = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
            total += sum(map(int, ticks))
    return total / os.sysconf("SC_CLK_TCK") * 1e6


def _empty(place: Place) -> None:
    """Back to an empty schema: peers leave theirs."""
    with connect(place) as connection:
        connection.execute("drop schema if exists public cascade")
        connection.execute("create schema public")


def _own(server: Any, name: str) -> str:
    with connect(Place(server.url(), "normal")) as connection:
        connection.execute(f'create database "{name}"')
    return str(server.url(name))


def _ratio(these: list[float], those: list[float]) -> float:
    """The median of the rounds."""
    return round(statistics.median(one / other for one, other in zip(these, those, strict=True)), 2)


def _rate(call: Any, seconds: float) -> float:
    call()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - began)


def _median_us(call: Any, times: int) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append((time.perf_counter() - began) * 1e6)
    return statistics.median(found)


def draw(curves: dict[str, dict[int, float]], path: Path) -> None:
    """Claims a second against claimers."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no matplotlib, so no picture", file=sys.stderr)
        return
    mpl.use("Agg")
    from matplotlib import pyplot

    dialects = [name for name in ("sqlite", "postgres") if any(key.startswith(name) for key in curves)]
    figure, axes = pyplot.subplots(1, len(dialects) or 1, figsize=(6 * (len(dialects) or 1), 4.5), squeeze=False)
    for dialect, axis in zip(dialects, axes[0], strict=True):
        for name, points in sorted(curves.items()):
            if name.startswith(dialect) and " normal " in name and "private" not in name:
                side = name.split(" normal ")[1]
                xs = sorted(points)
                style = {"floor": "kx--"}.get(side, "o-")  # with marks: one number of claimers is a point
                axis.plot(xs, [points[x] for x in xs], style, label=side)
        axis.set(title=f"{dialect}, one mailbox, one item a claim", xlabel="claimers", ylabel="claims a second")
        axis.set_xscale("log", base=2)
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"drew {path}", file=sys.stderr)


@contextlib.contextmanager
def _server(report: harness.Report, url: str | None) -> Iterator[Any]:
    import pg_server

    if url:
        server = pg_server.from_dsn(url)
        with report.beside(server):
            yield server
        return
    settings = {**pg_server.DURABLE, "shared_buffers": "512MB", "max_wal_size": "4GB", "max_connections": "120"}
    place = Path(os.environ.get("CROWMEM_BENCH_FOLDER") or tempfile.gettempdir())
    with pg_server.running(settings, parent=place) as own, report.beside(own):
        yield own


def main() -> int:
    """Run what the command line asks for."""
    parser = harness.arguments(__doc__.splitlines()[0], rounds=2)
    parser.add_argument(
        "--url", help="a PostgreSQL server to use, whose database crowmem_bench_claims is DROPPED; else an own one"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out")
    parser.add_argument("--png", type=Path, default=harness.ROOT / "bench" / "results" / "claim.png")
    options = parser.parse_args()
    report = harness.Report("claim", options)
    run = Claims(report, options)
    if report.wants_dialect("sqlite"):
        with harness.folder_on_disk() as folder:
            numbers = iter(range(10**6))
            run.sqlite(lambda: str(folder / f"{next(numbers)}.db"))
    if report.wants_dialect("postgres"):
        with _server(report, options.url) as server:
            run.postgres(server)
    counted = {"claims": run.claims, "duplicates": run.doubles, "losses": run.lost}
    if run.claims or run.wrong:  # nothing lost of nothing is no result
        report.row("all", "crowmem", **counted, wrong=len(run.wrong), holds=not run.wrong)
    report.table()
    if run.curves:
        draw(run.curves, options.png)
    for line in run.wrong:
        print(line, file=sys.stderr)
    return 1 if run.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

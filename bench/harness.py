"""What the measurements share: sides that take turns, the machine and versions on record, JSON lines, a table.

A case has sides, one of them called ``floor``: the bare driver doing the same work. They run in blocks that alternate
within one process, each round in the other order, so what else the machine does falls on all alike; a ratio is taken
within each round, and the median of the rounds is what counts. Processor time stands beside the wall clock: on a shared
machine it is the steadier figure, and it leaves out the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "tests"):  # the measurements start servers as the tests do
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pg_server

FLOOR = "floor"
OURS = "crowmem"
DATABASES = "crowmem_bench_"
NOTHING = 3  # exit status of a measurement that has no case of the name asked for
PACKAGES = ("apsw", "psycopg", "psycopg-pool", "crow-cli", "procrastinate", "pgqueuer", "pgmq", "huey", "litequeue")


def arguments(about: str, **more: Any) -> argparse.ArgumentParser:
    """The command line that every measurement has.

    Args:
        about: one line of help.
        more: defaults that differ from 10 rounds.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=_output, help="append JSON lines to this file; else they go to standard output")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--dialect", choices=("sqlite", "postgres"), help="only this database")
    often = "how often the sides take turns (default: %(default)s)"
    parser.add_argument("--rounds", type=_rounds, default=more.get("rounds", 10), help=often)
    parser.add_argument("--full", action="store_true", help="sizes and lengths of the published figures: minutes")
    return parser


def _output(text: str) -> Path:
    path = Path(text)
    new = not (path.exists() or path.is_symlink())
    try:
        path.open("a", encoding="utf-8").close()
        if new:  # what has no case to measure leaves no file
            path.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write {path}: {error.strerror}") from error
    return path


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of rounds: give 1 or more")
    return int(text)


@dataclass
class Rounds:
    """What one side of a case took, by round."""

    times_us: list[list[float]] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)

    def p50(self) -> list[float]:
        """The median call of each round."""
        return [statistics.median(times) for times in self.times_us]

    def figures(self) -> dict[str, float]:
        """Medians over the rounds, in microseconds a call; p99 and the worst over all calls."""
        every = sorted(time for times in self.times_us for time in times)
        found = {
            "calls": len(every),
            "p50_us": statistics.median(self.p50()),
            "p99_us": every[min(len(every) - 1, len(every) * 99 // 100)],
            "worst_us": every[-1],
            "cpu_us": statistics.median(self.cpu_us),
        }
        if any(self.server_us):
            found["server_cpu_us"] = statistics.median(self.server_us)
        return {name: round(value, 2) for name, value in found.items()}


class Report:
    """Where the results of one measurement go."""

    def __init__(self, subject: str, options: argparse.Namespace, **settings: Any) -> None:
        """Note the header, to be written before the first row.

        Args:
            subject: the measurement's name.
            options: its command line.
            settings: what else decides about its figures.
        """
        self.subject = subject
        self.options = options
        self._rows: list[dict[str, Any]] = []
        self._server: dict[str, str] = {}  # goes into the rows that are measured while it runs
        self._settings = {"full": options.full, "rounds": options.rounds, **settings}
        self._machine = about_machine()

    def _write(self, row: dict[str, Any]) -> None:
        line = json.dumps(row)
        if self.options.out:
            with self.options.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        else:
            print(line, flush=True)

    def wants(self, case: str) -> bool:
        """Whether the command line asks for a case."""
        return str(self.options.only) in case

    def wants_dialect(self, dialect: str) -> bool:
        """Whether the command line asks for a database."""
        return self.options.dialect in (None, dialect)

    def begins(self, case: str) -> None:
        """Tell people, on standard error, what takes its time now."""
        print(f"{self.subject}: {case} ...", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def beside(self, server: pg_server.Server) -> Iterator[None]:
        """Record the server's version in the rows of this block.

        Raises:
            SystemExit: the server cannot be reached.
        """
        self._server = {"postgres": server_version(server)}
        self._machine["versions"].update(self._server)
        try:
            yield
        finally:
            self._server = {}

    def compare(
        self,
        case: str,
        sides: dict[str, Callable[[int], object]],
        *,
        calls: int,
        bar: float | None = None,
        server: pg_server.Server | None = None,
        **facts: Any,
    ) -> dict[str, Rounds]:
        """Let the sides take turns and record what a call costs.

        Args:
            case: its name.
            sides: by name a function that does the work once; it gets the call's number, the same on all sides.
            calls: calls of one block.
            bar: most that crowmem's median may be, as a multiple of the floor's.
            server: the server that works for the sides; its processor time is recorded too.
            facts: what else to record.
        """
        self.begins(case)
        taken = take_turns(sides, calls=calls, rounds=self.options.rounds, server=server)
        for name, rounds in taken.items():
            ratios = {} if name == FLOOR or FLOOR not in taken else against(rounds, taken[FLOOR])
            held = {"bar": bar, "holds": ratios["ratio"] <= bar} if bar and ratios and name == OURS else {}
            self.row(case, name, **rounds.figures(), **ratios, **held, **facts)
        return taken

    def row(self, case: str, side: str, **figures: Any) -> None:
        """Record one line of figures."""
        row = {"kind": "row", "subject": self.subject, "case": case, "side": side, **self._server, **figures}
        if not self._rows:
            self._write({"kind": "run", "subject": self.subject, **self._settings, **self._machine})
        self._rows.append(row)
        self._write(row)

    def table(self) -> None:
        """Print the settings, the machine, the versions and the rows for people, on standard error.

        Raises:
            SystemExit: there are none; its status is 3.
        """
        if not self._rows:
            asked = [f"--only {self.options.only!r}"] if self.options.only else []
            asked += [f"--dialect {self.options.dialect}"] if self.options.dialect else []
            print(
                f"{self.subject}: no case for {' '.join(asked)}; the table of a whole run names them", file=sys.stderr
            )
            raise SystemExit(NOTHING)
        facts = {**self._settings, **self._machine, **self._machine["versions"]}
        del facts["versions"]
        print("\n" + ", ".join(f"{name} {value}" for name, value in facts.items()), file=sys.stderr)
        hidden = {"kind", "subject", "postgres"}
        names = list(dict.fromkeys(name for row in self._rows for name in row if name not in hidden))
        cells = [[shown(row.get(name)) for name in names] for row in self._rows]
        widths = [max(len(name), *(len(line[place]) for line in cells)) for place, name in enumerate(names)]
        for line in [names, *cells]:
            padded = [
                text.ljust(width) if place < 2 else text.rjust(width)
                for place, (text, width) in enumerate(zip(line, widths, strict=True))
            ]
            print("  ".join(padded).rstrip(), file=sys.stderr)


def take_turns(
    sides: dict[str, Callable[[int], object]], *, calls: int, rounds: int, server: pg_server.Server | None = None
) -> dict[str, Rounds]:
    """Run each side's block in every round, in alternating order, after one round that does not count."""
    taken = {name: Rounds() for name in sides}
    number = 0
    for turn in range(rounds + 1):
        order = list(sides) if turn % 2 else list(reversed(sides))
        for name in order:
            before = server_cpu_us(server)
            times, cpu = block(sides[name], range(number, number + calls))
            if turn:
                taken[name].times_us.append(times)
                taken[name].cpu_us.append(cpu / calls)
                taken[name].server_us.append((server_cpu_us(server) - before) / calls)
        number += calls
    return taken


def block(call: Callable[[int], object], numbers: Sequence[int]) -> tuple[list[float], float]:
    """The wall time of each call, and the processor time of all, in microseconds."""
    clock = time.perf_counter_ns
    times: list[float] = []
    started = time.process_time_ns()
    for number in numbers:
        before = clock()
        call(number)
        times.append((clock() - before) / 1000)
    return times, (time.process_time_ns() - started) / 1000


def against(side: Rounds, floor: Rounds) -> dict[str, float]:
    """The median over the rounds of a side's cost as a multiple of the floor's."""
    found = {
        "ratio": statistics.median(a / b for a, b in zip(side.p50(), floor.p50(), strict=True)),
        "cpu_ratio": statistics.median(a / b for a, b in zip(side.cpu_us, floor.cpu_us, strict=True)),
    }
    if any(floor.server_us):
        # the servers' clocks tick coarsely: one ratio over all rounds
        found["server_ratio"] = sum(side.server_us) / sum(floor.server_us)
    return {name: round(value, 3) for name, value in found.items()}


def server_cpu_us(server: pg_server.Server | None) -> float:
    """Processor time that a server's processes have used, as far as they still run."""
    process = getattr(server, "process", None)
    if process is None:
        return 0.0
    total = 0
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    for pid in (str(process.pid), *children):
        with contextlib.suppress(OSError):  # one that ended meanwhile
            total += int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
    return total / 1000


@contextlib.contextmanager
def folder_on_disk() -> Iterator[Path]:
    """A folder that is removed in the end, in CROWMEM_BENCH_FOLDER or where temporary files go."""
    with tempfile.TemporaryDirectory(prefix="crowmem-bench-", dir=place()) as name:
        yield Path(name)


def place() -> Path:
    """Where measurements write: CROWMEM_BENCH_FOLDER, or where temporary files go.

    Raises:
        SystemExit: the variable names no folder.
    """
    folder = Path(os.environ.get("CROWMEM_BENCH_FOLDER") or tempfile.gettempdir())
    if not folder.is_dir():
        raise SystemExit(f"CROWMEM_BENCH_FOLDER names {folder}, which is no folder: make it, or unset the variable")
    return folder


@contextlib.contextmanager
def postgres(report: Report, **more: str) -> Iterator[pg_server.Server]:
    """A server on loopback TCP that keeps what it acknowledges: the one CROWMEM_BENCH_POSTGRES names, or our own.

    Args:
        report: gets its version.
        more: settings of our own server that differ.
    """
    import pg_server

    if dsn := os.environ.get("CROWMEM_BENCH_POSTGRES"):
        server: pg_server.Server = pg_server.from_dsn(dsn)
        with report.beside(server):
            yield server
        return
    settings = {**pg_server.DURABLE, "shared_buffers": "256MB", "max_wal_size": "4GB", **more}
    with pg_server.running(settings, tcp=True, parent=place()) as server, report.beside(server):
        yield server


def server_version(server: pg_server.Server) -> str:
    """What a server says its version is.

    Raises:
        SystemExit: it cannot be reached.
    """
    import psycopg

    try:
        with psycopg.connect(server.url()) as connection:
            return str(connection.info.parameter_status("server_version"))
    except psycopg.Error as error:
        raise SystemExit(f"cannot reach the PostgreSQL server: {error}") from error


def loopback(server: pg_server.Server, name: str) -> str:
    """The URL of a new database by TCP; what an earlier measurement left under its name is removed.

    Raises:
        SystemExit: the server cannot be reached, or refuses.
    """
    import pg_server
    import psycopg

    name = f"{DATABASES}{name}"  # no name that a store of somebody's could have
    try:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f'drop database if exists "{name}" with (force)'.encode())
            connection.execute(f'create database "{name}"'.encode())
    except psycopg.Error as error:
        raise SystemExit(f"cannot make the database {name} on the PostgreSQL server: {error}") from error
    own = isinstance(server, pg_server.OwnServer)
    return server.url(name, host=pg_server.HOST) if own else server.url(name)


def about_machine() -> dict[str, Any]:
    """What figures depend on; no name of a machine or a person."""
    import apsw

    versions = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "sync_us": round(sync_us(), 1),
        "versions": versions,
    }


def sync_us() -> float:
    """The median time that the disk needs to keep 8 KB."""
    times = []
    with tempfile.TemporaryFile(dir=place()) as file:
        for _ in range(50):
            file.write(b"x" * 8192)
            file.flush()
            before = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter_ns() - before) / 1000)
    return statistics.median(times)


def shown(value: Any) -> str:
    """A figure in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"
    if isinstance(value, list):
        return " ".join(map(shown, value))
    return f"{value:,}" if isinstance(value, int) else str(value)

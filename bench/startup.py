"""What a program pays before its first statement, beside the bare interpreter.

Each line starts new interpreters in turns, compiled files warm, and takes what the process used in the end: processor
time and the peak of resident memory. The bar is for importing all that SQLite needs, the driver with it: 30 ms and 8 MB
over the interpreter. Opening an existing store, in the line below it, touches more of SQLite's own code and pages.

Run: python bench/startup.py [--only import]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from harness import FLOOR, OURS, ROOT, Report, arguments, folder_on_disk

if TYPE_CHECKING:
    from pathlib import Path

MOST_MS, MOST_MB = 30.0, 8.0
PROBE = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):  # ru_maxrss would count what the parent had before the program began
        print((used.ru_utime + used.ru_stime) * 1000, int(line.split()[1]) / 1024)
"""
FOR_SQLITE = "import for SQLite"
OPEN = "from crowmem import Memory\nwith Memory.open({path!r}) as memory:\n    "
PROGRAMS = {
    FLOOR: "pass",
    "import crowmem": "import crowmem",
    "import apsw": "import apsw",
    FOR_SQLITE: "import crowmem.drivers.sqlite\nfrom crowmem import Memory",
    OURS: OPEN + "pass",
    "first add and load": OPEN
    + "memory.messages.add('s-1-1', {{'role': 'user', 'content': 'caw'}}); memory.messages.load('s-1-1')",
    "first search": OPEN + "memory.search.messages('caw')",
}


def start(program: str, folder: Path) -> tuple[float, float]:
    """Run a program; its processor time in ms and its memory in MB."""
    text = program.format(path=str(folder / "crow.db")) + PROBE
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    cpu_ms, memory_mb = map(float, done.stdout.split())
    return cpu_ms, memory_mb


def main() -> None:
    """Start what the command line asks for."""
    options = arguments(__doc__ or "", rounds=20).parse_args()
    report = Report("startup", options)
    named = [name for name in PROGRAMS if name != FLOOR and report.wants(f"sqlite {name}")]
    if named and report.wants_dialect("sqlite"):
        measure(report, {name: PROGRAMS[name] for name in (FLOOR, *named)})
    report.table()


def measure(report: Report, programs: dict[str, str]) -> None:
    """Start some programs in turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    report.begins(f"{', '.join(programs)} in turns")
    with folder_on_disk() as folder:
        for turn in range(report.options.rounds + 1):
            for name, program in programs.items():
                figures = start(program, folder)
                if turn:  # the first makes the store and compiles
                    found[name].append(figures)
    bare_ms = statistics.median(cpu_ms for cpu_ms, _ in found[FLOOR])
    bare_mb = statistics.median(memory_mb for _, memory_mb in found[FLOOR])
    for name, figures in found.items():
        over_ms = statistics.median(cpu_ms for cpu_ms, _ in figures) - bare_ms
        least_ms = min(cpu_ms for cpu_ms, _ in figures) - min(cpu_ms for cpu_ms, _ in found[FLOOR])
        over_mb = statistics.median(memory_mb for _, memory_mb in figures) - bare_mb
        bars: dict[str, Any] = {}
        if name == FOR_SQLITE:
            bars = {"bar_ms": MOST_MS, "bar_mb": MOST_MB, "holds": over_ms <= MOST_MS and over_mb <= MOST_MB}
        report.row(
            "sqlite",
            name,
            cpu_ms_over=round(over_ms, 1),
            least_ms_over=round(least_ms, 1),
            memory_mb_over=round(over_mb, 1),
            bare_ms=round(bare_ms, 1),
            **bars,
        )


if __name__ == "__main__":
    main()

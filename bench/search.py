"""Search on a corpus of 10,000 messages, ``--full`` of 100,000 and a million too: times, insert rates, index sizes.

A side beside crowmem is the bare driver: the very statements a search runs, without planning, decoding and snippets.
Others are what people write without crowmem: FTS5's ``order by rank``, PostgreSQL's ``ts_rank``, and crow-cli where it
is installed.

Run: python bench/search.py [--dialect sqlite] [--sizes 10000,100000] [--full] [--out results.jsonl]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from corpus import corpus
from harness import OURS, Report, arguments, folder_on_disk, postgres, server_cpu_us
from search_stores import EACH, LIMIT, SHAPES, ask, postgres_place, queries, sqlite_place

if TYPE_CHECKING:
    from collections.abc import Callable

    import pg_server
    from corpus import Corpus
    from search_stores import Answers, Place

    from crowmem import Memory
    from crowmem.statement import Statement

SIZES, FULL_SIZES = (10_000,), (10_000, 100_000, 1_000_000)
LEAST = 1000  # messages: in fewer there are no rare words to look for
BUFFERS = "1GB"  # a million messages' index is 1.9 GB
P95_MS = {  # bars: the 95th of a hundred searches
    ("sqlite", 1_000_000): {"any": 100, "all": 90, "session": 90},
    ("postgres", 1_000_000): {"any": 250, "all": 60, "session": 10},
    ("sqlite", 100_000): {"any": 35},
    ("postgres", 100_000): {"any": 130},
}
RATIO, EXTRA_MS = 1.15, 0.3  # most that crowmem may take: so many times the bare statements, or so much more
MODES = ("any", "all", "session")
SAME_ORDER, OVERLAP = 0.99, 0.95


class Cost(NamedTuple):
    """What a search took: by the clock, and of the processor, the server included, which other work hardly changes."""

    wall_ms: float
    cpu_ms: float


Taken = dict[str, dict[str, list[Cost]]]  # by side and shape


class Bare:
    """The statements of one search, run by the driver alone."""

    def __init__(self, memory: Memory, execute: Callable[[str, Any], object], dialect: str) -> None:
        self.calls: list[tuple[Statement, dict[str, Any]]] = []
        self._inner: Any = memory._driver
        self._execute = execute
        self._dialect = dialect

    def __getattr__(self, name: str) -> Any:
        """What the driver has."""
        return getattr(self._inner, name)

    async def run(self, statement: Statement, params: dict[str, Any]) -> list[Any]:
        """Run a statement and remember it."""
        self.calls.append((statement, params))
        rows: list[Any] = await self._inner.run(statement, params)
        return rows

    def prepared(self) -> Callable[[], None]:
        """A function that runs what was remembered."""
        calls = [(statement.texts[self._dialect], self._values(statement, params)) for statement, params in self.calls]
        self.calls = []

        def run() -> None:
            for text, values in calls:
                self._execute(text, values)

        return run

    def _values(self, statement: Statement, params: dict[str, Any]) -> Any:
        if self._dialect == "postgres":
            return [params[name] for name in statement.params]
        return {name: json.dumps(value) if isinstance(value, list) else value for name, value in params.items()}


def agree(report: Report, count: int, statistics_are: str, one: Answers, two: Answers) -> None:
    """How often both databases give the same ten in the same order."""
    found = [(one[key], two[key]) for key in one if one[key]]
    same = sum([hit for hit, _ in first] == [hit for hit, _ in second] for first, second in found) / len(found)
    overlap = statistics.mean(
        len({hit for hit, _ in first} & {hit for hit, _ in second}) / len(first) for first, second in found
    )
    apart = [
        abs(score - other)
        for first, second in found
        for (hit, score), (same_hit, other) in zip(first, second, strict=False)
        if hit == same_hit
    ]
    counted = statistics_are == "counted"
    report.row(
        f"{count:,} agreement",
        f"frequencies {statistics_are}",
        same_order=same,
        overlap=overlap,
        score_apart=max(apart, default=0.0),
        bar=SAME_ORDER if counted else OVERLAP,
        holds=same >= SAME_ORDER and max(apart, default=0.0) <= 1e-9 if counted else overlap >= OVERLAP,
    )


def measure(report: Report, texts: Corpus, place: Place) -> None:
    """Every mode and shape."""
    bare = Bare(place.memory, place.execute, place.dialect)
    for mode in MODES:
        if not report.wants(f"{place.dialect} {texts.count:,} {mode}"):
            continue
        report.begins(f"{place.dialect} {texts.count:,} {mode}")
        taken: Taken = {}
        for shape, text, limits in queries(texts, mode):
            place.memory.search.messages(text, **limits)  # what this remembers, neither side does again
            place.memory.search._driver = bare  # type: ignore[assignment]  # stands in for it
            place.memory.search.messages(text, **limits)
            place.memory.search._driver = place.memory._driver
            pair: dict[str, Callable[[], object]] = {
                "bare": bare.prepared(),
                OURS: lambda text=text, limits=limits: place.memory.search.messages(text, **limits),
            }
            others: dict[str, Callable[[], object]] = {
                name: lambda ask=ask, text=text, mode=mode: ask(text, mode)
                for name, ask in place.others.items()
                if mode != "session"
            }
            for sides in (pair, others):  # of the pair each follows the other: after a third the caches would be cold
                for name, cost in timed(sides, report.options.rounds, place.server).items():
                    taken.setdefault(name, {}).setdefault(shape, []).append(cost)
        write(report, texts.count, place.dialect, mode, taken)


def timed(sides: dict[str, Callable[[], object]], rounds: int, server: pg_server.Server | None) -> dict[str, Cost]:
    """The median cost of each side's calls, in turns after one that does not count."""
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in sides:
            others_us = server_cpu_us(server)
            begun, worked = time.perf_counter(), time.process_time()
            sides[name]()
            took = Cost((time.perf_counter() - begun) * 1000, (time.process_time() - worked) * 1000)
            if turn:
                costs[name].append(took._replace(cpu_ms=took.cpu_ms + (server_cpu_us(server) - others_us) / 1000))
    return {name: Cost(*map(statistics.median, zip(*found, strict=True))) for name, found in costs.items()}


def write(report: Report, count: int, dialect: str, mode: str, taken: Taken) -> None:
    """One row a shape and side, and one a side over all shapes."""
    bars = P95_MS.get((dialect, count), {})
    for name, shapes in taken.items():
        case = f"{dialect} {count:,} {mode}"
        for shape, costs in shapes.items():
            walls = [cost.wall_ms for cost in costs]
            report.row(f"{case} {shape}", name, p50_ms=statistics.median(walls), worst_ms=max(walls))
        every = [cost for costs in shapes.values() for cost in costs]
        figures: dict[str, Any] = {
            "p50_ms": statistics.median(cost.wall_ms for cost in every),
            "p95_ms": p95([cost.wall_ms for cost in every]),
            "worst_ms": max(cost.wall_ms for cost in every),
            "cpu_p95_ms": p95([cost.cpu_ms for cost in every]),
        }
        if name == OURS:
            floor = [cost for costs in taken["bare"].values() for cost in costs]
            pairs = list(zip(every, floor, strict=True))
            figures["ratio"] = statistics.median(ours.wall_ms / bare.wall_ms for ours, bare in pairs)
            figures["extra_ms"] = statistics.median(ours.wall_ms - bare.wall_ms for ours, bare in pairs)
            figures["cpu_extra_ms"] = statistics.median(ours.cpu_ms - bare.cpu_ms for ours, bare in pairs)
            within = figures["ratio"] <= RATIO or figures["extra_ms"] <= EXTRA_MS
            if mode in bars:
                figures["bar"] = bars[mode]
            figures["holds"] = within and figures["p95_ms"] <= bars.get(mode, float("inf"))
        report.row(case, name, **figures)


def p95(values: list[float]) -> float:
    """The 95th of a hundred."""
    return sorted(values)[len(values) * 95 // 100]


def compare(report: Report, texts: Corpus) -> None:
    """Both databases with one corpus, as far as any of their cases is asked for."""
    answers: dict[str, Answers] = {"sampled": {}}
    parts = (*MODES, "fill", "optimize", "index", "one by one")
    asked = {
        dialect
        for dialect in ("sqlite", "postgres")
        if report.wants_dialect(dialect)
        and (
            report.wants(f"{texts.count:,} agreement")
            or any(report.wants(f"{dialect} {texts.count:,} {part}") for part in parts)
        )
    }
    if "sqlite" in asked:
        with folder_on_disk() as folder, sqlite_place(report, texts, folder) as place:
            answers["sqlite"] = ask(texts, place.memory)
            measure(report, texts, place)
    if "postgres" in asked:
        with (
            postgres(report, shared_buffers=BUFFERS) as server,
            postgres_place(report, texts, server, answers["sampled"]) as place,
        ):
            answers["counted"] = ask(texts, place.memory)
            measure(report, texts, place)
    if "sqlite" in answers and "counted" in answers:
        for kind in ("sampled", "counted"):
            agree(report, texts.count, kind, answers["sqlite"], answers[kind])


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) >= LEAST for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text} are no numbers of messages: give {LEAST:,} or more, such as 10000,100000"
        )
    return tuple(int(part) for part in parts)


def main() -> None:
    """Measure every size on both databases."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=3)
    parser.add_argument("--sizes", type=_sizes, help="other numbers of messages, such as 10000,100000")
    options: argparse.Namespace = parser.parse_args()
    sizes: tuple[int, ...] = options.sizes or (FULL_SIZES if options.full else SIZES)
    report = Report("search", options, limit=LIMIT, queries=len(SHAPES) * EACH)
    for count in sizes:
        report.begins(f"the corpus of {count:,} messages")
        compare(report, corpus(count))
    report.table()


if __name__ == "__main__":
    main()

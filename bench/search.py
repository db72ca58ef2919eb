"""Search on corpora of 10,000 to a million messages: times by form of the query, insert rates, index sizes.

A side beside crowmem is the bare driver: the very statements a search runs, without planning, decoding and snippets.
Others are what people write without crowmem: FTS5's ``order by rank``, PostgreSQL's ``ts_rank``, and crow-cli where it
is installed.

Run: python bench/search.py [--dialect sqlite] [--sizes 10000,100000] [--full] [--out results.jsonl]
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import statistics
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from corpus import corpus
from floors import PostgresFloor
from harness import OURS, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory
from crowmem.statement import in_schema

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pg_server
    from corpus import Corpus, Line

    from crowmem.statement import Statement

SIZES, FULL_SIZES = (10_000,), (10_000, 100_000, 1_000_000)
CROW_CLI_SIZE = 10_000  # it indexes a message a commit
SHARES = {"r": 0.0001, "m": 0.01, "c": 0.2}  # rare, middling, common: share of the messages with the word
SHAPES = ("r", "m", "c", "rm", "rc", "mc", "cc", "mmmm", "cccc")
EACH = 6  # queries of a shape
LIMIT = 10
BATCH = 100
ONE_BY_ONE = 4000
BUFFERS = "1GB"  # a million messages' index is 1.9 GB
P95_MS = {  # bars: the 95th of a hundred searches
    ("sqlite", 1_000_000): {"any": 100, "all": 90, "session": 90},
    ("postgres", 1_000_000): {"any": 250, "all": 60, "session": 10},
    ("sqlite", 100_000): {"any": 35},
    ("postgres", 100_000): {"any": 130},
}
RATIO, EXTRA_MS = 1.15, 0.3  # most that crowmem may take: so many times the bare statements, or so much more
SAME_ORDER, OVERLAP = 0.99, 0.95
STALL_MS = 50
SIZE_BARS = {"sqlite": 0.55, "postgres": 2.1}
SQLITE_RATE = 10_000


Answers = dict[tuple[str, str], list[tuple[int, float]]]  # by mode and query


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


@dataclass
class Place:
    """A filled store and ways to reach it beside crowmem."""

    dialect: str
    memory: Memory
    execute: Callable[[str, Any], Any]
    others: dict[str, Callable[[str, str], object]] = field(default_factory=dict)


def queries(texts: Corpus, mode: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Shape, text and further arguments of each query, the same for every dialect."""
    rng = random.Random(11)
    words = {kind: texts.near(share, 40) for kind, share in SHARES.items()}
    sessions = sorted({line.session for line in itertools.islice(texts.lines(), 20_000)})
    for shape in SHAPES:
        for _ in range(EACH):
            text = " ".join(rng.choice(words[kind]) for kind in shape)
            session = {"session_id": rng.choice(sessions)} if mode == "session" else {}
            yield shape, text, {"match": "all" if mode == "all" else "any", "limit": LIMIT, **session}


def ask(texts: Corpus, memory: Memory) -> Answers:
    """The ids and scores that every global query finds."""
    return {
        (mode, text): [(hit.id, hit.score) for hit in memory.search.messages(text, **limits)]
        for mode in ("any", "all")
        for _, text, limits in queries(texts, mode)
    }


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
    for mode in ("any", "all", "session"):
        taken: dict[str, dict[str, list[float]]] = {}
        for shape, text, limits in queries(texts, mode):
            place.memory.search._driver = bare  # type: ignore[assignment]  # stands in for it
            place.memory.search.messages(text, **limits)
            place.memory.search._driver = place.memory._driver
            sides: dict[str, Callable[[], object]] = {
                "bare": bare.prepared(),
                OURS: lambda text=text, limits=limits: place.memory.search.messages(text, **limits),
            }
            if mode != "session":
                for name, ask in place.others.items():
                    sides[name] = lambda ask=ask, text=text, mode=mode: ask(text, mode)
            for name, milliseconds in timed(sides, report.options.rounds).items():
                taken.setdefault(name, {}).setdefault(shape, []).append(milliseconds)
        write(report, texts.count, place.dialect, mode, taken)


def timed(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each side, in milliseconds, their calls in turns after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in list(sides) if turn % 2 else list(reversed(sides)):
            begun = time.perf_counter()
            sides[name]()
            if turn:
                times[name].append((time.perf_counter() - begun) * 1000)
    return {name: statistics.median(found) for name, found in times.items()}


def write(report: Report, count: int, dialect: str, mode: str, taken: dict[str, dict[str, list[float]]]) -> None:
    """One row a shape and side, and one a side over all shapes."""
    bars = P95_MS.get((dialect, count), {})
    for name, shapes in taken.items():
        case = f"{dialect} {count:,} {mode}"
        for shape, times in shapes.items():
            report.row(f"{case} {shape}", name, p50_ms=statistics.median(times), worst_ms=max(times))
        every = sorted(time for times in shapes.values() for time in times)
        figures: dict[str, Any] = {
            "p50_ms": statistics.median(every),
            "p95_ms": every[len(every) * 95 // 100],
            "worst_ms": every[-1],
        }
        if name == OURS:
            floor = [time for times in taken["bare"].values() for time in times]
            ours = [time for times in shapes.values() for time in times]
            figures["ratio"] = statistics.median(a / b for a, b in zip(ours, floor, strict=True))
            figures["extra_ms"] = statistics.median(a - b for a, b in zip(ours, floor, strict=True))
            within = figures["ratio"] <= RATIO or figures["extra_ms"] <= EXTRA_MS
            if mode in bars:
                figures["bar"] = bars[mode]
            figures["holds"] = within and figures["p95_ms"] <= bars.get(mode, float("inf"))
        report.row(case, name, **figures)


# --- filling ---


def batches(texts: Corpus) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The messages by hundreds of one session, and what is left of each session in the end."""
    waiting: dict[str, list[Line]] = {}
    for line in texts.lines():
        one = waiting.setdefault(line.session, [])
        one.append(line)
        if len(one) == BATCH:
            yield line.session, [{"role": line.role, "content": line.text} for line in waiting.pop(line.session)]
    for session, rest in waiting.items():
        yield session, [{"role": line.role, "content": line.text} for line in rest]


def fill(report: Report, texts: Corpus, dialect: str, memory: Memory) -> None:
    """Store the corpus in hundreds, and tell the rate and the worst stall."""
    stalls: list[float] = []
    begun = time.perf_counter()
    for session, messages in batches(texts):
        before = time.perf_counter()
        memory.messages.add_many(f"{session}-1-1", messages)
        stalls.append((time.perf_counter() - before) / len(messages) * 1000)
    rate = texts.count / (time.perf_counter() - begun)
    held = {"bar": SQLITE_RATE, "holds": rate >= SQLITE_RATE} if dialect == "sqlite" else {}
    report.row(f"{dialect} {texts.count:,} fill", OURS, messages_s=rate, worst_ms=max(stalls), **held)


def optimize(report: Report, texts: Corpus, dialect: str, memory: Memory) -> None:
    """Merge or count."""
    before = time.perf_counter()
    memory.search.optimize()
    report.row(f"{dialect} {texts.count:,} optimize", OURS, seconds=time.perf_counter() - before)


def size(report: Report, texts: Corpus, dialect: str, taken: int) -> None:
    """The size of the index beside that of the texts."""
    share, bar = taken / texts.text_bytes, SIZE_BARS[dialect]
    held = (
        {"bar": bar, "holds": share <= bar} if texts.count == FULL_SIZES[-1] else {}
    )  # small ones have larger overheads
    report.row(f"{dialect} {texts.count:,} index", OURS, bytes=taken, of_text=share, **held)


@contextlib.contextmanager
def sqlite_place(report: Report, texts: Corpus, folder: Path) -> Iterator[Place]:
    """A SQLite store with the corpus."""
    import apsw

    path = folder / "crow.db"
    with Memory.open(path) as memory:
        fill(report, texts, "sqlite", memory)
        optimize(report, texts, "sqlite", memory)
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.execute("pragma mmap_size = 0")

        def execute(text: str, values: Any) -> list[Any]:
            return connection.execute(text, values).fetchall()

        [[taken]] = execute(
            "select (select sum(length(block)) from message_index_data)"
            " + (select sum(length(sz) + 12) from message_index_docsize)",
            (),
        )
        size(report, texts, "sqlite", taken)

        def rank(text: str, mode: str) -> list[Any]:
            match = (" AND " if mode == "all" else " OR ").join(f'"{word}"' for word in text.split())
            return execute(
                "select rowid from message_index where message_index match ? order by rank limit ?", (match, LIMIT)
            )

        yield Place(
            "sqlite",
            memory,
            execute,
            {"order by rank": rank, **crow_cli(texts, f"sqlite:///{folder}/crow-cli.db")},
        )
        connection.close()


@contextlib.contextmanager
def postgres_place(report: Report, texts: Corpus, server: pg_server.Server, sampled: Answers) -> Iterator[Place]:
    """A PostgreSQL store with the corpus; its answers before its words are counted go into ``sampled``."""
    import psycopg

    url = loopback(server, "search")
    with Memory.open(url) as memory, psycopg.connect(url, autocommit=True) as connection:
        fill(report, texts, "postgres", memory)
        connection.execute("reindex index message_index_words")
        connection.execute("vacuum analyze message_index")
        sampled.update(ask(texts, memory))
        optimize(report, texts, "postgres", memory)
        row = connection.execute(
            "select pg_table_size('message_index') + pg_relation_size('message_index_words')"
        ).fetchone()
        size(report, texts, "postgres", row[0] if row else 0)
        cursor = psycopg.RawCursor(connection)

        def execute(text: str, values: Any) -> list[Any]:
            return cursor.execute(in_schema(text, "public").encode(), values, prepare=True).fetchall()

        def rank(text: str, mode: str) -> list[Any]:
            query = (" & " if mode == "all" else " | ").join(f"'{word}'" for word in text.split())
            return connection.execute(
                "select message_id from message_index where tsv @@ %s::tsquery"
                " order by ts_rank(tsv, %s::tsquery) desc limit %s",
                (query, query, LIMIT),
            ).fetchall()

        yield Place("postgres", memory, execute, {"ts_rank": rank})
        one_by_one(report, texts, memory, loopback(server, "floor"))


def one_by_one(report: Report, texts: Corpus, memory: Memory, url: str) -> None:
    """Messages one by one, in turns with the same work as others do it: to_tsvector, and a plain GIN index."""
    floor = PostgresFloor(url)
    lines = list(itertools.islice(texts.lines(), ONE_BY_ONE))
    sides: dict[str, Callable[[Line], object]] = {
        "to_tsvector": lambda line: floor.add({"role": line.role, "content": line.text}, line.session, line.session),
        OURS: lambda line: memory.messages.add(f"{line.session}-1-1", {"role": line.role, "content": line.text}),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number, line in enumerate(lines):
        for name in list(sides) if number % 2 else list(reversed(sides)):
            begun = time.perf_counter()
            sides[name](line)
            times[name].append((time.perf_counter() - begun) * 1000)
    rates = {name: 1000 * len(found) / sum(found) for name, found in times.items()}
    for name, found in times.items():
        held = {"bar": STALL_MS, "holds": max(found) <= STALL_MS} if name == OURS else {}
        ratio = rates[name] / rates["to_tsvector"]
        report.row(
            f"postgres {texts.count:,} one by one",
            name,
            messages_s=rates[name],
            ratio=ratio,
            worst_ms=max(found),
            **held,
        )
    floor.close()


def crow_cli(texts: Corpus, url: str) -> dict[str, Callable[[str, str], object]]:
    """crow-cli's search over the same messages, where it is installed and the corpus is small."""
    if find_spec("crow_cli") is None or texts.count > CROW_CLI_SIZE:
        return {}
    import crow_cli.memory as crow

    engine = crow.get_engine(url)
    crow.create_database(url)
    for line in texts.lines():
        crow.add_message(engine, f"{line.session}-1-1", {"role": line.role, "content": line.text})
    return {"crow-cli": lambda text, _mode: crow.search_messages(engine, text, limit=LIMIT)}


def main() -> None:
    """Measure every size on both databases."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=3)
    parser.add_argument("--sizes", help="numbers of messages, such as 10000,100000")
    options: argparse.Namespace = parser.parse_args()
    sizes: tuple[int, ...] = FULL_SIZES if options.full else SIZES
    if options.sizes:
        sizes = tuple(int(part) for part in options.sizes.split(","))
    report = Report("search", options, limit=LIMIT, queries=len(SHAPES) * EACH)
    for count in sizes:
        texts = corpus(count)
        answers: dict[str, Answers] = {"sampled": {}}
        if report.wants_dialect("sqlite"):
            with folder_on_disk() as folder, sqlite_place(report, texts, folder) as place:
                answers["sqlite"] = ask(texts, place.memory)
                measure(report, texts, place)
        if report.wants_dialect("postgres"):
            with (
                postgres(shared_buffers=BUFFERS) as server,
                postgres_place(report, texts, server, answers["sampled"]) as place,
            ):
                answers["counted"] = ask(texts, place.memory)
                measure(report, texts, place)
        if "sqlite" in answers and "counted" in answers:
            for kind in ("sampled", "counted"):
                agree(report, count, kind, answers["sqlite"], answers[kind])
    report.table()


if __name__ == "__main__":
    main()

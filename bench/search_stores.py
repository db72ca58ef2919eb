"""The stores that bench/search.py asks: filled from the corpus, with the figures of filling them."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import re
import statistics
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from harness import OURS, Report, loopback

from crowmem import Memory, message_rows
from crowmem.content import search_text
from crowmem.drivers.sqlite_rank import install
from crowmem.indexing import Entry, entry
from crowmem.scope import scope_words
from crowmem.statement import in_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pg_server
    from corpus import Corpus

    from crowmem.statement import Statement

CROW_CLI_SIZE = 10_000  # it indexes a message a commit
SHARES = {"r": 0.0001, "m": 0.01, "c": 0.2}  # rare, middling, common: share of the messages with the word
SHAPES = ("r", "m", "c", "rm", "rc", "mc", "cc", "mmmm", "cccc")
EACH = 6  # queries of a shape
LIMIT = 10
BATCH = 100
ONE_BY_ONE = 4000
PARSED = "to_tsvector, new"
SCOPE = 200  # characters for the scope words before a text
LARGE = 1_000_000  # messages from which on the sizes of indexes are held to their bars: small ones have more overhead
STALL_MS = 50
SIZE_BARS = {"sqlite": 0.55, "postgres": 2.1}
SQLITE_RATE = 10_000

Answers = dict[tuple[str, str], list[tuple[int, float]]]  # by mode and query


@dataclass
class Place:
    """A filled store and ways to reach it beside crowmem."""

    dialect: str
    memory: Memory
    execute: Callable[[str, Any], Any]
    others: dict[str, Callable[[str, str], object]] = field(default_factory=dict)
    server: pg_server.Server | None = None


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


def batches(texts: Corpus) -> Iterator[list[tuple[str, list[dict[str, str]]]]]:
    """The messages by hundreds, each of one session; in the end hundreds of what is left of several sessions."""
    waiting: dict[str, list[dict[str, str]]] = {}
    for line in texts.lines():
        one = waiting.setdefault(line.session, [])
        one.append({"role": line.role, "content": line.text})
        if len(one) == BATCH:
            yield [(line.session, waiting.pop(line.session))]
    rests, room = [], BATCH
    for session, rest in waiting.items():
        while rest:
            rests.append((session, rest[:room]))
            rest, room = rest[room:], room - len(rests[-1][1])
            if not room:
                yield rests
                rests, room = [], BATCH
    if rests:
        yield rests


def store(memory: Memory, batch: list[tuple[str, list[dict[str, str]]]]) -> None:
    """A hundred messages in one commit."""
    if len(batch) == 1:
        [(session, messages)] = batch
        memory.messages.add_many(f"{session}-1-1", messages)
        return
    with memory.transaction() as tx:
        for session, messages in batch:
            tx.messages.add_many(f"{session}-1-1", messages)


def fill(report: Report, texts: Corpus, dialect: str, memory: Memory) -> None:
    """Store the corpus in hundreds, and tell the rate and the worst stall."""
    report.begins(f"{dialect} {texts.count:,} fill")
    stalls: list[float] = []
    taken_s, worked_s = 0.0, 0.0  # reading the corpus left out
    for batch in batches(texts):
        before, worked = time.perf_counter(), time.process_time()
        store(memory, batch)
        took = time.perf_counter() - before
        taken_s, worked_s = taken_s + took, worked_s + time.process_time() - worked
        stalls.append(took / sum(len(messages) for _, messages in batch) * 1000)
    rate = texts.count / taken_s
    held: dict[str, Any] = {}
    if dialect == "sqlite":  # what a processor of its own would do: the disk and other work left out
        held = {"cpu_messages_s": texts.count / worked_s, "bar": SQLITE_RATE, "holds": rate >= SQLITE_RATE}
    report.row(f"{dialect} {texts.count:,} fill", OURS, messages_s=rate, worst_ms=max(stalls), **held)


def optimize(report: Report, texts: Corpus, dialect: str, memory: Memory) -> None:
    """Merge or count."""
    before = time.perf_counter()
    memory.search.optimize()
    report.row(f"{dialect} {texts.count:,} optimize", OURS, seconds=time.perf_counter() - before)


def size(report: Report, texts: Corpus, dialect: str, taken: int) -> None:
    """The size of the index beside that of the texts."""
    share, bar = taken / texts.text_bytes, SIZE_BARS[dialect]
    held = {"bar": bar, "holds": share <= bar} if texts.count >= LARGE else {}
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
        install(connection)

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

        yield Place("postgres", memory, execute, {"ts_rank": rank}, server)
        one_by_one(report, texts, memory, server)


def one_by_one(report: Report, texts: Corpus, memory: Memory, server: pg_server.Server) -> None:
    """Messages one by one into the large store, which must not stall, and into two new ones.

    One of these has its words from PostgreSQL's own parser, all else being equal: its rate is the bar.
    """
    report.begins(f"postgres {texts.count:,} one by one")
    usual: tuple[Statement, Any] = (message_rows.PUT, entry)
    with Memory.open(loopback(server, "parsed")) as parsed, Memory.open(loopback(server, "new")) as new:
        sides = {
            PARSED: (parsed, (with_to_tsvector(message_rows.PUT), unread)),
            f"{OURS}, new": (new, usual),
            OURS: (memory, usual),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number, line in enumerate(itertools.islice(texts.lines(), ONE_BY_ONE)):
            for name in list(sides) if number % 2 else list(reversed(sides)):
                store, (put, making) = sides[name]
                vars(message_rows).update(PUT=put, entry=making)
                begun = time.perf_counter()
                store.messages.add(f"{line.session}-1-1", {"role": line.role, "content": line.text})
                times[name].append((time.perf_counter() - begun) * 1000)
    vars(message_rows).update(PUT=usual[0], entry=usual[1])
    for name, found in times.items():
        figures = {
            "messages_s": 1000 * len(found) / sum(found),
            "p50_ms": statistics.median(found),
            "worst_ms": max(found),
            "of_parsed": statistics.median(found) / statistics.median(times[PARSED]),
        }
        held: dict[str, Any] = {}
        if name == OURS:
            held = {"bar": STALL_MS, "holds": figures["worst_ms"] <= STALL_MS}
        elif name != PARSED:
            held = {"bar": 1.0, "holds": figures["of_parsed"] <= 1.0}
        report.row(f"postgres {texts.count:,} one by one", name, **figures, **held)


def with_to_tsvector(put: Statement) -> Statement:
    """The statement that adds a message, the server's parser making the words."""
    text = put.texts["postgres"]
    parsed = re.sub(
        r"cast\((cast\(\S+ as text\)) \|\| (.*?) as tsvector\)",
        rf"to_tsvector('simple', substr(\1, {SCOPE + 1})) || cast(substr(\1, 1, {SCOPE}) || \2 as tsvector)",
        text,
    )
    if parsed == text:
        raise ValueError("message_put makes its tsvector in another way now")
    other = copy.copy(put)
    other.texts = {**put.texts, "postgres": parsed}
    return other


def unread(message: dict[str, Any], *, stem: bool, dialect: str, **about: Any) -> Entry:
    """One index row of a message: its scope words, and its text as it is."""
    words = " ".join(f"'{word}'" for word in scope_words(**about))
    return Entry([words.ljust(SCOPE) + search_text(message)], "", 1, [1])


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

"""Copying a whole store to the other database and back, beside a bare read-and-COPY loop.

The source is a file with a made-up history, every hundredth message with an image of its own. The floor copies the same
rows with one bare connection on each side and no checks, no resuming, no counts of sessions, all in one transaction:

- file → PostgreSQL: pages of the message table read with apsw, written with COPY; the text of each message with COPY
  into a temporary table, from which the server makes the index of words by ``to_tsvector('simple', …)`` with GIN;
- PostgreSQL → file: ``COPY … TO STDOUT`` read with psycopg, rows and texts written with apsw's executemany, the words
  by FTS5;
- the image files copied one by one, each kept on the disk before the next.

A second floor leaves the words out: what is left is rows and images alone. It shows what the index costs; no bar.
The comparison of both stores, which `crowmem copy` makes afterwards unless told otherwise, is a row of its own.

It takes both databases and one run for all its cases: whoever asks for one of them, or for one database, gets all.

Run: python bench/copy_.py [--full]
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from corpus import corpus
from floors import PostgresFloor, SqliteFloor, search_text
from harness import FLOOR, OURS, Report, arguments, folder_on_disk, loopback, postgres
from pictures import picture, png

from crowmem import Memory
from crowmem.copying import contents, copy_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pg_server

PAGE_ROWS = 500
IMAGE_EVERY, IMAGE_BYTES = 100, 20_000
BAR = 0.5  # at least half the floor's speed
FORTH, BACK = "file to postgres, {:,}", "postgres to file, {:,}"
ROWS_ONLY = "rows without words"
COLUMNS = "id, agent_id, fork_idx, created_at, data, role, prompt_tokens, completion_tokens, total_tokens"
SELECT = f"select {COLUMNS} from messages where id > ? order by id limit {PAGE_ROWS}"
COPY_IN = f"copy messages ({COLUMNS}) from stdin"
COPY_OUT = f"copy (select {COLUMNS} from messages order by id) to stdout"
INSERT = f"insert into messages ({COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
WORDS = "insert into words select id, to_tsvector('simple', text) from texts"


def fill(memory: Memory, count: int) -> None:
    """A history of so many messages in as many sessions as the corpus has."""
    lines = enumerate(corpus(count).lines())
    made: set[str] = set()
    while page := list(islice(lines, PAGE_ROWS)):
        for session, found in groupby(sorted(page, key=lambda one: one[1].session), key=lambda one: one[1].session):
            agent = f"{session}-1-1"
            if agent not in made:
                memory.agents.create(agent, session)
                made.add(agent)
            memory.messages.add_many(
                agent,
                [
                    picture(png(number, IMAGE_BYTES), line.text)
                    if number % IMAGE_EVERY == 0
                    else {"role": line.role, "content": line.text}
                    for number, line in found
                ],
            )


def copy_images(source: Path, target: Path) -> None:
    """Every file of an image folder, on the disk one by one."""
    for path in source.rglob("*"):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                file.write(path.read_bytes())
                file.flush()
                os.fsync(file.fileno())


def text_of(data: str) -> str:
    """What the index gets of a message's JSON."""
    return search_text(json.loads(data))


def to_postgres(path: Path, url: str, words: bool) -> None:
    """The floor from a file to PostgreSQL."""
    import apsw

    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    floor = PostgresFloor(url)
    connection, after = floor.connection, 0
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("create temporary table texts (id bigint, text text) on commit drop")
        while rows := reader.execute(SELECT, (after,)).fetchall():
            with cursor.copy(COPY_IN) as copy:
                for row in rows:
                    copy.write_row(row)
            if words:
                cursor.execute("truncate texts")
                with cursor.copy("copy texts from stdin") as copy:
                    for row in rows:
                        copy.write_row((row[0], text_of(row[4])))
                cursor.execute(WORDS)
            after = rows[-1][0]
    floor.close()
    reader.close()


def to_file(url: str, path: Path, words: bool) -> None:
    """The floor from PostgreSQL to a file."""
    import psycopg

    floor = SqliteFloor(path, "full")
    connection = floor.connection
    with psycopg.connect(url) as reader, reader.cursor() as cursor, cursor.copy(COPY_OUT) as copy:
        connection.execute("begin immediate")
        copy.set_types(["int8", "text", "int4", "text", "text", "text", "int4", "int4", "int4"])
        rows: Iterator[tuple[Any, ...]] = copy.rows()
        while page := list(islice(rows, PAGE_ROWS)):
            connection.executemany(INSERT, page).fetchall()
            if words:
                texts = ((row[0], text_of(row[4])) for row in page)
                connection.executemany("insert into words (rowid, text) values (?, ?)", texts).fetchall()
        connection.execute("commit")
    floor.close()


class Direction:
    """One way of a copy."""

    def __init__(self, report: Report, name: str, count: int) -> None:
        self.report, self.name, self.count = report, name, count
        self.took: dict[str, list[float]] = {}

    def run(self, side: str, work: Callable[..., object], *arguments: Any) -> None:
        """Time one run of one side."""
        self.report.begins(f"{self.name}, {side}")
        started, cpu = time.perf_counter(), time.process_time()
        work(*arguments)
        took = time.perf_counter() - started
        self.took.setdefault(side, []).append(took)
        self.report.row(
            self.name,
            side,
            took_s=round(took, 2),
            cpu_s=round(time.process_time() - cpu, 2),
            messages_s=round(self.count / took),
        )

    def judge(self) -> None:
        """Our speed as a share of the floors', the median of the rounds."""
        for floor in (FLOOR, ROWS_ONLY):
            share = statistics.median(a / b for a, b in zip(self.took[floor], self.took[OURS], strict=True))
            held = {"bar": BAR, "holds": share >= BAR} if floor == FLOOR else {}
            self.report.row(f"{self.name}, speed beside {floor}", OURS, share=round(share, 3), **held)


def bare(source: Path, url: str, target: Path, words: bool, forth: Direction, back: Direction) -> None:
    """Both directions of a floor; its targets are removed again, but for the database.

    Args:
        source: a folder with ``one.db`` and its images.
        url: an empty database.
        target: a folder to make.
        words: whether the words are indexed.
        forth: what the way to PostgreSQL is recorded in.
        back: the way from there.
    """
    side = FLOOR if words else ROWS_ONLY
    target.mkdir()

    def there() -> None:
        copy_images(source / "images", target / "forth")
        to_postgres(source / "one.db", url, words)

    def home() -> None:
        copy_images(target / "forth", target / "back")
        to_file(url, target / "back.db", words)

    forth.run(side, there)
    back.run(side, home)
    shutil.rmtree(target)


def ours(report: Report, source: Path, url: str, target: Path, forth: Direction, back: Direction) -> None:
    """Both directions by crowmem, and whether all three stores and image folders are equal in the end."""
    with (
        Memory.open(source / "one.db", images=source / "images", read_only=True) as one,
        Memory.open(url, images=target / "forth") as two,
        Memory.open(target / "back.db", images=target / "back") as three,
    ):
        forth.run(OURS, partial(copy_store, one, two, verify=False))
        back.run(OURS, partial(copy_store, two, three, verify=False))
        found = []
        for store in (one, two, three):
            started = time.perf_counter()
            found.append(contents(store))
            case = f"hashing every table of {store._driver.dialect}, {forth.count:,}"
            report.row(case, OURS, took_s=round(time.perf_counter() - started, 2))
        kept = [{path.name for path in folder.rglob("*.png")} for folder in _image_folders(source, target)]
        equal = found[0] == found[1] == found[2] and kept[0] == kept[1] == kept[2]
        report.row(f"equal hashes, {len(kept[0]):,} images", OURS, holds=equal)
    shutil.rmtree(target)


def _image_folders(source: Path, target: Path) -> tuple[Path, Path, Path]:
    return source / "images", target / "forth", target / "back"


def there_and_back(report: Report, count: int, rounds: int, folder: Path, server: pg_server.Server) -> None:
    """From a file to PostgreSQL and from there to a file, as often as asked for."""
    with Memory.open(folder / "one.db", images=folder / "images") as memory:
        fill(memory, count)
    forth = Direction(report, FORTH.format(count), count)
    back = Direction(report, BACK.format(count), count)
    for turn in range(rounds):
        for words in (True, False):
            name = f"bare{turn}{words:d}"
            bare(folder, loopback(server, name), folder / name, words, forth, back)
        name = f"ours{turn}"
        (folder / name).mkdir()
        ours(report, folder, loopback(server, name), folder / name, forth, back)
    forth.judge()
    back.judge()


def main() -> None:
    """Both directions, as often as the command line asks for."""
    options = arguments(__doc__ or "", rounds=1).parse_args()
    count = 200_000 if options.full else 20_000
    report = Report("copy", options, durability="full", image_every=IMAGE_EVERY, image_bytes=IMAGE_BYTES)
    if any(report.wants(name.format(count)) for name in (FORTH, BACK)):
        with folder_on_disk() as folder, postgres(report) as server:
            there_and_back(report, count, options.rounds, folder, server)
    report.table()


if __name__ == "__main__":
    main()

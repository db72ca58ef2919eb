"""Writers of images beside collectors without any grace time: no committed message ever lacks its image."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from pictures import picture, png
from psycopg.sql import SQL, Identifier, Literal

from crowmem import Memory, image_keeping
from crowmem.blobs import FileStore, HybridStore, MinioStore
from crowmem.blobs.keys import image_key
from crowmem.errors import Busy
from crowmem.operation import drive
from crowmem.statement import statement

WRITERS = 4
ROUNDS = 40
PICTURES = [png(number) for number in range(3)]


def race(opened, writers: int = WRITERS, rounds: int = ROUNDS) -> int:
    """Writers add, load and delete the same few images while two collectors remove whatever they may."""
    stop = threading.Event()
    failures: list[BaseException] = []
    removed = [0, 0]

    def write(number: int) -> None:
        try:
            with opened() as memory:
                for turn in range(rounds):
                    session = f"w{number}t{turn}"
                    agent = f"{session}-1-1"
                    memory.agents.create(agent, session)
                    message = picture(PICTURES[turn % len(PICTURES)])
                    if turn % 3 == 2:
                        with memory.transaction() as tx:
                            tx.messages.add(agent, message)
                            tx.messages.add(agent, {"role": "user", "content": "in between"})
                    elif turn % 3 == 1:
                        memory.messages.add_many(agent, [message, message])
                    else:
                        memory.messages.add(agent, message)
                    assert memory.messages.load(agent, hydrate=True)[0] == message, f"lost in {session}"
                    if turn % 2:
                        memory.sessions.delete(session)
        except BaseException as error:
            failures.append(error)

    def collect(number: int) -> None:
        try:
            with opened() as memory:
                while not stop.is_set():
                    removed[number] += memory.images.collect(grace_s=0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    collectors = [threading.Thread(target=collect, args=(number,)) for number in range(2)]
    for thread in (*threads, *collectors):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    for thread in collectors:
        thread.join()
    if failures:
        raise failures[0]
    with opened() as memory:
        assert memory.check(deep=True) == []
    return sum(removed)


@pytest.fixture
def late(monkeypatch):
    """Every writer is slow between putting its images and writing its message, so that collections fall in between."""
    put_all = image_keeping.put_all

    def put_slowly(images, blobs):
        put_all(images, blobs)
        time.sleep(0.003)

    monkeypatch.setattr(image_keeping, "put_all", put_slowly)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


def test_writers_beside_collectors_of_a_folder(url, tmp_path, late):
    race(lambda: Memory.open(url, images=tmp_path / "images", busy_timeout_s=60))


def test_writers_beside_collectors_of_a_bucket(url, tmp_path, late, s3_base):
    bucket = f"b-{secrets.token_hex(8)}"

    def opened() -> Memory:
        images = MinioStore(s3_base.endpoint, bucket, s3_base.access_key, s3_base.secret_key)
        return Memory.open(url, images=images, busy_timeout_s=60)

    def patient() -> Memory:
        return _Patient(opened())

    race(patient, writers=3, rounds=20)


class _Patient:
    """A Memory whose transactions are tried again when an image is being removed just then, as the error asks."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __enter__(self):
        self._memory.__enter__()
        return self

    def __exit__(self, *error):
        self._memory.__exit__(*error)

    def __getattr__(self, name):
        return getattr(self._memory, name)

    def transaction(self):
        return _Again(self._memory)


class _Again:
    """A block cannot be run twice: its first write is made alone until it goes through, then again in the block."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __enter__(self):
        self._block = self._memory.transaction()
        self._tx = self._block.__enter__()
        return self

    def __exit__(self, *error):
        return self._block.__exit__(*error)

    @property
    def messages(self):
        return self

    def add(self, agent, message):
        while True:
            try:
                return self._tx.messages.add(agent, message)
            except Busy as error:
                self._block.__exit__(type(error), error, None)
                self.__enter__()


PROCESS = """
import sys
sys.path[:0] = {paths!r}
from pictures import picture, png
from crowmem import Memory
with Memory.open({url!r}, images={folder!r}, busy_timeout_s=60) as memory:
    for turn in range({rounds}):
        agent = "p{number}t" + str(turn) + "-1-1"
        message = picture(png(turn % 3))
        memory.messages.add(agent, message)
        assert memory.messages.load(agent, hydrate=True) == [message]
"""


def test_processes_beside_a_collector(url, tmp_path):
    folder = tmp_path / "images"
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    with Memory.open(url, images=folder, busy_timeout_s=60) as memory:
        codes = [
            PROCESS.format(paths=paths, url=url, folder=str(folder), rounds=ROUNDS, number=number)
            for number in range(3)
        ]
        started = [subprocess.Popen([sys.executable, "-c", code]) for code in codes]
        while any(process.poll() is None for process in started):
            memory.images.collect(grace_s=0)
        assert [process.returncode for process in started] == [0, 0, 0]
        assert memory.check(deep=True) == []


def test_a_bucket_that_is_cut_in_the_middle_of_500_adds(url, tmp_path, s3_base):
    """Every message is stored, `sync` uploads the rest, and another machine sees all of it."""
    from tcp_proxy import Wire

    bucket = f"b-{secrets.token_hex(8)}"
    with Wire(s3_base.address) as wire:

        def images(folder: str) -> HybridStore:
            s3 = MinioStore(f"127.0.0.1:{wire.port}", bucket, s3_base.access_key, s3_base.secret_key)
            return HybridStore(s3, FileStore(tmp_path / folder))

        messages = [picture(png(number, 2000), f"number {number}") for number in range(500)]
        with Memory.open(url, images=images("here")) as memory:
            for number, message in enumerate(messages):
                if number == 250:
                    wire.cut("reset")
                memory.messages.add("s-1-1", message)
            waiting = memory.status().images["spool"]["blobs"]
            assert waiting >= 250
            wire.cut("pass")
            assert memory.images.sync() == waiting
            assert memory.status().images["spool"]["blobs"] == 0
        with Memory.open(url, images=images("another machine")) as memory:
            assert memory.messages.load("s-1-1", hydrate=True) == messages
            assert memory.check(deep=True) == []
        assert images("another machine").keys() == sorted({image_key(png(number, 2000)) for number in range(500)})


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["image_gone", "image_condemn"])
def test_collectors_lock_rows_in_one_order(pg_fresh, name):
    """Two that lock the same rows in two orders end in a deadlock."""
    keys = sorted(image_key(png(number)) for number in range(20))
    with Memory.open(pg_fresh) as memory, psycopg.connect(pg_fresh) as first, psycopg.connect(pg_fresh) as eye:
        for key in reversed(keys):  # so the rows lie in the other order
            eye.execute("insert into images_condemned (key, until, gone_at) values (%s, now(), now())", [key])
        eye.commit()
        first.execute("select from images_condemned where key = %s for update", [keys[0]])
        more = {"hold_us": 1} if name == "image_condemn" else {}
        sent = memory._driver.run(statement(name), {"keys": keys[::-1], **more})
        thread = threading.Thread(target=drive, args=(sent,))
        thread.start()
        while not eye.execute("select count(*) from pg_locks where not granted").fetchone()[0]:
            eye.rollback()
        [[free]] = eye.execute(
            "select count(*) from (select from images_condemned for update skip locked) x"
        ).fetchall()
        eye.rollback()
        first.rollback()
        thread.join()
    assert free == len(keys) - 1


@pytest.mark.postgres
@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_writer_that_waited_for_a_collector_sees_what_it_condemned(pg_fresh, tmp_path, level):
    """Also where the database begins transactions with a snapshot that is older than the wait."""
    folder, message, key = tmp_path / "images", picture(PICTURES[0]), image_key(PICTURES[0])
    with psycopg.connect(pg_fresh, autocommit=True) as eye:
        default = SQL("alter database {} set default_transaction_isolation = {}")
        eye.execute(default.format(Identifier(eye.info.dbname), Literal(level)))
        with Memory.open(pg_fresh, images=folder) as writer, Memory.open(pg_fresh, images=folder) as collector:
            writer.images.put(PICTURES[0])
            thread = threading.Thread(target=writer.messages.add, args=("s-1-1", message))

            async def condemn() -> None:
                async with collector._driver.transaction() as tx:
                    assert [tuple(row) for row in await tx.run(statement("image_hold_all"), {})] == [(1,)]
                    await tx.run(statement("image_condemn"), {"keys": [key], "hold_us": 60_000_000})
                    thread.start()
                    while not eye.execute("select from pg_locks where not granted").fetchall():
                        time.sleep(0.001)

            drive(condemn())
            assert FileStore(folder).discard(key, time.time() + 60)
            drive(collector._driver.run(statement("image_gone"), {"keys": [key]}))
            thread.join()
            assert writer.messages.load("s-1-1", hydrate=True) == [message]

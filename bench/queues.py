"""The queues that bench/claim.py compares: how each is filled, and how one claimer takes from it.

``floor`` is the least that a claim can be on each database: one bare statement on a table made for it, which finds the
oldest ready row of one mailbox, marks it and returns it. The peers get the same items, the same durability and one
mailbox, or one each where their form wants that; a peer that is not installed is left out with a line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

for folder in (Path(__file__).resolve().parent, Path(__file__).resolve().parents[1]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

CONTENT = "x" * 200
WARM = 6  # calls before the clock runs: PostgreSQL plans a statement anew five times


@dataclass(frozen=True)
class Place:
    """Where a queue lives and how much it must survive.

    Attributes:
        url: of a PostgreSQL database, or a SQLite file.
        durability: "full" or "normal" (commits are not flushed one by one).
    """

    url: str
    durability: str

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file."""
        return not self.url.startswith("postgresql:")


def connect(place: Place, **more: Any) -> Any:
    """A bare connection."""
    if place.is_sqlite:
        import apsw

        connection = apsw.Connection(place.url)
        connection.set_busy_timeout(60_000)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", place.durability)
        return connection
    import psycopg

    commit = "on" if place.durability == "full" else "off"
    return psycopg.connect(place.url, autocommit=True, options=f"-c synchronous_commit={commit}", **more)


# --- the floor ---

PG_FLOOR = """
drop table if exists floor;
create table floor (id bigint primary key, pos bigint not null, box text not null, content text not null,
    done boolean not null default false);
create index floor_ready on floor (box, pos) where not done;
insert into floor select n, n, 'box' || ((n - 1) % {boxes}), repeat('x', 200) from generate_series(1, {items}) n;
vacuum analyze floor
"""
PG_FLOOR_CLAIM = """
update floor set done = true where id = any(array(
    select id from floor where box = {box} and not done order by pos limit {batch} for update skip locked))
returning id, content
"""
PG_FLOOR_ALL = "update floor set done = true where box = $1 and not done returning id, content"
LITE_FLOOR = """
create table floor (id integer primary key, box text not null, content text not null, done integer not null default 0);
create index floor_ready on floor (box, id) where done = 0;
insert into floor (box, content) with recursive g (n) as (select 0 union all select n + 1 from g where n < {items} - 1)
    select 'box' || (n % {boxes}), printf('%.200c', 'x') from g
"""
LITE_ONE = "= (select id from floor where box = ? and done = 0 order by id limit 1)"
LITE_MANY = "in (select id from floor where box = ? and done = 0 order by id limit {batch})"


def fill_floor(place: Place, items: int, boxes: int) -> None:
    """Make the bare table."""
    with connect(place) as connection:
        for sql in (LITE_FLOOR if place.is_sqlite else PG_FLOOR).format(items=items, boxes=boxes).split(";"):
            connection.execute(sql)


def open_floor(place: Place, number: int) -> Callable[[int], list[int]]:
    """One bare connection in a loop: apsw, or libpq."""
    box = f"box{number}"
    connection = connect(place)
    if place.is_sqlite:
        head, tail = "update floor set done = 1 where id ", " returning id, content"
        one = head + LITE_ONE + tail

        def claim_lite(batch: int) -> list[int]:
            sql = one if batch == 1 else head + LITE_MANY.format(batch=batch) + tail
            return [row[0] for row in connection.execute(sql, (box,)).fetchall()]

        return claim_lite
    wire = connection.pgconn
    prepared: dict[int, bytes] = {}

    def claim(batch: int) -> list[int]:
        name = prepared.get(batch)
        if name is None:
            name = prepared[batch] = f"claim{batch}".encode()
            wire.prepare(name, PG_FLOOR_CLAIM.format(box="$1", batch=batch).encode())
        result = wire.exec_prepared(name, [box.encode()])
        return [int(result.get_value(row, 0)) for row in range(result.ntuples)]

    return claim


def open_floor_private(place: Place, number: int) -> Callable[[int], list[int]]:
    """libpq in a loop over whole mailboxes, without the locks that a limit needs."""
    import itertools

    wire = connect(place).pgconn
    wire.prepare(b"all", PG_FLOOR_ALL.encode())
    for _ in range(WARM):
        wire.exec_prepared(b"all", [b"nobody"])
    boxes = itertools.count(number, int(os.environ["CLAIMERS"]))

    def claim(_batch: int) -> list[int]:
        result = wire.exec_prepared(b"all", [f"box{next(boxes)}".encode()])
        return [int(result.get_value(row, 0)) for row in range(result.ntuples)]

    return claim


def left_floor(place: Place) -> int:
    """Rows nobody took."""
    with connect(place) as connection:
        ready = "done = 0" if place.is_sqlite else "not done"
        return int(next(iter(connection.execute(f"select count(*) from floor where {ready}")))[0])


# --- crowmem ---


def fill_ours(place: Place, items: int, boxes: int) -> None:
    """Send the items."""
    from crowmem import Memory

    with Memory.open(place.url, durability="normal") as memory:
        if not place.is_sqlite:
            with connect(place) as connection:
                connection.execute("truncate task_deliveries restart identity")
        for number in range(boxes):
            count = items // boxes
            for start in range(0, count, 20_000):
                memory.mailbox.send_many(f"box{number}", [CONTENT] * min(20_000, count - start))
    if not place.is_sqlite:
        with connect(place) as connection:
            connection.execute("vacuum analyze task_deliveries")


def open_ours(place: Place, number: int) -> Callable[[int], list[int]]:
    """`mailbox.claim` of a store of its own."""
    from crowmem import Memory

    memory = Memory.open(place.url, durability=place.durability, busy_timeout_s=60)
    box = f"box{number}"
    for _ in range(WARM):
        memory.mailbox.claim("nobody", limit=1)

    def claim(batch: int) -> list[int]:
        return [row.id for row in memory.mailbox.claim(box, limit=batch)]

    return claim


def open_leases(place: Place, number: int) -> Callable[[int], list[int]]:
    """`mailbox.lease`, each time acknowledging what was leased before."""
    from crowmem import Memory

    memory = Memory.open(place.url, durability=place.durability, busy_timeout_s=60)
    box, held = f"box{number}", []
    memory.mailbox.send_many(f"warm{number}", [CONTENT] * WARM)
    for _ in range(WARM + 1):
        held = memory.mailbox.lease(f"warm{number}", "warm", ack=held)

    def cycle(batch: int) -> list[int]:
        nonlocal held
        held = memory.mailbox.lease(box, f"worker{number}", limit=batch, ack=held)
        return [row.id for row in held]

    return cycle


def left_ours(place: Place) -> int:
    """Rows nobody took."""
    with connect(place) as connection:
        sql = "select count(*) from task_deliveries where status in ('pending', 'waiting')"
        return int(next(iter(connection.execute(sql)))[0])


# --- peers ---


def fill_crow_cli(place: Place, items: int, boxes: int) -> None:
    """The rows as crow-cli keeps them."""
    import crow_cli.memory as crow
    from sqlalchemy import text

    engine = crow.get_engine(_crow_url(place))
    if not place.is_sqlite:
        with connect(place) as connection:
            connection.execute("drop schema if exists public cascade")
            connection.execute("create schema public")
    crow.create_database(_crow_url(place))
    sql = text(
        "insert into task_deliveries (session_id, task_id, priority, content, status, created_at)"
        " values (:box, 't', 'low', :content, 'pending', '2026-01-01T00:00:00+00:00')"
    )
    with engine.begin() as connection:
        for start in range(0, items, 10_000):
            numbers = range(start, min(items, start + 10_000))
            connection.execute(sql, [{"box": f"box{number % boxes}", "content": CONTENT} for number in numbers])
    engine.dispose()


def _crow_url(place: Place) -> str:
    if place.is_sqlite:
        return f"sqlite:///{place.url}"
    commit = "on" if place.durability == "full" else "off"
    mark = "&" if "?" in place.url else "?"
    url = place.url.replace("postgresql:", "postgresql+psycopg:", 1)
    return f"{url}{mark}options=-c%20synchronous_commit%3D{commit}"


def open_crow_cli(place: Place, number: int) -> Callable[[int], list[int]]:
    """Its claim takes a whole mailbox, so each call has one of its own that holds the batch."""
    import itertools

    import crow_cli.memory as crow

    engine = crow.get_engine(_crow_url(place))
    for _ in range(WARM):
        crow.claim_deliveries(engine, "nobody")
    boxes = itertools.count(number, int(os.environ["CLAIMERS"]))

    def claim(_batch: int) -> list[int]:
        return [row["id"] for row in crow.claim_deliveries(engine, f"box{next(boxes)}")]

    return claim


def open_private(place: Place, number: int) -> Callable[[int], list[int]]:
    """crowmem in the same form: whole mailboxes of one batch each."""
    import itertools

    from crowmem import Memory

    memory = Memory.open(place.url, durability=place.durability, busy_timeout_s=60)
    for _ in range(WARM):
        memory.mailbox.claim("nobody", limit=1)
    boxes = itertools.count(number, int(os.environ["CLAIMERS"]))

    def claim(batch: int) -> list[int]:
        return [row.id for row in memory.mailbox.claim(f"box{next(boxes)}", limit=batch)]

    return claim


def fill_private(place: Place, items: int, boxes: int) -> None:
    """The rows of many small mailboxes, as another program writes them."""
    from crowmem import Memory

    with Memory.open(place.url, durability="normal"), connect(place) as connection:
        if not place.is_sqlite:
            connection.execute("truncate task_deliveries restart identity")
        numbers = (
            f"with recursive g (n) as (select 0 union all select n + 1 from g where n < {items} - 1) select n from g"
            if place.is_sqlite
            else f"select n from generate_series(0, {items} - 1) n"
        )
        connection.execute(
            "insert into task_deliveries (session_id, task_id, priority, content, status, created_at)"
            f" select 'box' || (n % {boxes}), 't', 'low', '{CONTENT}', 'pending', '2026-01-01T00:00:00+00:00'"
            f" from ({numbers}) s"
        )
        if not place.is_sqlite:
            connection.execute("vacuum analyze task_deliveries")


def fill_procrastinate(place: Place, items: int, boxes: int) -> None:
    """Jobs of one queue."""
    import procrastinate

    with connect(place) as connection:
        connection.execute("drop schema if exists public cascade")
        connection.execute("create schema public")
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=place.url))
    with app.open():
        app.schema_manager.apply_schema()
    with connect(place) as connection:
        connection.execute(
            "insert into procrastinate_jobs (queue_name, task_name, args)"
            f" select 'box0', 'task', jsonb_build_object('content', repeat('x', 200)) from generate_series(1, {items})"
        )
        connection.execute("vacuum analyze")


def open_procrastinate(place: Place, number: int) -> Callable[[int], list[int]]:
    """Its worker's own fetch."""
    import procrastinate
    from procrastinate import manager

    commit = "on" if place.durability == "full" else "off"
    connector = procrastinate.PsycopgConnector(
        conninfo=place.url, kwargs={"options": f"-c synchronous_commit={commit}"}, min_size=1, max_size=1
    )
    runner = asyncio.Runner()
    runner.run(connector.open_async())
    jobs = manager.JobManager(connector)
    worker = runner.run(jobs.register_worker())

    def claim(_batch: int) -> list[int]:
        job = runner.run(jobs.fetch_job(["box0"], worker))
        return [job.id] if job else []

    return claim


def fill_pgqueuer(place: Place, items: int, boxes: int) -> None:
    """Jobs of one entry point."""
    from pgqueuer.db import SyncPsycopgDriver
    from pgqueuer.queries import SyncQueries

    with connect(place) as connection:
        connection.execute("drop schema if exists public cascade")
        connection.execute("create schema public")

    async def install() -> None:
        import psycopg
        from pgqueuer.db import PsycopgDriver
        from pgqueuer.queries import Queries

        async with await psycopg.AsyncConnection.connect(place.url, autocommit=True) as other:
            await Queries(PsycopgDriver(other)).install()

    asyncio.run(install())
    with connect(place) as connection:
        queries = SyncQueries(SyncPsycopgDriver(connection))
        for start in range(0, items, 5000):
            count = min(5000, items - start)
            queries.enqueue(["box0"] * count, [CONTENT.encode()] * count, [0] * count)
        connection.execute("vacuum analyze")


def open_pgqueuer(place: Place, number: int) -> Callable[[int], list[int]]:
    """Its queue manager's own dequeue."""
    import uuid
    from datetime import timedelta

    import psycopg
    from pgqueuer.db import PsycopgDriver
    from pgqueuer.ports.repository import EntrypointExecutionParameter
    from pgqueuer.queries import Queries

    commit = "on" if place.durability == "full" else "off"
    runner = asyncio.Runner()
    connection = runner.run(
        psycopg.AsyncConnection.connect(place.url, autocommit=True, options=f"-c synchronous_commit={commit}")
    )
    queries = Queries(PsycopgDriver(connection))
    entry = {"box0": EntrypointExecutionParameter(concurrency_limit=0)}
    manager = uuid.uuid4()

    def claim(batch: int) -> list[int]:
        jobs = runner.run(queries.dequeue(batch, entry, manager, None, timedelta(seconds=30)))
        return [int(job.id) for job in jobs]

    return claim


def fill_pgmq(place: Place, items: int, boxes: int) -> None:
    """Messages of one queue; the extension's SQL comes with its client."""
    from pgmq.install import get_embedded_install_sql, install_pgmq_sql

    with connect(place) as connection:
        connection.execute("drop schema if exists pgmq cascade")
    install_pgmq_sql(get_embedded_install_sql(), dsn=place.url)
    with connect(place) as connection:
        connection.execute("select pgmq.create('box0')")
        for start in range(0, items, 20_000):
            connection.execute(
                "select count(*) from pgmq.send_batch('box0', array("
                "select jsonb_build_object('content', repeat('x', 200))"
                f" from generate_series(1, {min(20_000, items - start)})))"
            )
        connection.execute("vacuum analyze pgmq.q_box0")


def open_pgmq(place: Place, number: int) -> Callable[[int], list[int]]:
    """Its client's own pop, which deletes."""
    from pgmq import PGMQueue
    from psycopg_pool import ConnectionPool

    commit = "on" if place.durability == "full" else "off"
    options = {"autocommit": True, "options": f"-c synchronous_commit={commit}"}
    pool = ConnectionPool(place.url, kwargs=options, min_size=1, max_size=1, open=True)
    queue = PGMQueue(pool=pool, init_extension=False)

    def claim(batch: int) -> list[int]:
        found: Any = queue.pop("box0", qty=batch)
        return [one.msg_id for one in (found if isinstance(found, list) else [found] if found else [])]

    return claim


def fill_huey(place: Place, items: int, boxes: int) -> None:
    """Messages of one queue."""
    with connect(place) as connection:
        _huey(place)
        connection.execute(
            "insert into task (queue, data, priority) with recursive g (n) as"
            f" (select 1 union all select n + 1 from g where n < {items}) select 'box0', cast(n as blob), 0 from g"
        )


def _huey(place: Place) -> Any:
    from huey.storage import SqliteStorage

    return SqliteStorage("box0", filename=place.url, fsync=place.durability == "full", timeout=60)


def open_huey(place: Place, number: int) -> Callable[[int], list[int]]:
    """Its storage's own dequeue, which deletes."""
    storage = _huey(place)

    def claim(_batch: int) -> list[int]:
        found = storage.dequeue()
        return [] if found is None else [int(bytes(found))]

    return claim


def fill_litequeue(place: Place, items: int, boxes: int) -> None:
    """Messages of one queue."""
    queue = _litequeue(place)
    queue.conn.execute("begin")
    for number in range(items):
        queue.put(str(number))
    queue.conn.execute("commit")


def _litequeue(place: Place) -> Any:
    from litequeue import LiteQueue

    queue = LiteQueue(place.url, timeout=60)
    queue.conn.execute(f"pragma synchronous = {place.durability}")
    return queue


def open_litequeue(place: Place, number: int) -> Callable[[int], list[int]]:
    """Its own pop."""
    queue = _litequeue(place)

    def claim(_batch: int) -> list[int]:
        found = queue.pop()
        return [] if found is None else [int(found.data)]

    return claim


@dataclass(frozen=True)
class Side:
    """One queue."""

    fill: Callable[[Place, int, int], None]
    open: Callable[[Place, int], Callable[[int], list[int]]]
    left: Callable[[Place], int] | None = None
    batches: bool = True
    needs: str = ""


SIDES = {
    "floor": Side(fill_floor, open_floor, left_floor),
    "floor private": Side(fill_floor, open_floor_private, left_floor),
    "crowmem": Side(fill_ours, open_ours, left_ours),
    "crowmem lease": Side(fill_ours, open_leases, left_ours),
    "crowmem private": Side(fill_private, open_private, left_ours),
    "crow-cli": Side(fill_crow_cli, open_crow_cli, left_ours, needs="crow_cli"),
    "procrastinate": Side(fill_procrastinate, open_procrastinate, batches=False, needs="procrastinate"),
    "pgqueuer": Side(fill_pgqueuer, open_pgqueuer, needs="pgqueuer"),
    "pgmq": Side(fill_pgmq, open_pgmq, needs="pgmq"),
    "huey": Side(fill_huey, open_huey, batches=False, needs="huey"),
    "litequeue": Side(fill_litequeue, open_litequeue, batches=False, needs="litequeue"),
}

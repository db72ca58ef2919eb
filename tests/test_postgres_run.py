"""Statements that are prepared as they are used for the first time: one round trip, and whole again after an error."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from tcp_proxy import Wire
from test_leases import until

from crowmem import AsyncMemory, Memory
from crowmem.drivers import postgres_run
from crowmem.drivers.postgres_run import run_prepared
from crowmem.drivers.postgres_settings import POOL, Settings, configure
from crowmem.errors import OutcomeUnknown, Unavailable
from crowmem.statement import Statement

DIVIDE = Statement("divide", texts={"postgres": "select 10 / cast($1 as int)"}, params=("by",))
BROKEN = Statement("broken", texts={"postgres": "select nothing from nowhere"}, params=())
ADD = Statement("add", texts={"postgres": "insert into late values ($1) returning x"}, params=("x",))
ENDED = Statement("ended", texts={"postgres": "select pg_terminate_backend(pg_backend_pid()), pg_sleep(9)"}, params=())
ECHO = Statement("echo", texts={"postgres": "select cast($1 as text)"}, params=("text",))


@pytest.fixture
def connection(pg_fresh):
    with psycopg.connect(pg_fresh, autocommit=True, prepare_threshold=0) as connected:
        configure(connected)
        yield connected


@pytest.fixture
def settings(pg_fresh):
    return Settings(pg_fresh, "a store")


def test_an_error_of_the_statement_leaves_it_prepared(connection, settings):
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.wait(run_prepared(connection, settings, DIVIDE, [0]))
        assert len(connection.crowmem_prepared.names) == 1
        assert connection.pgconn.pipeline_status == pq.PipelineStatus.OFF
    assert connection.wait(run_prepared(connection, settings, DIVIDE, [5])) == [(2,)]
    assert connection.execute("select 1").fetchone() == (1,)


def test_what_cannot_be_prepared_is_told_and_tried_again(connection, settings):
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.wait(run_prepared(connection, settings, BROKEN, []))
        assert connection.crowmem_prepared.names == {}
        assert connection.pgconn.pipeline_status == pq.PipelineStatus.OFF
    connection.execute("create table nowhere (nothing int)")
    assert connection.wait(run_prepared(connection, settings, BROKEN, [])) == []


def test_what_was_forgotten_is_prepared_again(connection, settings):
    assert connection.wait(run_prepared(connection, settings, DIVIDE, [5])) == [(2,)]
    connection.execute("deallocate all")
    assert connection.wait(run_prepared(connection, settings, DIVIDE, [2])) == [(5,)]


def test_a_commit_that_fails_is_told_and_leaves_the_connection_whole(pg_fresh, settings):
    with psycopg.connect(pg_fresh, autocommit=True) as connection:
        connection.execute("create table late (x int primary key deferrable initially deferred)")
        connection.execute("insert into late values (1)")
        for _ in ("first use", "second use"):
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.wait(run_prepared(connection, settings, ADD, [1]))
            assert connection.pgconn.pipeline_status == pq.PipelineStatus.OFF
        assert connection.wait(run_prepared(connection, settings, ADD, [2])) == [(2,)]
        assert connection.execute("select count(*) from late").fetchone() == (2,)


def test_a_server_that_ends_the_connection_has_said_why(connection, settings):
    with pytest.raises(psycopg.errors.AdminShutdown):
        connection.wait(run_prepared(connection, settings, ENDED, []))


@pytest.mark.parametrize("stopped", range(4))
def test_a_connection_stopped_half_way_is_not_used_again(pg_fresh, monkeypatch, stopped):
    """Ctrl-C may come between any two steps; a connection left in a pipeline would never answer again."""
    steps = iter(range(100))

    def watched(step):
        def run(wire):
            result = yield from step(wire)
            if next(steps) == stopped:
                raise KeyboardInterrupt
            return result

        return run

    with Memory.open(pg_fresh, pool_size=1) as memory:
        memory.tapes.length("t")
        with monkeypatch.context() as patch:
            patch.setattr(postgres_run.generators, "send", watched(postgres_run.generators.send))
            patch.setattr(postgres_run.generators, "fetch_many", watched(postgres_run.generators.fetch_many))
            with pytest.raises(KeyboardInterrupt):
                memory.tapes.append("t", [{"kind": "event"}])
        with memory.transaction() as tx:
            assert tx.tapes.length("t") in (0, 1)


def test_past_the_limit_a_statement_is_prepared_for_one_use(connection, settings, monkeypatch):
    monkeypatch.setattr(postgres_run, "MOST", 0)
    for by in (5, 2):
        assert connection.wait(run_prepared(connection, settings, DIVIDE, [by])) == [(10 // by,)]
    assert connection.crowmem_prepared.names == {}


def test_a_large_value_travels_with_the_first_use(connection, settings):
    text = "x" * 20_000_000
    assert connection.wait(run_prepared(connection, settings, ECHO, [text])) == [(text,)]


@pytest.fixture
def wired(pg_fresh: str, pg_base: Any):
    Memory.open(pg_fresh).close()
    with Wire(pg_base.address) as wire:
        yield wire, pg_base.url(conninfo_to_dict(pg_fresh)["dbname"], host=wire.host, port=wire.port)


def test_the_first_use_is_one_round_trip(wired):
    wire, url = wired
    with Memory.open(url, pool_size=1) as memory:
        memory.tapes.length("t")  # connects
        for _ in range(2):
            before = wire.traffic
            memory.tapes.append("t", [{"kind": "event"}])
            assert (wire.traffic - before).round_trips == 1


def test_the_first_use_is_one_round_trip_under_a_loop(wired):
    wire, url = wired

    async def send():
        async with await AsyncMemory.open(url, pool_size=1) as memory:
            await memory.tapes.length("t")
            before = wire.traffic
            await memory.tapes.append("t", [{"kind": "event"}])
            return wire.traffic - before

    assert asyncio.run(send()).round_trips == 1


def test_a_wire_cut_at_the_first_use_is_told_and_the_store_goes_on(wired, pg_fresh, monkeypatch):
    wire, url = wired
    monkeypatch.setitem(POOL, "timeout", 1.0)
    with Memory.open(url, pool_size=1) as memory, Memory.open(pg_fresh) as other:
        memory.tapes.length("t")
        wire.cut("lose")
        with pytest.raises(OutcomeUnknown, match="tape_append"):
            memory.tapes.append("t", [{"kind": "event"}])
        wire.heal()
        until(lambda: other.tapes.length("t") == 1)  # it was on its way as a whole
        until(lambda: lengthened(memory) == 2)


def lengthened(memory):
    try:
        return memory.tapes.append("t", [{"kind": "event"}])
    except Unavailable:  # the pool needs a moment to notice
        return None

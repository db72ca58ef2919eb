"""Leases: one owner at a time by the database's clock, and an old owner that can do nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tcp_proxy import Wire
from test_fork import in_child

from crowmem import AsyncMemory, Memory
from crowmem.drivers.background import elapsed_s
from crowmem.errors import InvalidValue, LeaseLost, LockTimeout, Unavailable, Unsupported
from crowmem.records import Lease

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backends import Backend

HOUR_S = 3600.0


def set_clock(memory: Any, moment_s: float | None) -> None:
    """What a store takes for the database's clock, in seconds since 1970."""
    store = getattr(memory, "_target", memory)._store
    store.now_us = None if moment_s is None else round(moment_s * 1_000_000)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the test's own limit ends what never comes true."""
    while not condition():
        time.sleep(0.01)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "x.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


def test_one_owner_at_a_time(memory: Any) -> None:
    first = memory.leases.acquire("n", "a", lease_s=60)
    assert (first.name, first.owner) == ("n", "a")
    assert timedelta(0) < first.expires_at - datetime.now(UTC) < timedelta(minutes=20)
    assert memory.leases.acquire("n", "b") is None
    assert memory.leases.acquire("n", "a") is None, "not even its own owner"
    assert memory.leases.get("n") == first
    assert memory.leases.list() == [first]
    assert memory.leases.acquire("other", "b").token != first.token


def test_nobody_has_what_was_never_leased(memory: Any) -> None:
    assert memory.leases.get("n") is None
    assert memory.leases.list() == []
    ghost = Lease("n", "a", 1, datetime.now(UTC))
    assert not memory.leases.release(ghost)
    for call in (memory.leases.renew, memory.leases.check):
        with pytest.raises(LeaseLost, match="'n' with token 1 of 'a'"):
            call(ghost)


def test_tokens_grow_across_release_and_expiry(memory: Any) -> None:
    set_clock(memory, 1000.0)
    tokens = [memory.leases.acquire("n", "a", lease_s=10)]
    assert memory.leases.release(tokens[-1])
    assert memory.leases.get("n") is None
    tokens.append(memory.leases.acquire("n", "a", lease_s=10))
    set_clock(memory, 1009.999)
    assert memory.leases.acquire("n", "b") is None
    set_clock(memory, 1010.0)
    assert memory.leases.get("n") is None
    assert memory.leases.list() == []
    tokens.append(memory.leases.acquire("n", "b", lease_s=10))
    assert [lease.token for lease in tokens] == sorted({lease.token for lease in tokens})
    assert tokens[-1].expires_at == datetime(1970, 1, 1, 0, 17, tzinfo=UTC)


def test_a_renewal_counts_from_now_and_keeps_the_token(memory: Any) -> None:
    set_clock(memory, 1000.0)
    lease = memory.leases.acquire("n", "a", lease_s=10)
    set_clock(memory, 1009.0)
    renewed = memory.leases.renew(lease, lease_s=5)
    assert renewed.token == lease.token
    assert (renewed.expires_at - lease.expires_at).total_seconds() == 4
    set_clock(memory, 1013.0)
    assert memory.leases.acquire("n", "b") is None
    assert memory.leases.renew(lease, lease_s=1).token == lease.token, "an earlier record of the same grant will do"
    set_clock(memory, 1014.0)
    with pytest.raises(LeaseLost):
        memory.leases.renew(renewed)


def test_the_old_owner_comes_back(memory: Any) -> None:
    """Known fault 16: each of its actions is refused with a typed error and changes nothing."""
    memory.tapes.append("s", [{"n": 0}])
    set_clock(memory, 1000.0)
    old = memory.leases.acquire("s", "a", lease_s=1)
    set_clock(memory, 1002.0)
    new = memory.leases.acquire("s", "b", lease_s=60)
    assert new.token > old.token
    with pytest.raises(LeaseLost):
        memory.leases.renew(old)
    assert memory.leases.release(old) is False
    for first in ("check", "write"):
        with pytest.raises(LeaseLost), memory.transaction() as tx:
            if first == "check":
                tx.leases.check(old)
            tx.tapes.append("s", [{"n": "late"}])
            tx.leases.check(old)
    assert memory.tapes.load("s") == [{"n": 0}]
    assert memory.leases.get("s") == new
    with memory.transaction() as tx:
        assert tx.leases.check(new) == new
        tx.tapes.append("s", [{"n": 1}])
    assert memory.tapes.load("s") == [{"n": 0}, {"n": 1}]


def test_an_old_owner_under_its_own_name_is_still_old(memory: Any) -> None:
    set_clock(memory, 1000.0)
    old = memory.leases.acquire("s", "a", lease_s=1)
    set_clock(memory, 1002.0)
    new = memory.leases.acquire("s", "a", lease_s=60)
    with pytest.raises(LeaseLost):
        memory.leases.renew(old)
    assert not memory.leases.release(old)
    assert memory.leases.get("s") == new


@pytest.mark.parametrize("ahead_s", [600.0, -600.0, -1e9])
def test_a_clients_clock_changes_nothing(memory: Any, monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    lease = memory.leases.acquire("n", "a", lease_s=30)
    moment = time.time() + ahead_s

    monkeypatch.setattr(time, "time", lambda: moment)
    assert memory.leases.acquire("n", "b", lease_s=30) is None
    assert memory.leases.get("n") == lease
    renewed = memory.leases.renew(lease, lease_s=30)
    assert timedelta(0) <= renewed.expires_at - lease.expires_at < timedelta(minutes=5)
    with memory.transaction() as tx:
        tx.leases.check(lease)
    assert memory.leases.release(renewed)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda leases: leases.acquire("", "a"), "name is empty"),
        (lambda leases: leases.acquire("n", ""), "owner is empty"),
        (lambda leases: leases.acquire("n\0", "a"), "NUL"),
        (lambda leases: leases.acquire("crowmem:lock:s", "a"), "keeps for itself"),
        (lambda leases: leases.acquire("n", "a", lease_s=0), "lease_s"),
        (lambda leases: leases.acquire("n", "a", lease_s=float("nan")), "lease_s"),
        (lambda leases: leases.acquire("n", "a", lease_s=1e9), "lease_s"),
        (lambda leases: leases.acquire("n", "a", lease_s="1"), "lease_s"),
        (lambda leases: leases.renew("n"), "lease is of type str"),
        (lambda leases: leases.release(None), "lease is of type NoneType"),
        (lambda leases: leases.hold("n", "a", timeout_s=-1), "timeout_s"),
        (lambda leases: leases.list(limit=0), "limit"),
    ],
)
def test_bad_values_are_refused(memory: Any, call: Any, told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        call(memory.leases)
    assert memory.leases.list() == []


def test_leases_are_listed_in_pages(memory: Any) -> None:
    for name in ("b", "a", "é", "Z", "gone"):
        lease = memory.leases.acquire(name, "x")
    memory.leases.release(lease)
    assert [lease.name for lease in memory.leases.list()] == ["Z", "a", "b", "é"]
    assert [lease.name for lease in memory.leases.list(limit=2, offset=1)] == ["a", "b"]


def test_many_threads_take_one_lease(backend: Backend) -> None:
    memory = backend.blocking(pool_size=4)
    barrier = threading.Barrier(8)
    taken: list[Lease] = []

    def work(number: int) -> None:
        for round_ in range(10):
            barrier.wait()
            lease = memory.leases.acquire(f"n{round_}", str(number))
            if lease is not None:
                taken.append(lease)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lease.name for lease in taken) == [f"n{round_}" for round_ in range(10)]
    assert len({lease.token for lease in taken}) == 10


def test_a_lease_taken_in_a_transaction_that_fails_is_not_taken(memory: Any) -> None:
    with pytest.raises(ZeroDivisionError), memory.transaction() as tx:
        tx.leases.acquire("n", "a")
        raise ZeroDivisionError
    assert memory.leases.get("n") is None


def test_nobody_is_let_in_while_a_guarded_write_is_open(url: str) -> None:
    """The guard holds until its transaction ends, even when the lease runs out meanwhile."""
    with Memory.open(url) as holder, Memory.open(url) as other:
        lease = holder.leases.acquire("s", "a", lease_s=60)
        assert lease is not None
        set_clock(other, time.time() + HOUR_S)
        order: list[str] = []

        def take() -> None:
            taken = other.leases.acquire("s", "b", lease_s=60)
            order.append("taken")
            assert taken is not None
            assert taken.token > lease.token

        thread = threading.Thread(target=take)
        with holder.transaction() as tx:
            tx.leases.check(lease)
            thread.start()
            if url.startswith("postgresql"):
                until(lambda: waiting(url))
            tx.tapes.append("s", [{"n": 1}])
            order.append("written")
        thread.join()
        assert order == ["written", "taken"]
        with pytest.raises(LeaseLost):
            holder.leases.renew(lease)


def waiting(url: str) -> bool:
    """Whether some statement of a PostgreSQL database waits for a lock."""
    with psycopg.connect(url) as connection:
        [[count]] = connection.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ).fetchall()
        return bool(count)


def test_a_guard_does_not_hinder_renewal_on_postgres(pg_clean: str) -> None:
    with Memory.open(pg_clean) as memory:
        lease = memory.leases.acquire("s", "a", lease_s=60)
        assert lease is not None
        with memory.transaction() as tx:
            tx.leases.check(lease)
            renewed = memory.leases.renew(lease, lease_s=120)
            assert renewed.expires_at > lease.expires_at
            assert tx.leases.check(lease) == renewed


# --- holding in a block ---


def test_a_block_holds_and_gives_back(memory: Any) -> None:
    with memory.leases.hold("n", "a", lease_s=30) as held:
        assert memory.leases.get("n") == held.lease
        assert held.token == held.lease.token
        assert not held.must_stop
        assert 0 < held.remaining_s <= 27
        held.check()
        with memory.transaction() as tx:
            tx.leases.check(held.lease)
        with (
            pytest.raises(LockTimeout, match=r"'n' was not free within 0 s"),
            memory.leases.hold("n", "b", timeout_s=0),
        ):
            pass
        with pytest.raises(LockTimeout, match=r"within 0\.05 s"), memory.leases.hold("n", "b", timeout_s=0.05):
            pass
    assert memory.leases.get("n") is None
    assert held.must_stop
    with pytest.raises(LeaseLost):
        held.check()
    with pytest.raises(LeaseLost):
        _ = held.lease


def test_an_error_in_the_block_passes_and_the_lease_is_given_back(memory: Any) -> None:
    with pytest.raises(ZeroDivisionError), memory.leases.hold("n", "a"):
        raise ZeroDivisionError
    assert memory.leases.get("n") is None


def test_no_holding_inside_a_transaction(memory: Any) -> None:
    with memory.transaction() as tx, pytest.raises(Unsupported, match="outside"):
        tx.leases.hold("n", "a")


def test_a_block_of_the_other_colour_is_refused(url: str) -> None:
    async def wrong(memory: Memory) -> None:
        async with memory.leases.hold("n", "a"):
            pass

    with Memory.open(url) as memory:
        with pytest.raises(TypeError, match="use `with`"):
            asyncio.run(wrong(memory))
        assert memory.leases.get("n") is None

    async def also_wrong() -> None:
        async with AsyncMemory.open(url) as memory:
            with pytest.raises(TypeError, match="use `async with`"), memory.leases.hold("n", "a"):
                pass

    asyncio.run(also_wrong())


def test_who_waits_gets_it_when_it_is_given_back(url: str) -> None:
    with Memory.open(url) as holder, Memory.open(url) as other:
        order: list[str] = []

        def wait() -> None:
            with other.leases.hold("n", "b"):
                order.append("second")

        with holder.leases.hold("n", "a"):
            thread = threading.Thread(target=wait)
            thread.start()
            order.append("first")
        thread.join()
        assert order == ["first", "second"]


def test_a_held_lease_outlives_its_length(url: str) -> None:
    with Memory.open(url) as memory, Memory.open(url) as other, memory.leases.hold("n", "a", lease_s=0.5) as held:
        first = held.lease
        until(lambda: held.lease.expires_at > first.expires_at + timedelta(seconds=1))
        assert held.token == first.token
        assert not held.must_stop
        assert other.leases.acquire("n", "b") is None


def test_a_holder_learns_that_somebody_else_has_it(url: str) -> None:
    with Memory.open(url) as memory, Memory.open(url) as other:
        set_clock(other, time.time() + HOUR_S)
        with (
            pytest.raises(LeaseLost, match="has ended or has a newer owner"),
            memory.leases.hold("n", "a", lease_s=1) as held,
        ):
            taken = other.leases.acquire("n", "b", lease_s=60)
            until(lambda: held.must_stop)
            with pytest.raises(LeaseLost, match="no longer held by 'a'"):
                held.check()
            assert held.remaining_s == 0
        assert other.leases.get("n") == taken, "leaving the block took nothing from the new owner"


def test_an_error_in_the_block_is_not_hidden_by_the_loss(url: str) -> None:
    with Memory.open(url) as memory, Memory.open(url) as other:
        set_clock(other, time.time() + HOUR_S)
        with pytest.raises(ZeroDivisionError), memory.leases.hold("n", "a", lease_s=1) as held:
            other.leases.acquire("n", "b", lease_s=60)
            until(lambda: held.must_stop)
            raise ZeroDivisionError


def test_a_holder_that_is_cut_off_stops_before_the_lease_can_be_lost(pg_clean: str, pg_base: Any) -> None:
    database = str(conninfo_to_dict(pg_clean)["dbname"])
    with ExitStack() as stack:
        wire = stack.enter_context(Wire(pg_base.address))
        memory = stack.enter_context(Memory.open(pg_base.url(database, host=wire.host, port=wire.port)))
        other = stack.enter_context(Memory.open(pg_clean))
        stack.enter_context(pytest.raises((LeaseLost, Unavailable)))
        with memory.leases.hold("n", "a", lease_s=2) as held:
            wire.cut("refuse")
            last = other.leases.get("n")
            assert last is not None
            until(lambda: held.must_stop)
            seen = other.leases.get("n")
            assert seen is not None, "must_stop came when the lease was still held"
            wire.heal()
            until(lambda: other.leases.acquire("n", "b") is not None)


def test_a_short_outage_is_survived(pg_clean: str, pg_base: Any) -> None:
    database = str(conninfo_to_dict(pg_clean)["dbname"])
    with Wire(pg_base.address) as wire:
        url = pg_base.url(database, host=wire.host, port=wire.port)
        with Memory.open(url) as memory, memory.leases.hold("n", "a", lease_s=30) as held:
            held._lease_s = 3.0  # renew soon, while the lease itself has time
            first = memory.leases.renew(held.lease, lease_s=30)
            wire.cut("reset")
            wire.heal()
            until(lambda: held.lease.expires_at != first.expires_at)
            assert not held.must_stop


def test_a_child_does_not_hold_what_its_parent_holds(url: str) -> None:
    with Memory.open(url) as memory:
        hold = memory.leases.hold("n", "a")
        with hold as held:

            def work() -> None:
                assert held.must_stop
                with pytest.raises(LeaseLost):
                    held.check()
                hold.__exit__(None, None, None)

            assert in_child(work) == 0
            assert not held.must_stop
            assert memory.leases.get("n") == held.lease


def test_tasks_hold_one_after_the_other(url: str) -> None:
    async def main() -> None:
        inside = 0
        async with AsyncMemory.open(url) as memory:

            async def work(number: int) -> int:
                nonlocal inside
                async with memory.leases.hold("n", str(number)) as held:
                    inside += 1
                    assert inside == 1
                    await memory.tapes.append("t", [{"n": number}])
                    inside -= 1
                    return held.token

            tokens = await asyncio.gather(*[work(number) for number in range(5)])
            assert len(set(tokens)) == 5
            assert await memory.tapes.length("t") == 5

    asyncio.run(main())


def test_a_task_renews_and_learns_of_the_loss(url: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(url) as memory, AsyncMemory.open(url) as other:
            set_clock(other, time.time() + HOUR_S)
            with pytest.raises(LeaseLost):
                async with memory.leases.hold("n", "a", lease_s=0.5) as held:
                    first = held.lease
                    while held.lease.expires_at < first.expires_at + timedelta(seconds=1):
                        await asyncio.sleep(0.01)
                    assert not held.must_stop
                    assert await other.leases.acquire("n", "b", lease_s=60) is not None
                    while not held.must_stop:
                        await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_task_that_is_cancelled_gives_back_and_stops_waiting(url: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(url) as memory:
            begun = asyncio.Event()

            async def holding(owner: str) -> None:
                async with memory.leases.hold("n", owner):
                    begun.set()
                    await asyncio.Event().wait()

            holder = asyncio.create_task(holding("a"))
            await begun.wait()
            waiter = asyncio.create_task(holding("b"))
            done, _ = await asyncio.wait({waiter}, timeout=0.05)
            assert not done
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            lease = await memory.leases.get("n")
            assert lease is not None
            assert lease.owner == "a"
            holder.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holder
            assert await memory.leases.get("n") is None

    asyncio.run(main())


def test_the_holders_clock_is_set_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    before = elapsed_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert elapsed_s() >= before

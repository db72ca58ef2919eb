"""Leases in random schedules, against a model: one owner, tokens that only grow, and an old owner that can do nothing."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from crowmem import Memory
from crowmem.errors import LeaseLost

if TYPE_CHECKING:
    from pathlib import Path

    from crowmem.records import Lease

SETTINGS = settings(
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
NAMES = ("s", "t")
OWNERS = ("a", "b", "c")
LENGTHS_S = (1, 5, 60)


class Leases(RuleBasedStateMachine):
    """Owners take, renew, release and write under leases; time passes; a client's clock is set to anything."""

    memory: Memory
    client_clock_s: list[float]

    grants = Bundle("grants")

    @initialize()
    def begin(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.pass_time(0)
        for lease in self.memory.leases.list():
            self.memory.leases.release(lease)
        for name in NAMES:
            self.memory.tapes.truncate(name, 0)
        self.held: dict[str, tuple[str, int, datetime]] = {}
        self.written: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
        self.last_token = 0

    def holds(self, lease: Lease) -> bool:
        held = self.held.get(lease.name)
        return held is not None and held[:2] == (lease.owner, lease.token) and held[2] > self.now

    @rule(seconds=st.sampled_from((0.5, 1, 4, 30, 100)))
    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.memory._store.now_us = round(self.now.timestamp() * 1_000_000)

    @rule(ahead_s=st.sampled_from((-1e9, -600.0, 0.0, 600.0, 1e9)))
    def set_client_clock(self, ahead_s: float) -> None:
        self.client_clock_s[0] = 1.7e9 + ahead_s

    @rule(
        target=grants, name=st.sampled_from(NAMES), owner=st.sampled_from(OWNERS), length_s=st.sampled_from(LENGTHS_S)
    )
    def acquire(self, name: str, owner: str, length_s: int) -> Any:
        lease = self.memory.leases.acquire(name, owner, lease_s=length_s)
        held = self.held.get(name)
        if held is not None and held[2] > self.now:
            assert lease is None, f"{owner} was let in beside {held}"
            return multiple()
        assert lease is not None
        assert lease.token > self.last_token
        assert lease.expires_at == self.now + timedelta(seconds=length_s)
        self.last_token = lease.token
        self.held[name] = (owner, lease.token, lease.expires_at)
        return lease

    @rule(lease=grants, length_s=st.sampled_from(LENGTHS_S))
    def renew(self, lease: Lease, length_s: int) -> None:
        if self.holds(lease):
            renewed = self.memory.leases.renew(lease, lease_s=length_s)
            assert renewed.token == lease.token
            self.held[lease.name] = (lease.owner, lease.token, renewed.expires_at)
        else:
            with pytest.raises(LeaseLost):
                self.memory.leases.renew(lease, lease_s=length_s)

    @rule(lease=grants)
    def release(self, lease: Lease) -> None:
        assert self.memory.leases.release(lease) == self.holds(lease)
        if self.holds(lease):
            del self.held[lease.name]

    @rule(lease=grants, check_first=st.booleans())
    def write(self, lease: Lease, check_first: bool) -> None:
        entry = {"by": lease.owner, "token": lease.token}
        try:
            with self.memory.transaction() as tx:
                if check_first:
                    tx.leases.check(lease)
                tx.tapes.append(lease.name, [entry])
                tx.leases.check(lease)
        except LeaseLost:
            assert not self.holds(lease)
        else:
            assert self.holds(lease), "an old owner wrote"
            self.written[lease.name].append(entry)

    @invariant()
    def the_store_agrees(self) -> None:
        for name in NAMES:
            held, found = self.held.get(name), self.memory.leases.get(name)
            if held is None or held[2] <= self.now:
                assert found is None
            else:
                assert found is not None
                assert (found.owner, found.token, found.expires_at) == held

    def teardown(self) -> None:
        for name in NAMES:
            assert self.memory.tapes.load(name) == self.written[name]
            tokens = [entry["token"] for entry in self.written[name]]
            assert tokens == sorted(tokens), "a later write has a smaller token"


@pytest.mark.parametrize("schedules", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_an_old_owner_can_do_nothing(
    dialect: str, schedules: int, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    clock = [1.7e9]
    with Memory.open(url, durability="normal") as memory:
        monkeypatch.setattr(time, "time", lambda: clock[0])
        machine = type("Machine", (Leases,), {"memory": memory, "client_clock_s": clock})
        run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=schedules))

"""Tasks and mail in random schedules, against a small model: every item is handed out as often as it may, and never lost.

Two stores of one database take turns, die (their leases stay behind, nobody acknowledges), and break off transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from mailboxes import let_time_pass

from crowmem import Memory, marks
from crowmem.errors import LeaseLost

if TYPE_CHECKING:
    from pathlib import Path

    from crowmem.records import LeasedDelivery

SETTINGS = settings(
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
BOXES = ("a", "b")
PRIORITIES = ("low", "high")
MOST_ATTEMPTS = 3
boxes, priorities = st.sampled_from(BOXES), st.sampled_from(PRIORITIES)
limits = st.sampled_from((None, 1, 2, 5))


@dataclass
class Item:
    """What the model knows of one delivery; ``left_s`` is the rest of its lease or delay."""

    box: str
    priority: str
    status: str
    attempts: int = 0
    left_s: float = 0.0
    token: int = 0
    key: str | None = None


class Broken(Exception):
    """A transaction that is broken off."""


class Mail(RuleBasedStateMachine):
    """Senders, consumers, time and death."""

    url: str
    stores: list[Memory]

    leases = Bundle("leases")

    @initialize()
    def begin(self) -> None:
        self.items: dict[int, Item] = {}
        self.running: dict[str, bool] = {}
        store = self.stores[0]
        for box in BOXES:
            while held := store.mailbox.lease(box, "cleaner", limit=1000):
                store.mailbox.ack_many(held)
            let_time_pass(store, 1000)
            store.mailbox.claim(box)  # what was leased for the last time is dead only now
            for one in store.mailbox.dead(box):
                store.mailbox.revive(one.id)
            store.mailbox.claim(box)
            store.mailbox.claim(box)
        store.mailbox.purge(finished_before="2999-01-01")
        for task in store.tasks.list(status="running"):
            store.tasks.finish(task.task_id, deliver=False)
        self.task_prefix = f"t{store.tasks.count()}-"

    def store(self, which: int) -> Memory:
        return self.stores[which % 2]

    # --- sending ---

    @rule(which=st.integers(0, 1), box=boxes, priority=priorities, delay_s=st.sampled_from((0, 0, 0, 10)))
    def send(self, which: int, box: str, priority: str, delay_s: int) -> None:
        sent = self.store(which).mailbox.send(box, "x", priority=priority, delay_s=delay_s)
        assert sent.id not in self.items
        self.items[sent.id] = Item(box, priority, "waiting" if delay_s else "pending", left_s=delay_s)

    @rule(which=st.integers(0, 1), box=boxes, count=st.integers(1, 4))
    def send_many(self, which: int, box: str, count: int) -> None:
        for new_id in self.store(which).mailbox.send_many(box, ["y"] * count):
            self.items[new_id] = Item(box, "low", "pending")

    @rule(which=st.integers(0, 1), box=boxes, key=st.sampled_from(("k", "l")))
    def send_keyed(self, which: int, box: str, key: str) -> None:
        sent = self.store(which).mailbox.send(box, "z", key=key)
        holders = [
            one
            for one, item in self.items.items()
            if (item.box, item.key) == (box, key) and item.status not in ("delivered", "dead")
        ]
        if holders:
            assert [sent.id] == holders
        else:
            assert sent.id not in self.items
            self.items[sent.id] = Item(box, "low", "pending", key=key)

    @rule(which=st.integers(0, 1), box=boxes, end=st.sampled_from(("finish", "cancel", "silent")))
    def run_task(self, which: int, box: str, end: str) -> None:
        one, other = self.store(which), self.store(which + 1)
        task = f"{self.task_prefix}{len(self.running)}"
        self.running[task] = True
        one.tasks.launch(task, box, priority="high")
        if end == "cancel":
            assert one.tasks.cancel(task) is True
        else:
            assert one.tasks.finish(task, content="done", deliver=end == "finish") is True
        assert other.tasks.finish(task) is False
        assert other.tasks.cancel(task) is False
        if end == "finish":
            [new] = [mail for mail in other.mailbox.pending(box, limit=10_000) if mail.task_id == task]
            self.items[new.id] = Item(box, "high", "pending")

    # --- taking ---

    def expect_taken(self, box: str, priority: str | None, limit: int | None, found: list[Any], status: str) -> None:
        """Check what was taken against the model, and change the model."""

        def pending() -> list[int]:
            return [
                one
                for one, item in self.items.items()
                if item.box == box and item.status == "pending" and priority in (None, item.priority)
            ]

        if limit is None or len(pending()) < limit:  # running short gives back what is overdue
            for item in self.items.values():
                if item.box == box and item.status in ("leased", "waiting") and item.left_s <= 0:
                    dead = item.status == "leased" and item.attempts >= MOST_ATTEMPTS
                    item.status = "dead" if dead else "pending"
        ready = pending()
        ids = [one.id for one in found]
        assert ids == sorted(ids)
        assert set(ids) <= set(ready), f"{set(ids) - set(ready)} cannot be taken"
        assert len(ids) == min(len(ready), len(ready) if limit is None else limit)
        for one in found:
            item = self.items[one.id]
            item.attempts += 1
            item.status = status
            assert one.attempts == item.attempts

    @rule(which=st.integers(0, 1), box=boxes, priority=st.sampled_from((None, *PRIORITIES)), limit=limits)
    def claim(self, which: int, box: str, priority: str | None, limit: int | None) -> None:
        found = self.store(which).mailbox.claim(box, priority=priority, limit=limit)
        self.expect_taken(box, priority, limit, found, "delivered")

    @rule(
        target=leases,
        which=st.integers(0, 1),
        box=boxes,
        priority=st.sampled_from((None, *PRIORITIES)),
        limit=st.sampled_from((1, 2, 5)),
        lease_s=st.sampled_from((10, 100)),
    )
    def lease(self, which: int, box: str, priority: str | None, limit: int, lease_s: int) -> Any:
        found = self.store(which).mailbox.lease(box, "w", limit=limit, lease_s=lease_s, priority=priority)
        self.expect_taken(box, priority, limit, found, "leased")
        for one in found:
            item = self.items[one.id]
            assert one.token > item.token
            item.token, item.left_s = one.token, lease_s
        return multiple(*found)

    def holds(self, lease: LeasedDelivery) -> bool:
        item = self.items.get(lease.id)
        return item is not None and item.status == "leased" and item.token == lease.token

    @rule(which=st.integers(0, 1), lease=leases)
    def ack(self, which: int, lease: LeasedDelivery) -> None:
        if self.holds(lease):
            self.store(which).mailbox.ack(lease)
            self.items[lease.id].status = "delivered"
        else:
            with pytest.raises(LeaseLost):
                self.store(which).mailbox.ack(lease)

    @rule(which=st.integers(0, 1), held=st.lists(leases, max_size=3))
    def ack_many(self, which: int, held: list[LeasedDelivery]) -> None:
        good = {one.id for one in held if self.holds(one)}
        if all(self.holds(one) for one in held):
            assert self.store(which).mailbox.ack_many(held) == sorted(good)
        else:
            with pytest.raises(LeaseLost):
                self.store(which).mailbox.ack_many(held)
        for one in good:
            self.items[one].status = "delivered"

    @rule(which=st.integers(0, 1), lease=leases, delay_s=st.sampled_from((0, 10)))
    def release(self, which: int, lease: LeasedDelivery, delay_s: int) -> None:
        if not self.holds(lease):
            with pytest.raises(LeaseLost):
                self.store(which).mailbox.release(lease, delay_s=delay_s)
            return
        back = self.store(which).mailbox.release(lease, delay_s=delay_s)
        item = self.items[lease.id]
        item.status = "dead" if item.attempts >= MOST_ATTEMPTS else "waiting" if delay_s else "pending"
        item.left_s = delay_s
        assert back.status == item.status

    @rule(which=st.integers(0, 1), lease=leases, lease_s=st.sampled_from((10, 100)))
    def renew(self, which: int, lease: LeasedDelivery, lease_s: int) -> None:
        if self.holds(lease):
            assert self.store(which).mailbox.renew(lease, lease_s).token == lease.token
            self.items[lease.id].left_s = lease_s
        else:
            with pytest.raises(LeaseLost):
                self.store(which).mailbox.renew(lease, lease_s)

    @rule(which=st.integers(0, 1), place=st.integers(0, 30))
    def revive_or_stamp(self, which: int, place: int) -> None:
        if not self.items:
            return
        chosen = sorted(self.items)[place % len(self.items)]
        item = self.items[chosen]
        if place % 2:
            assert self.store(which).mailbox.revive(chosen) == (item.status == "dead")
            if item.status == "dead":
                item.status, item.attempts = "pending", 0
        else:
            assert self.store(which).mailbox.mark_delivered([chosen]) == (item.status != "delivered")
            item.status = "delivered"

    # --- what goes wrong ---

    @rule(seconds=st.sampled_from((11, 101)))
    def pass_time(self, seconds: int) -> None:
        let_time_pass(self.stores[0], seconds)
        for item in self.items.values():
            item.left_s -= seconds

    @rule(which=st.integers(0, 1))
    def die(self, which: int) -> None:
        """A process is gone, with everything it knew."""
        self.stores[which].close()
        self.stores[which] = Memory.open(self.url, durability="normal", max_attempts=MOST_ATTEMPTS)

    @rule(which=st.integers(0, 1), box=boxes, lease=leases, step=st.integers(0, 4))
    def die_in_a_transaction(self, which: int, box: str, lease: LeasedDelivery, step: int) -> None:
        """A client is gone between two statements: nothing of its transaction happened."""
        with pytest.raises(Broken), self.store(which).transaction() as tx:
            for number, call in enumerate(
                (
                    lambda: tx.mailbox.send(box, "never"),
                    lambda: tx.mailbox.claim(box, limit=2),
                    lambda: tx.mailbox.lease(box, "w", limit=2),
                    lambda: tx.mailbox.ack(lease) if self.holds(lease) else None,
                    lambda: tx.mailbox.claim(box),
                )
            ):
                if number > step:
                    break
                try:
                    call()
                except LeaseLost:  # the transaction itself took or gave back what the lease was for
                    break
            raise Broken

    # --- always ---

    @invariant()
    def the_counts_agree(self) -> None:
        for box in BOXES:
            mine: dict[str, int] = dict.fromkeys(("pending", "waiting", "leased", "delivered", "dead"), 0)
            for item in self.items.values():
                if item.box == box:
                    mine[item.status] += 1
            assert self.stores[0].mailbox.count(box) == mine

    @invariant()
    def pending_is_listed_in_order(self) -> None:
        for box in BOXES:
            mine = [one for one, item in sorted(self.items.items()) if (item.box, item.status) == (box, "pending")]
            assert [mail.id for mail in self.stores[1].mailbox.pending(box)] == mine


@pytest.mark.parametrize("schedules", [60, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_schedule_agrees_with_the_model(
    dialect: str, schedules: int, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    # what happens once a second would depend on how long a schedule takes
    monkeypatch.setattr(marks, "LOOK_S", 1e9)
    monkeypatch.setattr("crowmem.repositories.mailbox.LOOK_S", 1e9)
    monkeypatch.setattr(marks, "COSTLY_S", 1e9)
    monkeypatch.setattr(marks, "CLEAR_AFTER", 4)
    monkeypatch.setattr("crowmem.repositories.mailbox.CLEAR_AFTER", 4)
    stores = [Memory.open(url, durability="normal", max_attempts=MOST_ATTEMPTS) for _ in range(2)]
    try:
        machine = type("Machine", (Mail,), {"url": url, "stores": stores})
        run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=schedules))
    finally:
        for store in stores:
            store.close()

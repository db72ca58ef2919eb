"""Claims one at a time: on SQLite the id after the last one's is tried before anything is looked for."""

from __future__ import annotations

import threading

import pytest
from mailboxes import execute, let_time_pass

from crowmem import Memory
from crowmem.errors import LeaseLost
from crowmem.marks import CLEAR_AFTER, Box


def claimed(store, address="a"):
    return [row.id for row in store.mailbox.claim(address, limit=1)]


def sent_and_started(memory, items=8):
    """A mailbox of which two were claimed, so that the next is tried by its id."""
    sent = memory.mailbox.send_many("a", [str(n) for n in range(items)])
    assert [claimed(memory), claimed(memory)] == [sent[:1], sent[1:2]]
    return sent[2:]


def test_one_at_a_time_in_order_with_all_they_carry(memory):
    sent = [memory.mailbox.send("a", f"c{n}", task_id=f"t{n}", priority="high" if n % 3 else "low") for n in range(9)]
    rows = [row for _ in sent for row in memory.mailbox.claim("a", limit=1)]
    assert [(row.id, row.task_id, row.content, row.priority, row.created_at) for row in rows] == [
        (row.id, row.task_id, row.content, row.priority, row.created_at) for row in sent
    ]
    assert {(row.status, row.attempts, row.address) for row in rows} == {("delivered", 1, "a")}
    assert [memory.mailbox.get(row.id) for row in rows] == rows
    assert claimed(memory) == []
    later = memory.mailbox.send("a", "later")
    assert claimed(memory) == [later.id]


def test_mailboxes_filled_in_turn(memory):
    sent = [(box, memory.mailbox.send(box, "x").id) for box in "aababbbaab"]
    for box in "ab":
        mine = [number for to, number in sent if to == box]
        assert [claimed(memory, box) for _ in range(len(mine) + 1)] == [*([number] for number in mine), []]


@pytest.mark.parametrize("limit", [1, 2, None])
def test_what_others_took_is_passed_over(backend, limit):
    here, there = backend.open(), backend.open()
    left = sent_and_started(here)
    theirs = there.mailbox.claim("a", limit=limit)
    assert [row.id for row in theirs] == left[:limit]
    left = left[len(theirs) :]
    assert [claimed(here) for _ in range(len(left) + 1)] == [*([number] for number in left), []]


def test_what_is_leased_waits_or_lies_elsewhere_is_not_claimed(backend):
    memory = backend.open()
    left = sent_and_started(memory)
    [held] = backend.open().mailbox.lease("a", "w")
    assert held.id == left[0]
    execute(backend, f"update task_deliveries set status = 'delivered' where id = {left[1]}")
    execute(backend, f"update task_deliveries set session_id = 'b' where id = {left[2]}")
    execute(backend, f"delete from task_deliveries where id = {left[3]}")
    assert [claimed(memory) for _ in range(3)] == [left[4:5], left[5:], []]
    assert claimed(memory, "b") == left[2:3]
    assert memory.mailbox.get(held.id).status == "leased"


def test_what_comes_back_goes_first(memory):
    left = sent_and_started(memory)
    [held] = memory.mailbox.lease("a", "w")
    assert claimed(memory) == left[1:2]
    memory.mailbox.release(held)
    assert [claimed(memory) for _ in range(3)] == [left[:1], left[2:3], left[3:4]]


def test_leases_one_at_a_time(memory):
    left = sent_and_started(memory)
    held = [row for _ in left[:4] for row in memory.mailbox.lease("a", "w", lease_s=50)]
    assert [(row.id, row.attempts, row.lease_token, row.worker, row.status) for row in held] == [
        (number, 1, 1, "w", "leased") for number in left[:4]
    ]
    assert [memory.mailbox.get(row.id).due_at for row in held] == [row.due_at for row in held]
    memory.mailbox.ack(held[0])
    let_time_pass(memory, 100)
    with pytest.raises(LeaseLost):
        memory.mailbox.lease("a", "w", ack=[held[0]])
    again = [row for _ in range(5) for row in memory.mailbox.lease("a", "v")]
    assert sorted((row.id, row.lease_token) for row in again) == [
        *((number, 2) for number in left[1:4]),
        (left[4], 1),
        (left[5], 1),
    ]
    assert memory.mailbox.lease("a", "v") == []


def test_claims_of_many_and_by_priority_between(memory):
    left = sent_and_started(memory)
    high = memory.mailbox.send_many("a", ["7", "8", "9"], priority="high")
    assert [row.id for row in memory.mailbox.claim("a", limit=2)] == left[:2]
    assert [row.id for row in memory.mailbox.claim("a", limit=1, priority="high")] == high[:1]
    assert [claimed(memory), claimed(memory)] == [left[2:3], left[3:4]]
    assert [row.id for row in memory.mailbox.claim("a", limit=1, priority="low")] == left[4:5]
    assert [claimed(memory) for _ in range(4)] == [left[5:], high[1:2], high[2:], []]


def test_a_rolled_back_claim_is_claimed_again(memory):
    left = sent_and_started(memory)
    with pytest.raises(LookupError), memory.transaction() as tx:
        assert [claimed(tx), claimed(tx)] == [left[:1], left[1:2]]
        raise LookupError
    with memory.transaction() as tx:
        assert claimed(tx) == left[:1]
    assert [claimed(memory), claimed(memory)] == [left[1:2], left[2:3]]


def test_threads_get_each_item_once(backend):
    stores = [backend.blocking(), backend.blocking()]
    sent = stores[0].mailbox.send_many("a", [str(n) for n in range(600)])
    found: list[list[int]] = []

    def drain(store: Memory) -> None:
        mine: list[int] = []
        while rows := store.mailbox.claim("a", limit=1):
            mine += [row.id for row in rows]
        found.append(mine)

    threads = [threading.Thread(target=drain, args=(stores[number % 2],)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for mine in found for number in mine) == sent


def test_which_id_follows():
    box, now = Box(), 0.0
    box.next_look = box.next_sweep = 1.0
    assert box.follow(now) == 0  # nothing was claimed yet
    box.took(None, 5, 5)
    assert box.follow(now) == 0  # 5 did not follow anything
    box.took(None, 6, 6)
    assert [box.follow(now), box.follow(now)] == [7, 8]  # each is tried once
    box.failed(7)
    assert box.follow(now) == 9  # another thread went on
    box.failed(9)
    assert box.follow(now) == 0
    box.took(None, 10, 10)
    box.took(None, 11, 12)
    box.took("high", 40, 40)
    assert box.follow(now) == 13
    assert box.follow(1.0) == 0  # a look is due
    box.taken = list(range(CLEAR_AFTER))
    assert box.follow(now) == 0
    box.taken = []
    box.forget()
    assert box.follow(now) == 0


def test_stores_of_one_file_know_where_to_go_on(tmp_path):
    path = tmp_path / "crow.db"
    with Memory.open(path) as one, Memory.open(path) as two, Memory.open(tmp_path / "other.db") as other:
        assert one._store.marks is two._store.marks
        assert one._store.marks is not other._store.marks
        sent = one.mailbox.send_many("a", [str(n) for n in range(9)])
        assert [claimed(store) for store in (one, two, one, two)] == [[number] for number in sent[:4]]
        [held] = one.mailbox.lease("a", "w")
        assert claimed(two) == sent[5:6]
        one.mailbox.release(held)
        assert [claimed(two), claimed(two)] == [sent[4:5], sent[6:7]]
        old = one._store.marks
    path.unlink()
    with Memory.open(path) as new:
        assert new._store.marks is not old
        sent = new.mailbox.send_many("a", ["1", "2"])
        assert [claimed(new) for _ in range(3)] == [sent[:1], sent[1:], []]

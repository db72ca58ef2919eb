"""Payloads: one JSON object a session, and nobody's change undone by another."""

from __future__ import annotations

import json
import math
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from test_tapes import ODD

from crowmem.errors import Conflict, InvalidValue

if TYPE_CHECKING:
    from backends import Backend


def test_a_payload_comes_back_equal_and_in_key_order(memory: Any) -> None:
    assert memory.payloads.load("s") is None
    assert memory.payloads.get("s") is None
    assert memory.payloads.save("s", ODD) == 1
    loaded = memory.payloads.load("s")
    assert loaded == ODD
    assert json.dumps(loaded) == json.dumps(ODD)
    found = memory.payloads.get("s")
    assert (found.session_id, found.version, found.payload) == ("s", 1, ODD)
    assert abs(datetime.now(UTC) - found.updated_at) < timedelta(minutes=10)


def test_saving_replaces_and_counts_on(memory: Any) -> None:
    versions = [memory.payloads.save("s", {"n": number}) for number in range(3)]
    assert versions == [1, 2, 3]
    assert memory.payloads.load("s") == {"n": 2}
    assert memory.payloads.save("t", {}) == 1
    assert memory.payloads.count() == 2


def test_a_stale_version_is_refused(memory: Any) -> None:
    with pytest.raises(Conflict, match="does not have version 1"):
        memory.payloads.save("s", {}, expected_version=1)
    assert memory.payloads.count() == 0
    assert memory.payloads.save("s", {"n": 1}, expected_version=0) == 1
    for stale in (0, 2):
        with pytest.raises(Conflict, match=f"does not have version {stale}"):
            memory.payloads.save("s", {"n": 9}, expected_version=stale)
    assert memory.payloads.save("s", {"n": 2}, expected_version=1) == 2
    with pytest.raises(Conflict):
        memory.payloads.save("s", {"n": 9}, expected_version=1)
    assert memory.payloads.load("s") == {"n": 2}


def test_two_changes_to_one_version_do_not_undo_each_other(backend: Backend) -> None:
    """Known fault 12: of two changes to the same version exactly one succeeds, and the other is told."""
    stores = [backend.blocking() for _ in range(4)]
    stores[0].payloads.save("s", {})
    barrier = threading.Barrier(len(stores))
    conflicts: list[int] = []

    def work(number: int) -> None:
        barrier.wait()
        for step in range(10):
            while True:
                found = stores[number].payloads.get("s")
                assert found is not None
                try:
                    changed = {**found.payload, f"{number}.{step}": step}
                    stores[number].payloads.save("s", changed, expected_version=found.version)
                    break
                except Conflict:
                    conflicts.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = stores[0].payloads.get("s")
    assert found is not None
    assert len(found.payload) == 40
    assert found.version == 41


def test_sessions_are_listed_in_pages(memory: Any) -> None:
    for name in ("b", "a", "é", "Z"):
        memory.payloads.save(name, {})
    assert memory.payloads.list() == ["Z", "a", "b", "é"]
    assert memory.payloads.list(limit=2, offset=1) == ["a", "b"]
    assert memory.payloads.count() == 4


def test_deleting_is_idempotent(memory: Any) -> None:
    memory.payloads.save("s", {})
    assert memory.payloads.delete("s")
    assert not memory.payloads.delete("s")
    assert memory.payloads.load("s") is None
    assert memory.payloads.save("s", {"again": True}, expected_version=0) == 1


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"a": [math.inf]}, r"payload\.a\[0\] is inf"),
        ({"a": {2: 1}}, r"payload\.a has the key 2"),
        ([], "payload is of type list"),
        ("{}", "payload is of type str"),
        (None, "payload is None"),
    ],
)
def test_what_is_no_object_is_refused(memory: Any, payload: Any, place: str) -> None:
    with pytest.raises(InvalidValue, match=place):
        memory.payloads.save("s", payload)
    assert memory.payloads.count() == 0


@pytest.mark.parametrize("bad", [-1, True, 1.0, "1", 2**63])
def test_a_bad_version_is_refused(memory: Any, bad: Any) -> None:
    with pytest.raises(InvalidValue, match="expected_version"):
        memory.payloads.save("s", {}, expected_version=bad)


def test_a_payload_in_a_transaction(memory: Any) -> None:
    memory.payloads.save("s", {"n": 1})
    with pytest.raises(ZeroDivisionError), memory.transaction() as tx:
        assert tx.payloads.save("s", {"n": 2}, expected_version=1) == 2
        raise ZeroDivisionError
    assert memory.payloads.load("s") == {"n": 1}

"""Tapes: entries go in and come out in order, on every backend, through cuts, forks, drafts and files."""

from __future__ import annotations

import json
import math
import os
import threading
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest
from data import shared_data
from psycopg.conninfo import conninfo_to_dict
from tcp_proxy import Wire

from crowmem import Memory
from crowmem.entries import Batch, is_handoff
from crowmem.errors import AlreadyFinal, Conflict, InvalidValue, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from backends import Backend

ODD = {
    "z": 1,
    "a": {"deep": [[], {}, "", None, True, -0.0, 2.5, 2**200, 1e-300]},
    "nul": "a\0b",
    "written out": "\\u0000",
    "half": "x\ud83d",
    "other half": "\udc81",
    "whole": "x\U0001f600",
    "k\0\ud83d": "\r\n\u2028'%s $1 :x",
}


def messages(*numbers: int) -> list[dict[str, Any]]:
    return [{"kind": "message", "payload": {"role": "user", "content": str(number)}} for number in numbers]


def handoff(text: str = "handoff") -> dict[str, Any]:
    return {"kind": "anchor", "payload": {"content": text}, "anchor_type": "handoff", "source_ids": []}


def count(backend: Backend, table: str) -> int:
    """How many rows a table of the store has, asked beside crowmem."""
    if backend.dialect == "postgres":
        with psycopg.connect(backend.url) as connection:
            [[found]] = connection.execute(f"select count(*) from {table}").fetchall()
            return int(found)
    connection = apsw.Connection(backend.url, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        [[found]] = connection.execute(f"select count(*) from {table}").fetchall()
        return int(found)
    finally:
        connection.close()


def stored(backend: Backend) -> int:
    return count(backend, "tape_entries")


def branches(backend: Backend) -> int:
    return count(backend, "tape_branches")


def test_entries_load_equal_and_in_key_order(memory: Any) -> None:
    given = json.loads(json.dumps(ODD))
    assert memory.tapes.append("t", [given, {}]) == 2
    assert given == ODD
    loaded = memory.tapes.load("t")
    assert loaded == [ODD, {}]
    assert json.dumps(loaded[0]) == json.dumps(ODD)
    assert json.loads(memory.tapes.load_json("t")) == [ODD, {}]


def test_an_unknown_tape_is_empty(memory: Any) -> None:
    assert memory.tapes.load("t") == []
    assert memory.tapes.load_json("t") == "[]"
    assert memory.tapes.length("t") == 0
    assert memory.tapes.append("t", []) == 0
    assert memory.tapes.truncate("t", 0) == 0
    assert not memory.tapes.delete("t")
    assert memory.tapes.window("t").entries == []
    assert memory.tapes.lines("t") == []
    assert memory.tapes.forget_lines("t") == 0
    assert memory.tapes.list() == []


def test_appends_are_numbered_on(memory: Any) -> None:
    assert memory.tapes.append("t", messages(0, 1)) == 2
    assert memory.tapes.append("t", messages(2)) == 3
    assert memory.tapes.append("t", []) == 3
    assert memory.tapes.load("t") == messages(0, 1, 2)
    assert memory.tapes.length("t") == 3


@pytest.mark.parametrize(
    ("start", "stop", "numbers"),
    [
        (0, None, (0, 1, 2)),
        (1, None, (1, 2)),
        (1, 2, (1,)),
        (2, 1, ()),
        (3, None, ()),
        (0, 99, (0, 1, 2)),
        (2**40, 2**50, ()),
    ],
)
def test_ranges(memory: Any, start: int, stop: int | None, numbers: tuple[int, ...]) -> None:
    memory.tapes.append("before", messages(7))
    memory.tapes.append("t", messages(0, 1, 2))
    memory.tapes.append("u", messages(8))
    assert memory.tapes.load("t", start=start, stop=stop) == messages(*numbers)


@pytest.mark.parametrize("bad", [{"start": -1}, {"stop": -1}, {"start": True}, {"start": 1.5}, {"start": 2**63}])
def test_bad_ranges_are_refused(memory: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(bad))):
        memory.tapes.load("t", **bad)


@pytest.mark.parametrize(
    ("entries", "place"),
    [
        ([{}, {"a": [{"b": math.nan}]}], r"entries\[1\]\.a\[0\]\.b is nan"),
        ([{"a": math.inf}], r"entries\[0\]\.a is inf"),
        ([{1: 2}], r"entries\[0\] has the key 1"),
        ([{"a": b"x"}], r"entries\[0\]\.a is of type bytes"),
        ([[]], r"entries\[0\] is of type list"),
        (["x"], r"entries\[0\] is of type str"),
        ([None], r"entries\[0\] is None"),
        ({"a": 1}, "entries is of type dict"),
        ("text", "entries is of type str"),
        (None, "entries is None"),
    ],
)
def test_bad_entries_are_refused_before_anything_is_written(memory: Any, entries: Any, place: str) -> None:
    with pytest.raises(InvalidValue, match=place):
        memory.tapes.append("t", entries)
    assert memory.tapes.list() == []


@pytest.mark.parametrize("name", ["", "a\0b", "x\ud83d", "x" * 2601, None, 1])
def test_bad_names_are_refused(memory: Any, name: Any) -> None:
    with pytest.raises(InvalidValue, match="tape_id"):
        memory.tapes.append(name, messages(0))


def test_any_name_that_is_text_will_do(memory: Any) -> None:
    names = ["../x", "'; drop table tapes; --", "ä/🤖", " ", "%", "x" * 2600]
    for number, name in enumerate(names):
        memory.tapes.append(name, messages(number))
    assert [memory.tapes.load(name) for name in names] == [messages(number) for number in range(len(names))]
    assert memory.tapes.list() == sorted(names, key=str.encode)


def test_tapes_are_listed_in_pages(memory: Any) -> None:
    for name in ("b", "a", "é", "c", "Z"):
        memory.tapes.append(name, messages(0))
    assert memory.tapes.list() == ["Z", "a", "b", "c", "é"]
    assert memory.tapes.list(limit=2, offset=1) == ["a", "b"]
    assert [info.tape_id for info in memory.tapes.list_infos(limit=2, offset=3)] == ["c", "é"]
    with pytest.raises(InvalidValue, match="limit"):
        memory.tapes.list(limit=0)


def test_an_append_can_insist_on_a_length(memory: Any) -> None:
    with pytest.raises(Conflict, match="does not have 1 entries"):
        memory.tapes.append("t", messages(0), expected_length=1)
    assert memory.tapes.list() == []
    assert memory.tapes.append("t", messages(0), expected_length=0) == 1
    for stale in (0, 2):
        with pytest.raises(Conflict, match=r"it has 1"):
            memory.tapes.append("t", messages(9), expected_length=stale)
        with pytest.raises(Conflict, match=r"it has 1"):
            memory.tapes.append("t", [], expected_length=stale)
    assert memory.tapes.append("t", messages(1), expected_length=1) == 2
    assert memory.tapes.append("t", [], expected_length=2) == 2
    assert memory.tapes.load("t") == messages(0, 1)


def test_an_emptied_tape_has_the_length_nought(memory: Any) -> None:
    memory.tapes.append("t", messages(0))
    memory.tapes.truncate("t", 0)
    assert memory.tapes.append("t", messages(1), expected_length=0) == 1
    assert memory.tapes.load("t") == messages(1)


def test_of_two_changes_to_the_same_length_one_succeeds(backend: Backend) -> None:
    stores = [backend.blocking() for _ in range(2)]
    stores[0].tapes.append("t", messages(0))
    results: list[object] = []

    def change(store: Any) -> None:
        try:
            results.append(store.tapes.append("t", messages(1), expected_length=1))
        except Conflict as error:
            results.append(type(error))

    threads = [threading.Thread(target=change, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == ["2", "<class 'crowmem.errors.Conflict'>"]
    assert stores[0].tapes.load("t") == messages(0, 1)


def test_many_threads_append_without_a_gap(backend: Backend) -> None:
    memory = backend.blocking(pool_size=4)
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for number in range(25):
                memory.tapes.append("t", [{"w": worker, "n": [number, part]} for part in range(1 + number % 3)])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    entries = memory.tapes.load("t")
    assert len(entries) == memory.tapes.length("t") == 8 * sum(1 + number % 3 for number in range(25))
    for worker in range(8):
        own = [entry["n"] for entry in entries if entry["w"] == worker]
        assert own == sorted(own)
    places = [place for place, entry in enumerate(entries) if entry["n"][1] == 0]
    for place in places:  # a batch stays together
        batch = entries[place : place + 1 + entries[place]["n"][0] % 3]
        assert [entry["n"][1] for entry in batch] == list(range(len(batch)))
        assert len({entry["w"] for entry in batch}) == 1


def test_an_append_is_one_round_trip_on_postgres(pg_fresh: str, pg_base: Any) -> None:
    database = conninfo_to_dict(pg_fresh)["dbname"]
    Memory.open(pg_fresh).close()
    wire = Wire(pg_base.address)
    url = pg_base.url(database, host=wire.host, port=wire.port)
    with wire, Memory.open(url, pool_size=1) as memory:
        memory.tapes.length("other")  # connects
        for entries in (messages(0), messages(1, 2), messages(3), [handoff()]):
            before = wire.traffic
            memory.tapes.append("new", entries)
            assert (wire.traffic - before).round_trips == 1


def test_a_tape_that_another_store_deleted_is_made_again(backend: Backend) -> None:
    one, two = backend.open(), backend.open()
    assert [one.tapes.append("t", messages(n)) for n in (0, 1)] == [1, 2]
    two.tapes.delete("t")
    assert one.tapes.append("t", messages(2)) == 1
    assert one.tapes.append("t", messages(3)) == 2
    assert one.tapes.append("t", messages(4), expected_length=2) == 3
    assert one.tapes.load("t") == messages(2, 3, 4)


def test_a_batch_too_large_for_one_statement_is_still_one_append(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowmem.entries.PART_ENTRIES", 3)
    memory.tapes.append("t", messages(0))
    entries = [*messages(1, 2, 3, 4), handoff(), *messages(6, 7, 8)]
    with pytest.raises(Conflict):
        memory.tapes.append("t", entries, expected_length=2)
    assert memory.tapes.length("t") == 1
    assert memory.tapes.append("t", entries, expected_length=1) == 9
    assert memory.tapes.load("t") == [*messages(0), *entries]
    assert memory.tapes.window("t").window_start == 5


def test_parts_are_cut_by_count_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowmem.entries.PART_ENTRIES", 3)
    monkeypatch.setattr("crowmem.entries.PART_CHARACTERS", 10)
    batch = Batch(["1234", "1234", "1234", "123456789012", "1", "1", "1", "1"], [0, 3, 7])
    assert [(part.texts, part.handoffs) for part in batch.parts()] == [
        (["1234", "1234"], [0]),
        (["1234"], []),
        (["123456789012"], [0]),
        (["1", "1", "1"], []),
        (["1"], [0]),
    ]
    assert [part.texts for part in Batch().parts()] == [[]]


# --- windows ---


@pytest.mark.parametrize(
    ("entry", "begins"),
    [
        ({"kind": "anchor", "anchor_type": "handoff"}, True),
        ({"kind": "anchor", "anchor_type": "handoff", "meta": {"is_handoff": True}}, True),
        ({"kind": "anchor", "meta": {"is_handoff": True}}, True),
        ({"kind": "anchor", "meta": {"anchor_type": "handoff"}}, True),
        ({"kind": "anchor", "meta": {"anchor_type": "handoff", "is_handoff": False}}, False),
        ({"kind": "anchor", "anchor_type": "topic_start"}, False),
        ({"kind": "anchor", "anchor_type": "fold"}, False),
        ({"kind": "anchor", "meta": {"anchor_type": "topic_initial"}}, False),
        ({"kind": "anchor", "meta": {"anchor_type": "topic_finalized", "is_handoff": True}}, True),
        ({"kind": "anchor", "meta": "is_handoff"}, False),
        ({"kind": "anchor"}, False),
        ({"kind": "message", "anchor_type": "handoff", "meta": {"is_handoff": True}}, False),
        ({"anchor_type": ["handoff"]}, False),
    ],
)
def test_what_begins_a_window(memory: Any, entry: dict[str, Any], begins: bool) -> None:
    assert is_handoff(entry) is begins
    memory.tapes.append("t", [*messages(0, 1), entry, *messages(3)])
    window = memory.tapes.window("t")
    assert window.window_start == (2 if begins else 0)
    assert window.length == 4
    assert window.entries == memory.tapes.load("t")[window.window_start :]


def test_the_window_follows_the_last_handoff(memory: Any) -> None:
    memory.tapes.append("t", messages(0))
    for number in range(3):
        memory.tapes.append("t", [handoff("first"), *messages(1), handoff(), *messages(2)])
        assert memory.tapes.window("t").window_start == 1 + 4 * number + 2
    assert memory.tapes.truncate("t", 11) == 11
    assert memory.tapes.window("t").window_start == 9
    memory.tapes.truncate("t", 9)
    assert memory.tapes.window("t").window_start == 7
    memory.tapes.truncate("t", 1)
    assert memory.tapes.window("t").window_start == 0
    [info] = memory.tapes.list_infos()
    assert (info.tape_id, info.length, info.window_start) == ("t", 1, 0)


def test_a_fork_has_the_window_of_what_it_shares(memory: Any) -> None:
    memory.tapes.append("t", [handoff(), *messages(1), handoff(), *messages(3)])
    for at, start in ((4, 2), (3, 2), (2, 0), (1, 0), (0, 0)):
        name = memory.tapes.fork("t", at=at)
        assert memory.tapes.window(name).window_start == start
        memory.tapes.append(name, messages(9))
        window = memory.tapes.window(name)
        assert window.window_start == start
        assert window.entries == [*memory.tapes.load("t")[start:at], *messages(9)]


# --- cuts ---


@pytest.mark.parametrize("keep", [-1, -(2**70), True, 1.0, "1", None])
def test_a_negative_keep_is_a_value_error(memory: Any, keep: Any) -> None:
    memory.tapes.append("t", messages(0))
    with pytest.raises(ValueError, match="keep"):
        memory.tapes.truncate("t", keep)
    assert memory.tapes.length("t") == 1


def test_a_cut_tape_goes_on_at_keep_and_leaves_nothing_behind(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(*range(10)))
    assert memory.tapes.truncate("t", 11) == 10
    assert memory.tapes.truncate("t", 4) == 4
    assert stored(backend) == 4
    assert memory.tapes.append("t", messages(40, 50)) == 6
    assert memory.tapes.load("t") == messages(0, 1, 2, 3, 40, 50)
    assert memory.tapes.truncate("t", 0) == 0
    assert stored(backend) == 0
    assert memory.tapes.load("t") == []
    assert memory.tapes.list() == ["t"]
    memory.tapes.append("t", messages(7))
    assert memory.tapes.load("t") == messages(7)


def test_a_cut_leaves_forks_as_they_are(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(*range(6)))
    memory.tapes.fork("t", "f", at=4)
    memory.tapes.truncate("t", 2)
    memory.tapes.append("t", messages(20))
    assert memory.tapes.load("f") == messages(0, 1, 2, 3)
    assert memory.tapes.load("t") == messages(0, 1, 20)
    assert stored(backend) == 5
    memory.tapes.truncate("f", 3)
    assert memory.tapes.load("f") == messages(0, 1, 2)
    assert stored(backend) == 4
    memory.tapes.delete("t")
    assert memory.tapes.load("f") == messages(0, 1, 2)
    assert stored(backend) == 3
    memory.tapes.delete("f")
    assert stored(backend) == 0
    assert branches(backend) == 0


# --- forks ---


def test_a_fork_remembers_its_own_past(memory: Any, backend: Backend) -> None:
    """Known fault 14: fork = 1, 2, 3b; parent = 1, 2, 3, 4; before and after reopening."""
    memory.tapes.append("parent", messages(1, 2, 3))
    memory.tapes.fork("parent", "fork", at=2)
    memory.tapes.append("fork", messages(33))
    memory.tapes.append("parent", messages(4))
    memory.tapes.fork("fork", "again")
    memory.tapes.append("again", messages(44))
    memory.tapes.fork("fork", "early", at=1)
    memory.tapes.append("early", messages(22))
    memory.tapes.fork("parent", "empty", at=0)
    memory.tapes.append("empty", messages(11))
    memory.tapes.fork("again", "end", at=4)
    expected = {
        "again": (1, 2, 33, 44),
        "early": (1, 22),
        "empty": (11,),
        "end": (1, 2, 33, 44),
        "fork": (1, 2, 33),
        "parent": (1, 2, 3, 4),
    }
    for store in (memory, backend.open()):
        assert store.tapes.list() == sorted(expected)
        for name, numbers in expected.items():
            assert store.tapes.load(name) == messages(*numbers)
            for start in range(len(numbers) + 1):
                assert store.tapes.load(name, start=start) == messages(*numbers[start:])
                assert store.tapes.load(name, stop=start) == messages(*numbers[:start])
    assert stored(backend) == 4 + 1 + 1 + 1 + 1


def test_forks_that_cannot_be(memory: Any) -> None:
    with pytest.raises(NotFound, match="no tape 't'"):
        memory.tapes.fork("t")
    memory.tapes.append("t", messages(0, 1))
    memory.tapes.append("u", messages(0))
    with pytest.raises(InvalidValue, match="at is 3, but tape 't' has only 2"):
        memory.tapes.fork("t", at=3)
    with pytest.raises(InvalidValue, match="at"):
        memory.tapes.fork("t", at=-1)
    with pytest.raises(Conflict, match="there is a tape 'u'"):
        memory.tapes.fork("t", "u")
    with pytest.raises(NotFound, match="no line 1"):
        memory.tapes.fork("t", line=1)
    assert memory.tapes.list() == ["t", "u"]


def test_a_fork_gets_a_name_of_its_own(memory: Any) -> None:
    memory.tapes.append("t", messages(0))
    names = {memory.tapes.fork("t") for _ in range(3)}
    assert len(names) == 3
    assert all(memory.tapes.load(name) == messages(0) for name in names)


def test_a_long_line_of_forks(memory: Any, backend: Backend) -> None:
    memory.tapes.append("0", messages(0))
    for number in range(1, 60):
        memory.tapes.fork(str(number - 1), str(number))
        memory.tapes.append(str(number), messages(number))
    assert memory.tapes.load("59") == messages(*range(60))
    assert memory.tapes.load("59", start=20, stop=40) == messages(*range(20, 40))
    for number in range(59):
        memory.tapes.delete(str(number))
    assert memory.tapes.load("59") == messages(*range(60))
    memory.tapes.truncate("59", 30)
    assert memory.tapes.load("59") == messages(*range(30))
    assert stored(backend) == 30
    memory.tapes.delete("59")
    assert stored(backend) == branches(backend) == 0


def test_deleted_is_deleted(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1))
    memory.tapes.append("u", messages(2))
    memory.checkpoints.save("t")
    assert memory.tapes.delete("t")
    assert not memory.tapes.delete("t")
    assert memory.tapes.list() == ["u"]
    assert memory.tapes.load("t") == []
    assert memory.checkpoints.list("t") == []
    assert stored(backend) == 1
    memory.tapes.append("t", messages(5))
    assert memory.tapes.load("t") == messages(5)
    assert memory.tapes.load("u") == messages(2)


# --- drafts ---


def test_a_draft_saves_only_what_was_added(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1))
    draft = memory.tapes.begin("t")
    assert (draft.tape_id, draft.base_length, len(draft), draft.final) == ("t", 2, 2, False)
    entry = {"kind": "message", "n": [2]}
    draft.append(entry)
    entry["n"].append(3)
    draft.append(messages(3)[0])
    memory.tapes.append("t", messages(99))
    whole = [*messages(0, 1), {"kind": "message", "n": [2]}, *messages(3)]
    assert memory.tapes.load(draft) == whole
    assert memory.tapes.load(draft, start=1, stop=3) == whole[1:3]
    assert memory.tapes.load(draft, start=3) == whole[3:]
    assert memory.tapes.load(draft, stop=1) == whole[:1]
    assert len(draft) == 4
    assert draft.entries == whole[2:]
    assert memory.tapes.load("t") == messages(0, 1, 99)
    assert memory.tapes.commit(draft) == "t"
    assert memory.tapes.load("t") == [*messages(0, 1, 99), *whole[2:]]
    assert draft.final
    second = memory.tapes.begin("t")
    second.append(messages(7)[0])
    memory.tapes.commit(second)
    assert memory.tapes.length("t") == 6
    assert stored(backend) == 6


def test_a_draft_of_a_new_tape(memory: Any) -> None:
    draft = memory.tapes.begin("new")
    draft.append(messages(0)[0])
    assert memory.tapes.commit(draft) == "new"
    assert memory.tapes.load("new") == messages(0)
    empty = memory.tapes.begin("nothing")
    assert memory.tapes.commit(empty) == "nothing"
    assert memory.tapes.list() == ["new"]


@pytest.mark.parametrize("first", ["commit", "rollback"])
@pytest.mark.parametrize("second", ["commit", "rollback"])
def test_a_draft_ends_once(memory: Any, first: str, second: str) -> None:
    draft = memory.tapes.begin("t")
    draft.append(messages(0)[0])
    getattr(memory.tapes, first)(draft)
    with pytest.raises(AlreadyFinal, match="committed" if first == "commit" else "rolled back"):
        getattr(memory.tapes, second)(draft)
    with pytest.raises(AlreadyFinal):
        draft.append({})
    assert memory.tapes.load("t") == (messages(0) if first == "commit" else [])


def test_a_draft_refuses_what_cannot_be_stored(memory: Any) -> None:
    draft = memory.tapes.begin("t")
    with pytest.raises(InvalidValue, match=r"entry\.a\[0\] is nan"):
        draft.append({"a": [math.nan]})
    assert len(draft) == 0


def test_a_draft_whose_base_moved_stays_open(memory: Any) -> None:
    draft = memory.tapes.begin("t")
    draft.append(messages(1)[0])
    memory.tapes.append("t", messages(0))
    with pytest.raises(Conflict):
        memory.tapes.commit(draft, expected_length=draft.base_length)
    assert not draft.final
    assert memory.tapes.commit(draft, expected_length=1) == "t"
    assert memory.tapes.load("t") == messages(0, 1)


def test_a_draft_in_a_transaction_that_fails_can_be_saved_again(memory: Any) -> None:
    draft = memory.tapes.begin("t")
    draft.append(messages(0)[0])
    with pytest.raises(ZeroDivisionError), memory.transaction() as tx:
        tx.tapes.commit(draft)
        assert tx.tapes.length("t") == 1
        raise ZeroDivisionError
    assert memory.tapes.length("t") == 0
    with memory.transaction() as tx:
        tx.tapes.commit(draft)
        tx.tapes.commit(draft)
    memory.tapes.commit(draft)
    assert memory.tapes.load("t") == messages(0)
    with pytest.raises(AlreadyFinal):
        memory.tapes.commit(draft)


def test_a_draft_saved_in_a_transaction_cannot_be_rolled_back(memory: Any) -> None:
    draft = memory.tapes.begin("t")
    draft.append(messages(0)[0])
    with memory.transaction() as tx:
        tx.tapes.commit(draft)
    with pytest.raises(AlreadyFinal, match="committed"):
        memory.tapes.rollback(draft)


# --- transactions ---


def test_a_transaction_that_fails_leaves_nothing(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1, 2))
    with pytest.raises(ZeroDivisionError), memory.transaction() as tx:
        tx.tapes.append("t", messages(3))
        tx.tapes.append("u", messages(3))
        tx.tapes.fork("t", "f")
        tx.tapes.truncate("t", 1)
        tx.tapes.append("t", messages(4))
        assert tx.tapes.load("t") == messages(0, 4)
        raise ZeroDivisionError
    assert memory.tapes.list() == ["t"]
    assert memory.tapes.load("t") == messages(0, 1, 2)
    assert stored(backend) == 3


def test_tape_and_messages_in_one_transaction(memory: Any) -> None:
    with memory.transaction() as tx:
        tx.messages.add("s-1-1", {"role": "user", "content": "x"})
        tx.tapes.append("s", messages(0))
        tx.tapes.fork("s", "f")
    assert memory.tapes.load("f") == messages(0)


# --- files ---


def test_a_file_goes_in_and_out_byte_for_byte(memory: Any, tmp_path: Path) -> None:
    lines = [
        b'{"b": 1, "a":  [1.50, 1E400000000000, -0.0]}'.replace(b"1E400000000000", b"1e2"),
        b'  {"spaced" : "out"}\t',
        b'{"escaped": "\\u00e9\\ud83d\\ude00 \\ud83d \\u0000 \\/"}',
        '{"plain": "é🤖\u2028"}'.encode(),
        b'{"twice": 1, "twice": 2}',
        b'{"big": 123456789012345678901234567890}',
        b'{"kind": "anchor", "anchor_type": "handoff"}\r',
        b"{}",
    ]
    source, copy = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"\n".join(lines) + b"\n")
    assert memory.tapes.import_jsonl("t", source) == len(lines)
    assert memory.tapes.load("t") == [json.loads(line) for line in lines]
    assert memory.tapes.window("t").window_start == 6
    assert memory.tapes.export_jsonl("t", copy) == len(lines)
    assert copy.read_bytes() == source.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".jsonl") == ["in.jsonl", "out.jsonl"]


def test_blank_lines_a_mark_and_a_missing_end_do_no_harm(memory: Any, tmp_path: Path) -> None:
    source, copy = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b'\xef\xbb\xbf{"a":1}\n\n  \r\n{"b":2}')
    assert memory.tapes.import_jsonl("t", str(source)) == 2
    memory.tapes.append("t", [ODD])
    assert memory.tapes.export_jsonl("t", str(copy)) == 3
    assert copy.read_bytes().split(b"\n")[:2] == [b'{"a":1}', b'{"b":2}']
    assert memory.tapes.import_jsonl("u", copy) == 3
    assert memory.tapes.load("u") == memory.tapes.load("t")
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    assert memory.tapes.import_jsonl("v", tmp_path / "empty.jsonl") == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"[1]", "of type list"),
        (b'{"a": ', "not JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": [-Infinity]}', "-Infinity is not JSON"),
        (b'{"a": [1, {"b": 1e999}]}', r"\.a\[1\]\.b is inf"),
        (b'{"a": "\x00"}', "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 8"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":1}{"a":2}', "not JSON"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (b'{"a":' + b"1" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(memory: Any, tmp_path: Path, line: bytes, told: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"good": 1}\n' + line + b'\n{"good": 2}\n')
    with pytest.raises(InvalidValue, match=rf"in\.jsonl:2.*{told}"):
        memory.tapes.import_jsonl("t", source)
    assert memory.tapes.list() == []


def test_files_that_cannot_be(memory: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.jsonl"):
        memory.tapes.import_jsonl("t", tmp_path / "none.jsonl")
    with pytest.raises(NotFound, match="no tape 't'"):
        memory.tapes.export_jsonl("t", tmp_path / "out.jsonl")
    memory.tapes.append("t", messages(0))
    with pytest.raises(NotFound, match="nowhere"):
        memory.tapes.export_jsonl("t", tmp_path / "nowhere" / "out.jsonl")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for there in ("pipe", "link", ""):
        with pytest.raises(InvalidValue, match="is no file"):
            memory.tapes.export_jsonl("t", tmp_path / there)
    assert (tmp_path / "link").is_symlink()
    with pytest.raises(InvalidValue, match="is a folder"):
        memory.tapes.import_jsonl("t", tmp_path)
    for call in (memory.tapes.import_jsonl, memory.tapes.export_jsonl):
        with pytest.raises(InvalidValue, match="name another file"):
            call("t", tmp_path / ("9" * 400))
    assert not (tmp_path / "out.jsonl").exists()


def test_an_import_can_insist_on_a_length(memory: Any, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"{}\n")
    assert memory.tapes.import_jsonl("t", source, expected_length=0) == 1
    with pytest.raises(Conflict):
        memory.tapes.import_jsonl("t", source, expected_length=0)
    assert memory.tapes.length("t") == 1


def test_many_batches_of_a_file(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowmem.jsonl.PART_ENTRIES", 7)
    monkeypatch.setattr("crowmem.repositories.tapes.PAGE", 9)
    source, copy = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(f'{{"n":{number}}}\n' for number in range(100)))
    assert memory.tapes.import_jsonl("t", source) == 100
    memory.tapes.fork("t", "f", at=50)
    memory.tapes.append("f", [{"n": 50}])
    assert memory.tapes.export_jsonl("t", copy) == 100
    assert copy.read_bytes() == source.read_bytes()
    assert memory.tapes.export_jsonl("f", copy) == 51
    assert copy.read_bytes() == b"".join(source.read_bytes().splitlines(keepends=True)[:51])


def test_agentkit_tapes_keep_every_byte(memory: Any, tmp_path: Path) -> None:
    """Import, fork, cut and export the tapes of the shared data set; each entry stays as it is."""
    for source in sorted(shared_data("transcripts", "derived", "agentkit-tape").glob("*.jsonl")):
        name, lines = source.stem, source.read_bytes().splitlines(keepends=True)
        assert memory.tapes.import_jsonl(name, source) == len(lines)
        copy, half = tmp_path / "copy.jsonl", len(lines) // 2
        memory.tapes.export_jsonl(name, copy)
        assert copy.read_bytes() == source.read_bytes()
        fork = memory.tapes.fork(name, at=half)
        memory.tapes.truncate(name, half - 1)
        memory.tapes.append(name, [{"after": "the cut"}])
        memory.tapes.export_jsonl(fork, copy)
        assert copy.read_bytes() == b"".join(lines[:half])
        memory.tapes.export_jsonl(name, copy)
        assert copy.read_bytes() == b"".join(lines[: half - 1]) + b'{"after":"the cut"}\n'
        entries = [json.loads(line) for line in lines]
        anchors = [place for place, entry in enumerate(entries) if is_handoff(entry)]
        assert len(anchors) == 1
        whole = memory.tapes.fork(fork)
        memory.tapes.append(whole, entries[half:])
        window = memory.tapes.window(whole)
        assert (window.window_start, window.entries) == (anchors[0], entries[anchors[0] :])

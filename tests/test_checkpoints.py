"""Checkpoints: they load the same entries whatever becomes of their tape."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from test_tapes import ODD, branches, count, handoff, messages, stored

from crowmem.errors import InvalidValue, NotFound

if TYPE_CHECKING:
    from backends import Backend


def test_a_checkpoint_comes_back_whole(memory: Any) -> None:
    memory.tapes.append("t", [*messages(0), handoff(), ODD])
    saved = memory.checkpoints.save(
        "t", label="before", session_id="s", plugin_states={"p": ODD}, extra={"b": 1, "a": []}
    )
    assert saved.entries is None
    assert (saved.tape_id, saved.label, saved.session_id) == ("t", "before", "s")
    assert (saved.entry_count, saved.window_start) == (3, 1)
    assert (saved.plugin_states, saved.extra) == ({"p": ODD}, {"b": 1, "a": []})
    assert list(saved.extra) == ["b", "a"]
    assert abs(datetime.now(UTC) - saved.created_at) < timedelta(minutes=10)
    loaded = memory.checkpoints.load(saved.checkpoint_id)
    assert loaded.entries == [*messages(0), handoff(), ODD]
    for name in ("checkpoint_id", "tape_id", "label", "session_id", "entry_count", "window_start", "created_at"):
        assert getattr(loaded, name) == getattr(saved, name)
    assert (loaded.plugin_states, loaded.extra) == (saved.plugin_states, saved.extra)


def test_nothing_given_is_empty(memory: Any) -> None:
    memory.tapes.append("t", messages(0))
    saved = memory.checkpoints.save("t")
    assert (saved.label, saved.session_id, saved.plugin_states, saved.extra) == (None, None, {}, {})
    memory.tapes.truncate("t", 0)
    empty = memory.checkpoints.save("t")
    assert memory.checkpoints.load(empty.checkpoint_id).entries == []


@pytest.mark.parametrize(
    ("states", "place"),
    [
        ({"plugin_states": {"memory": {"scores": [1.0, math.nan]}}}, r"plugin_states\.memory\.scores\[1\] is nan"),
        ({"plugin_states": {"p": {1: 2}}}, r"plugin_states\.p has the key 1"),
        ({"plugin_states": {"p": object()}}, r"plugin_states\.p is of type object"),
        ({"extra": {"a": [b"x"]}}, r"extra\.a\[0\] is of type bytes"),
        ({"extra": []}, "extra is of type list"),
        ({"plugin_states": "x"}, "plugin_states is of type str"),
        ({"label": 1}, "label"),
        ({"session_id": ""}, "session_id"),
        ({"checkpoint_id": ""}, "checkpoint_id"),
        ({"created_at": "yesterday"}, "created_at"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(memory: Any, states: dict[str, Any], place: str) -> None:
    memory.tapes.append("t", messages(0))
    with pytest.raises(InvalidValue, match=place):
        memory.checkpoints.save("t", **states)
    assert memory.checkpoints.list("t") == []


def test_what_is_not_there(memory: Any) -> None:
    with pytest.raises(NotFound, match="no tape 't'"):
        memory.checkpoints.save("t")
    with pytest.raises(NotFound, match="no tape 't'"):
        memory.checkpoints.save("t", checkpoint_id="c")
    for call in (memory.checkpoints.load, memory.checkpoints.restore):
        with pytest.raises(NotFound, match="no checkpoint 'c'"):
            call("c")
    assert memory.checkpoints.list("t") == []
    assert not memory.checkpoints.delete("c")


def test_the_list_is_ordered_by_instant_whatever_the_offset(memory: Any) -> None:
    memory.tapes.append("t", messages(0))
    noon = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
    moments = {
        "fourth": noon + timedelta(microseconds=1),
        "third": noon.astimezone(timezone(timedelta(hours=-9))),
        "first": (noon - timedelta(hours=1)).astimezone(timezone(timedelta(hours=9))).isoformat(),
        "second": noon - timedelta(seconds=1),
    }
    for name, moment in moments.items():
        memory.checkpoints.save("t", checkpoint_id=name, created_at=moment)
    memory.checkpoints.save("t", checkpoint_id="now")
    found = memory.checkpoints.list("t")
    assert [info.checkpoint_id for info in found] == ["first", "second", "third", "fourth", "now"]
    assert [info.created_at for info in found] == sorted(info.created_at for info in found)
    assert [info.created_at for info in found[2:4]] == [noon, noon + timedelta(microseconds=1)]
    assert [info.checkpoint_id for info in memory.checkpoints.list("t", limit=2, offset=1)] == ["second", "third"]


def test_the_list_and_saving_read_no_entry(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1, 2))
    memory.checkpoints.save("t", label="x")
    if backend.dialect == "sqlite":
        import apsw

        connection = apsw.Connection(backend.url)
        connection.execute("drop table tape_entries")
        connection.close()
    else:
        import psycopg

        with psycopg.connect(backend.url) as connection:
            connection.execute("drop table tape_entries")
    memory.checkpoints.save("t", label="y")
    assert [(info.label, info.entry_count) for info in memory.checkpoints.list("t")] == [("x", 3), ("y", 3)]


def test_a_cut_tape_keeps_what_a_checkpoint_names(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(*range(6)))
    old = memory.checkpoints.save("t").checkpoint_id
    memory.tapes.append("t", messages(6, 7))
    memory.tapes.truncate("t", 2)
    assert stored(backend) == 6, "the entries after the checkpoint are nobody's"
    memory.tapes.append("t", messages(22, 33, 44))
    new = memory.checkpoints.save("t").checkpoint_id
    memory.tapes.truncate("t", 3)
    memory.tapes.append("t", messages(333))
    for store in (memory, backend.open()):
        assert store.checkpoints.load(old).entries == messages(*range(6))
        assert store.checkpoints.load(new).entries == messages(0, 1, 22, 33, 44)
        assert store.tapes.load("t") == messages(0, 1, 22, 333)
    assert memory.checkpoints.delete(old)
    assert not memory.checkpoints.delete(old)
    assert memory.checkpoints.load(new).entries == messages(0, 1, 22, 33, 44)
    assert stored(backend) == 6
    memory.checkpoints.delete(new)
    assert stored(backend) == 4
    memory.tapes.delete("t")
    assert stored(backend) == branches(backend) == 0


def test_restoring_goes_on_from_there_and_later_checkpoints_go(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", [*messages(0), handoff(), *messages(2)])
    first = memory.checkpoints.save("t", checkpoint_id="first", plugin_states={"p": 1})
    memory.tapes.append("t", messages(3))
    memory.checkpoints.save("t", checkpoint_id="second")
    memory.tapes.append("t", [handoff("later"), *messages(5)])
    memory.checkpoints.save("t", checkpoint_id="third")
    memory.tapes.append("other", messages(9))
    memory.checkpoints.save("other", checkpoint_id="other")

    restored = memory.checkpoints.restore("second")
    assert restored.entries == memory.tapes.load("t") == [*messages(0), handoff(), *messages(2, 3)]
    assert [info.checkpoint_id for info in memory.checkpoints.list("t")] == ["first", "second"]
    assert memory.tapes.window("t").window_start == 1
    assert memory.tapes.append("t", messages(44)) == 5
    assert memory.checkpoints.load("second").entries == [*messages(0), handoff(), *messages(2, 3)]

    again = memory.checkpoints.restore("first")
    assert (again.plugin_states, again.window_start) == ({"p": 1}, first.window_start)
    assert memory.tapes.load("t") == [*messages(0), handoff(), *messages(2)]
    assert [info.checkpoint_id for info in memory.checkpoints.list("t")] == ["first"]
    assert [info.checkpoint_id for info in memory.checkpoints.list("other")] == ["other"]
    assert memory.tapes.load("other") == messages(9)


def test_the_old_line_stays_readable(memory: Any, backend: Backend) -> None:
    """Known fault 14: restoring and going on behaves like a fork and leaves the old line readable."""
    memory.tapes.append("t", messages(1, 2))
    saved = memory.checkpoints.save("t").checkpoint_id
    memory.tapes.append("t", messages(3, 4))
    memory.checkpoints.restore(saved)
    memory.tapes.append("t", messages(33))
    memory.checkpoints.restore(saved)
    memory.checkpoints.restore(saved)
    lines = backend.open().tapes.lines("t")
    assert [(line.tape_id, line.length) for line in lines] == [("t", 4), ("t", 3)]
    assert memory.tapes.load("t") == messages(1, 2)
    old = memory.tapes.fork("t", line=lines[0].line)
    assert memory.tapes.load(old) == messages(1, 2, 3, 4)
    assert memory.tapes.load(memory.tapes.fork("t", line=lines[1].line, at=3)) == messages(1, 2, 33)
    assert memory.tapes.list() == sorted(memory.tapes.list())
    assert memory.tapes.forget_lines("t") == 2
    assert memory.tapes.lines("t") == []
    assert memory.tapes.load(old) == messages(1, 2, 3, 4)
    for name in memory.tapes.list():
        memory.tapes.delete(name)
    assert stored(backend) == branches(backend) == count(backend, "tape_lines") == count(backend, "checkpoints") == 0


def test_restoring_where_the_tape_stands_leaves_no_line(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1))
    saved = memory.checkpoints.save("t").checkpoint_id
    memory.checkpoints.restore(saved)
    memory.tapes.truncate("t", 1)
    memory.checkpoints.restore(saved)
    assert memory.tapes.lines("t") == []
    assert memory.tapes.load("t") == messages(0, 1)
    assert stored(backend) == 2


def test_restoring_after_a_cut_to_nothing(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1))
    saved = memory.checkpoints.save("t").checkpoint_id
    memory.tapes.truncate("t", 0)
    memory.tapes.append("t", messages(7, 8, 9))
    memory.checkpoints.restore(saved)
    assert memory.tapes.append("t", messages(2)) == 3
    assert memory.tapes.load("t") == messages(0, 1, 2)
    [line] = memory.tapes.lines("t")
    assert memory.tapes.load(memory.tapes.fork("t", line=line.line)) == messages(7, 8, 9)


def test_a_checkpoint_of_one_id_is_replaced(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1, 2))
    memory.tapes.append("u", messages(5))
    memory.checkpoints.save("t", checkpoint_id="c", label="old", extra={"a": 1})
    memory.tapes.truncate("t", 1)
    assert stored(backend) == 4
    saved = memory.checkpoints.save("u", checkpoint_id="c", label="new")
    assert (saved.tape_id, saved.label, saved.extra) == ("u", "new", {})
    assert memory.checkpoints.list("t") == []
    assert memory.checkpoints.load("c").entries == messages(5)
    assert stored(backend) == 2, "nothing names the entries that were cut off any more"
    memory.checkpoints.save("u", checkpoint_id="c")
    assert [info.checkpoint_id for info in memory.checkpoints.list("u")] == ["c"]
    with pytest.raises(NotFound):
        memory.checkpoints.save("nowhere", checkpoint_id="c")
    assert memory.checkpoints.load("c").entries == messages(5), "a save that fails leaves the old one"


def test_checkpoints_of_forks(memory: Any, backend: Backend) -> None:
    memory.tapes.append("t", messages(0, 1, 2))
    memory.tapes.fork("t", "f", at=2)
    at_fork = memory.checkpoints.save("f").checkpoint_id
    memory.tapes.append("f", messages(22))
    after = memory.checkpoints.save("f").checkpoint_id
    memory.tapes.truncate("f", 1)
    memory.tapes.truncate("t", 1)
    assert memory.checkpoints.load(at_fork).entries == messages(0, 1)
    assert memory.checkpoints.load(after).entries == messages(0, 1, 22)
    memory.tapes.delete("t")
    memory.checkpoints.restore(after)
    assert memory.tapes.load("f") == messages(0, 1, 22)
    memory.tapes.delete("f")
    assert stored(backend) == branches(backend) == 0


def test_in_a_transaction(memory: Any) -> None:
    memory.tapes.append("t", messages(0, 1))
    saved = memory.checkpoints.save("t").checkpoint_id
    with pytest.raises(ZeroDivisionError), memory.transaction() as tx:
        tx.tapes.append("t", messages(2))
        tx.checkpoints.restore(saved)
        tx.checkpoints.save("t", label="inside")
        assert tx.tapes.load("t") == messages(0, 1)
        raise ZeroDivisionError
    assert [info.label for info in memory.checkpoints.list("t")] == [None]
    assert memory.tapes.lines("t") == []

"""Sessions: the list, its order and counts, and deletion, on every backend."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from test_search_index import foreign, insert

from crowmem import Memory
from crowmem.errors import InvalidValue, NotFound
from crowmem.scope import agent_parts


def fill(memory: Any, session: str, *, day: int, messages: int = 2, **agent: Any) -> None:
    memory.agents.create(f"{session}-1-1", session, created_at="2025-01-01", **agent)
    batch = [
        {"role": "system", "content": "s"},
        *({"role": "user", "content": f"hello {session}"} for _ in range(messages - 1)),
    ]
    memory.messages.add_many(f"{session}-1-1", batch, created_ats=[f"2026-01-{day:02d}"] * messages)


def names(memory: Any, **arguments: Any) -> list[str]:
    return [info.session_id for info in memory.sessions.list(**arguments)]


def test_newest_message_first_with_counts(memory: Any) -> None:
    fill(memory, "old", day=1, messages=3, model_identifier="m1", cwd="/a")
    fill(memory, "new", day=9, cwd="/b")
    memory.agents.create("idle-1-1", "idle", created_at="2026-01-05")
    assert names(memory) == ["new", "idle", "old"]
    old = memory.sessions.get("old")
    assert (old.message_count, old.agent_count, old.model_identifier, old.cwd, old.title) == (
        3,
        1,
        "m1",
        "/a",
        "hello old",
    )
    assert old.last_activity == datetime(2026, 1, 1, tzinfo=UTC)
    idle = memory.sessions.get("idle")
    assert (idle.message_count, idle.title, idle.last_activity) == (0, None, datetime(2026, 1, 5, tzinfo=UTC))
    assert memory.sessions.get("nobody") is None
    assert names(memory, cwd="/b") == ["new"]
    assert names(memory, limit=1, offset=1) == ["idle"]


def test_pages_by_key_cover_everything_once(memory: Any) -> None:
    for number in range(23):
        fill(memory, f"s{number:02d}", day=1 + number % 3)
    for arguments in ({}, {"include_forks": True}, {"cwd": "/tmp"}):
        everything = names(memory, **arguments)
        assert sorted(everything) == [f"s{number:02d}" for number in range(23)]
        found: list[str] = []
        last = None
        while page := memory.sessions.list(limit=5, after=last, **arguments):
            found += [info.session_id for info in page]
            last = page[-1]
        assert found == everything


def test_forks_count_only_when_asked(memory: Any) -> None:
    fill(memory, "s", day=1)
    fork = memory.agents.fork("s-1-1")
    memory.messages.add(fork.agent_id, {"role": "user", "content": "forked"}, created_at="2026-02-01")
    [trunk] = memory.sessions.list()
    [both] = memory.sessions.list(include_forks=True)
    assert (trunk.message_count, trunk.agent_count, trunk.last_activity.month) == (2, 1, 1)
    assert (both.message_count, both.agent_count, both.last_activity.month) == (3, 2, 2)


def test_compaction_stays_one_line_with_the_newest_agents_model(memory: Any) -> None:
    fill(memory, "s", day=1, model_identifier="first", cwd="/one")
    memory.agents.create("s-2-1", "s", model_identifier="second", cwd="/two")
    memory.agents.create("s-3-2", "s", model_identifier="forked", cwd="/three")
    [info] = memory.sessions.list()
    assert (info.agent_count, info.model_identifier, info.cwd) == (2, "second", "/two")
    memory.agents.set_model("s-2-1", "changed")
    assert memory.sessions.get("s").model_identifier == "changed"


@pytest.mark.parametrize(
    ("second", "title"),
    [
        ({"content": "  plain  "}, "plain"),
        ({"content": "x" * 60}, "x" * 50),
        ({"content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]}, "one two"),
        ({"content": "  "}, None),
        ({"content": None}, None),
        ({"content": "nul\0half\ud800"}, "nul\ufffdhalf\ufffd"),
    ],
)
def test_the_second_message_of_agent_1_gives_the_title(memory: Any, second: dict[str, Any], title: str | None) -> None:
    memory.agents.create("s-1-1", "s")
    memory.agents.create("s-2-1", "s")
    memory.messages.add("s-2-1", {"content": "other agent"})
    memory.messages.add("s-1-1", {"content": "first"})
    memory.messages.add("s-1-1", second)
    memory.messages.add("s-1-1", {"content": "third"})
    assert memory.sessions.get("s").title == title
    memory.agents.create("t-1-1", "t")
    memory.messages.add_many("t-1-1", [{"content": "first"}, second, {"content": "third"}])
    assert memory.sessions.get("t").title == title


def test_a_title_that_was_given_stays(memory: Any) -> None:
    memory.agents.create("s-1-1", "s")
    memory.sessions.set_title("s", "given")
    memory.messages.add_many("s-1-1", [{"content": "a"}, {"content": "b"}])
    assert memory.sessions.get("s").title == "given"
    memory.sessions.set_title("s", None)
    assert memory.sessions.get("s").title is None


def test_exists(memory: Any) -> None:
    memory.agents.create("run-1-1", "run")
    memory.agents.create("run-2-2", "run")
    memory.agents.create("a-3-2-1-1", "a-3-2")
    assert [memory.sessions.exists(name) for name in ("run", "run-1-1", "run-2-2", "a-3-2")] == [True] * 4
    assert [memory.sessions.exists(name) for name in ("ru", "run-1-2", "a", "run-1", "", "run-9-9")] == [False] * 6


def test_delete_takes_everything_of_the_session_and_nothing_of_its_neighbour(memory: Any) -> None:
    fill(memory, "gone", day=1, messages=5)
    fill(memory, "stays", day=2)
    fork = memory.agents.fork("gone-1-1")
    memory.messages.add(fork.agent_id, {"content": "forked"})
    assert memory.sessions.delete("nobody") is None
    assert memory.sessions.delete("gone-7-7") is None
    deleted = memory.sessions.delete(fork.agent_id)
    assert (deleted.session_id, deleted.counts["messages"], deleted.counts["agents"]) == ("gone", 6, 2)
    assert names(memory, include_forks=True) == ["stays"]
    assert memory.messages.load("gone-1-1") == []
    assert len(memory.messages.load("stays-1-1")) == 2
    assert memory.sessions.get("stays").message_count == 2
    assert memory.sessions.delete("gone") is None
    fill(memory, "gone", day=3)
    assert memory.sessions.get("gone").message_count == 2


def test_a_session_of_messages_without_an_agent_row_is_seen_and_deleted(memory: Any) -> None:
    fill(memory, "s", day=1)
    fill(memory, "stays", day=1)
    assert memory.sessions.delete("s") is not None
    assert not memory.sessions.exists("s")
    memory.messages.add("s-1-1", {"role": "user", "content": "went on zebra"}, created_at="2026-01-05")
    memory.messages.add_many("s-2-3", [{"content": "one"}, {"content": "two"}], created_ats=["2026-01-06"] * 2)
    assert [memory.sessions.exists(name) for name in ("s", "s-1-1", "s-2-3", "s-2-1", "s-1-2")] == [True] * 3 + [
        False
    ] * 2
    info = memory.sessions.get("s")
    assert (info.message_count, info.agent_count, info.model_identifier, info.cwd) == (3, 0, "", "")
    assert info.last_activity == datetime(2026, 1, 6, tzinfo=UTC)
    [first, *_] = memory.sessions.list()
    assert (first.session_id, first.message_count, first.last_activity.day) == ("s", 1, 5)
    assert [message.data for message in memory.messages.query(session_id="s", agent_idx=2)] == [
        {"content": "one"},
        {"content": "two"},
    ]
    assert len(memory.messages.follow(0, session_id="s")) == 3
    assert memory.agents.ids("s") == ["s-1-1", "s-2-3"]
    assert memory.check(deep=True) == []
    deleted = memory.sessions.delete("s-2-3")
    assert (deleted.session_id, deleted.counts["messages"], deleted.counts["agents"]) == ("s", 3, 0)
    assert not memory.sessions.exists("s")
    assert memory.sessions.delete("s") is None
    assert memory.messages.load("s-1-1") == memory.messages.load("s-2-3") == memory.search.messages("zebra") == []
    assert names(memory, include_forks=True) == ["stays"]


def test_an_agent_row_that_comes_after_its_messages_counts_them(memory: Any) -> None:
    memory.messages.add_many("s-1-1", [{"content": "a"}, {"content": "title"}], created_ats=["2026-01-02"] * 2)
    memory.agents.create("s-1-1", "s", created_at="2026-03-01", model_identifier="m", cwd="/c")
    info = memory.sessions.get("s")
    assert (info.message_count, info.agent_count, info.model_identifier, info.cwd, info.title) == (
        2,
        1,
        "m",
        "/c",
        "title",
    )
    assert info.last_activity == datetime(2026, 1, 2, tzinfo=UTC)
    assert memory.check(deep=True) == []


@pytest.mark.parametrize(
    ("agent_id", "session_id"),
    [("a-1-1", "a"), ("a-1-1-2-3", "a-1-1"), ("odd", "odd"), ("-1-1", "-1-1"), ("a-1-", "a-1-"), ("a-12345678901-1", "a-12345678901-1"),
     ("a-1-2147483648", "a-1-2147483648"), ("a-007-1", "a"), ("a\nb-1-1", "a\nb"), ("é-1-1", "é")],
)  # fmt: skip
def test_an_id_without_a_row_belongs_to_the_session_that_it_names(
    backend: Any, memory: Any, agent_id: str, session_id: str
) -> None:
    memory.status()
    foreign(backend, insert("needle", agent_id))
    assert agent_parts(agent_id).session_id == session_id
    assert names(memory, include_forks=True) == [session_id]
    assert [hit.session_id for hit in memory.search.messages("needle", session_id=session_id)] == [session_id]
    assert memory.sessions.delete(session_id).counts["messages"] == 1
    assert names(memory, include_forks=True) == []
    assert memory.check(deep=True) == []


def test_what_another_program_deletes_is_not_counted_any_more(backend: Any, memory: Any) -> None:
    memory.agents.create("s-1-1", "s", created_at="2026-01-01")
    fork = memory.agents.fork("s-1-1").agent_id
    for day, agent_id in enumerate(("s-1-1", "s-1-1", fork, "s-1-1", "s-2-1"), 2):
        memory.messages.add(agent_id, {"n": day}, created_at=f"2026-01-{day:02d}")

    def line(**which: Any) -> tuple[int, int]:
        [info] = memory.sessions.list(**which)
        return info.message_count, info.last_activity.day

    assert (line(), line(include_forks=True)) == ((4, 6), (5, 6))
    foreign(backend, "delete from messages where agent_id = 's-2-1'")
    assert (line(), line(include_forks=True)) == ((3, 5), (4, 5))
    foreign(backend, "delete from messages where id = 4")
    assert (line(), line(include_forks=True)) == ((2, 3), (3, 4))
    foreign(backend, "delete from agents where agent_id = 's-1-1'")
    assert (line(), memory.sessions.get("s").agent_count) == ((2, 3), 1)
    foreign(backend, "delete from messages where id < 3")
    assert names(memory) == []
    assert line(include_forks=True) == (1, 4)
    foreign(backend, "delete from agents", "delete from messages")
    assert names(memory, include_forks=True) == []
    assert memory.check(deep=True) == []


def test_an_add_that_waited_for_the_deletion_leaves_a_session_that_can_be_deleted(pg_clean: str) -> None:
    with Memory.open(pg_clean) as memory, psycopg.connect(pg_clean, autocommit=True) as watch:
        fill(memory, "s", day=1)
        adding = threading.Thread(target=memory.messages.add, args=("s-1-1", {"content": "latecomer"}))
        with memory.transaction() as tx:
            tx.sessions.delete("s")
            adding.start()
            while not watch.execute("select 1 from pg_locks where not granted").fetchone():
                continue
        adding.join()
        assert memory.messages.load("s-1-1") == [{"content": "latecomer"}]
        assert memory.check(deep=True) == []
        assert memory.sessions.delete("s").counts["messages"] == 1


def test_delete_takes_what_another_transaction_commits_meanwhile(pg_clean: str) -> None:
    with Memory.open(pg_clean) as memory, psycopg.connect(pg_clean, autocommit=True) as watch:
        fill(memory, "s", day=1)
        deleting = threading.Thread(target=memory.sessions.delete, args=("s",))
        with memory.transaction() as tx:
            tx.messages.add("s-1-1", {"role": "user", "content": "latecomer"})
            deleting.start()
            while not watch.execute("select 1 from pg_locks where not granted").fetchone():
                continue
        deleting.join()
        assert memory.messages.load("s-1-1") == []
        assert memory.search.messages("latecomer") == []
        memory.agents.create("s-1-1", "s")
        assert [info.message_count for info in memory.sessions.list()] == [0]


@pytest.mark.parametrize("has_row", [True, False])
def test_a_row_of_another_program_that_waited_for_the_deletion_is_counted(pg_clean: str, has_row: bool) -> None:
    with (
        Memory.open(pg_clean) as memory,
        psycopg.connect(pg_clean, autocommit=True) as watch,
        psycopg.connect(pg_clean, autocommit=True) as other,
    ):
        if has_row:
            memory.agents.create("other-1-1", "other")
        memory.messages.add("other-1-1", {"content": "before"})
        inserting = threading.Thread(target=other.execute, args=(insert("kangaroo"),))
        with memory.transaction() as tx:
            tx.sessions.delete("other")
            inserting.start()
            while not watch.execute("select 1 from pg_locks where not granted").fetchone():
                continue
        inserting.join()
        assert [(info.session_id, info.message_count, info.agent_count) for info in memory.sessions.list()] == [
            ("other", 1, 0)
        ]
        assert memory.check(deep=True) == []


def test_a_model_is_set_in_the_order_of_locks_that_a_deletion_keeps(pg_clean: str) -> None:
    with (
        Memory.open(pg_clean) as memory,
        psycopg.connect(pg_clean, autocommit=True) as watch,
        psycopg.connect(pg_clean) as other,
    ):
        fill(memory, "s", day=1)
        raised: list[Exception] = []

        def set_model() -> None:
            try:
                memory.agents.set_model("s-1-1", "m")
            except NotFound as error:
                raised.append(error)

        setting = threading.Thread(target=set_model)
        other.execute("select 1 from session_summaries where session_id = 's' for update")
        setting.start()
        while not watch.execute("select 1 from pg_locks where not granted").fetchone():
            continue
        other.execute("delete from agents where agent_id = 's-1-1'")
        other.commit()
        setting.join()
        assert len(raised) == 1
        assert memory.check(deep=True) == []


def test_a_session_whose_name_looks_like_an_agent_id_is_found_by_its_name(memory: Any) -> None:
    fill(memory, "run", day=1)
    fill(memory, "run-1-1", day=2)
    assert memory.sessions.delete("run-1-1").session_id == "run-1-1"
    assert names(memory) == ["run"]


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"limit": "x"}, {"offset": -1}, {"cwd": "a\0"}])
def test_bad_bounds(memory: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        memory.sessions.list(**arguments)


def test_prompts_are_stored_once(backend: Any) -> None:
    one, two = backend.open(), backend.open()
    first = one.prompts.intern("You are {name}.", name="mine")
    assert two.prompts.intern("You are {name}.", name="other") == first
    assert one.prompts.intern("You are {name}. ") != first
    prompt = two.prompts.get(first)
    assert (prompt.id, prompt.name, prompt.template) == (first, "mine", "You are {name}.")
    assert two.prompts.get("nothing") is None


def test_a_transaction_commits_or_leaves_nothing(memory: Any) -> None:
    with pytest.raises(RuntimeError, match="stop"), memory.transaction() as tx:
        tx.agents.create("s-1-1", "s")
        tx.messages.add("s-1-1", {"n": 1})
        raise RuntimeError("stop")
    assert names(memory) == []
    assert memory.messages.load("s-1-1") == []
    with memory.transaction() as tx:
        tx.agents.create("s-1-1", "s")
        with pytest.raises(RuntimeError, match="inner"), tx.transaction() as inner:
            inner.messages.add("s-1-1", {"n": 1})
            raise RuntimeError("inner")
        tx.messages.add("s-1-1", {"n": 2})
    assert memory.messages.load("s-1-1") == [{"n": 2}]
    assert memory.sessions.get("s").message_count == 1


def test_a_folder_of_any_length_lists_its_sessions_in_order(memory):
    """PostgreSQL's index rows end at 2,704 bytes; a folder of 5,000 was refused there."""
    folder = "/" + "".join(map(chr, range(0x4E00, 0x4E00 + 5_000)))
    with memory.transaction() as tx:
        for number in (2, 1, 3):
            tx.agents.create(f"deep{number}-1-1", f"deep{number}", cwd=folder, created_at="2026-01-01T00:00:00+00:00")
        tx.agents.create("shallow-1-1", "shallow", cwd=folder[:-1])
    first = memory.sessions.list(cwd=folder, limit=2)
    assert [one.session_id for one in first] == ["deep1", "deep2"]
    assert [one.session_id for one in memory.sessions.list(cwd=folder, after=first[-1])] == ["deep3"]

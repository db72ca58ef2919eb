"""The index follows the messages: rows of other programs, deletions, damage, and being made again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from crowmem import AsyncMemory, Memory
from crowmem.errors import Conflict, StoreCorrupt
from crowmem.upkeep import BATCH

INSERT = (
    "insert into messages (agent_id, fork_idx, created_at, data, role)"
    " values ('{agent}', 1, '2026-01-01T00:00:00.000000+00:00', '{data}', 'user')"
)


def foreign(backend: Any, *statements: str) -> None:
    """Run statements as another program would."""
    if backend.dialect == "sqlite":
        connection = apsw.Connection(backend.url)
        connection.set_busy_timeout(5000)
        with connection:
            for sql in statements:
                connection.execute(sql)
        connection.close()
    else:
        with psycopg.connect(backend.url) as server:
            for sql in statements:
                server.execute(sql)


def insert(text: str, agent: str = "other-1-1") -> str:
    return INSERT.format(agent=agent, data=f'{{"role":"user","content":"{text}"}}')


def ids(memory: Any, query: str, **limits: Any) -> list[int]:
    return [hit.id for hit in memory.search.messages(query, **limits)]


def test_rows_that_another_program_writes_are_found(backend: Any, memory: Any) -> None:
    memory.messages.add("s-1-1", {"role": "user", "content": "ours"})
    foreign(backend, insert("kangaroo first"), insert("the kangaroo answers"))
    assert memory.status().search["lagging"] == 2
    assert ids(memory, "kangaroo") == [2, 3]
    assert ids(memory, "kangaroo", session_id="other") == [2, 3]
    assert ids(memory, "kangaroo", after="2026-01-02T00:00:00+00:00") == []
    assert memory.status().search["lagging"] == 0
    assert memory.check(deep=True) == []


def test_a_session_that_another_program_wrote_gets_its_title(backend: Any, memory: Any) -> None:
    memory.agents.create("other-1-1", "other")
    memory.messages.add_many("s-1-1", [{"role": "user", "content": "ours"}, {"role": "assistant", "content": None}])
    foreign(backend, insert("system words"))
    assert memory.sessions.get("other").title is None
    foreign(backend, insert("please fix the build"), insert("thanks"))

    def titles(**arguments: Any) -> dict[str, str | None]:
        return {info.session_id: info.title for info in memory.sessions.list(**arguments)}

    for _ in range(2):  # before a search, and after it has indexed and named it
        assert memory.sessions.get("other").title == "please fix the build"
        for arguments in ({}, {"include_forks": True}):
            assert titles(**arguments) == {"other": "please fix the build", "s": None}
        assert titles(cwd="/tmp") == {"other": "please fix the build"}
        memory.search.messages("anything")
    memory.sessions.set_title("other", None)
    assert memory.sessions.get("other").title is None


def test_rows_that_are_no_message_stay_and_harm_nothing(backend: Any, memory: Any) -> None:
    values = ["[1, 2]", '"text"', "null", "{}", '{"content": 5}']
    foreign(backend, *(INSERT.format(agent="x", data=value) for value in values))
    memory.messages.add("s-1-1", {"role": "user", "content": "needle"})
    assert ids(memory, "needle") == [len(values) + 1]
    assert memory.status().search["lagging"] == 0
    assert memory.check(deep=True) == []


def test_what_another_program_deletes_or_changes_is_not_found_any_more(backend: Any, memory: Any) -> None:
    for number in range(5):
        memory.messages.add("s-1-1", {"role": "user", "content": f"needle number{number}"})
    foreign(
        backend,
        "delete from messages where id = 2",
        """update messages set data = '{"role":"user","content":"platypus"}' where id = 4""",
    )
    assert ids(memory, "needle") == [5, 3, 1]
    assert ids(memory, "platypus") == [4]
    assert ids(memory, "number3") == []
    assert memory.check(deep=True) == []


def test_a_read_only_store_says_how_far_its_index_lags(backend: Any, memory: Any) -> None:
    memory.messages.add("s-1-1", {"role": "user", "content": "needle one"})
    memory.messages.add("s-1-1", {"role": "user", "content": "needle two"})
    foreign(backend, insert("needle three"), "delete from messages where id = 1")
    reader = backend.open(read_only=True)
    assert ids(reader, "needle") == [2]
    assert reader.status().search["lagging"] == 1
    assert ids(memory, "needle") == [3, 2]
    assert ids(reader, "needle") == [3, 2]


def test_more_rows_than_one_batch(backend: Any, memory: Any) -> None:
    count = 2 * BATCH + 10
    foreign(backend, *(insert(f"needle number{number}") for number in range(count)))
    assert len(ids(memory, "needle", limit=1000)) == count
    foreign(backend, "delete from messages where id % 2 = 0")
    assert len(ids(memory, "needle", limit=1000)) == count // 2
    assert memory.check(deep=True) == []


def test_several_stores_catch_up_at_once(backend: Any, memory: Any) -> None:
    count = 3 * BATCH
    foreign(backend, *(insert(f"needle number{number}") for number in range(count)))
    failures: list[BaseException] = []

    def search() -> None:
        try:
            with Memory.open(backend.url) as other:
                other.search.messages("needle")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(ids(memory, "needle", limit=1000)) == count
    assert memory.check(deep=True) == []
    assert memory.status().search["documents"] == count


def test_a_deleted_session_leaves_the_index_and_the_file(backend: Any, memory: Any) -> None:
    memory.agents.create("gone-1-1", "gone")
    memory.agents.create("kept-1-1", "kept")
    for number in range(50):
        memory.messages.add("kept-1-1", {"role": "user", "content": f"common number{number}"})
        memory.messages.add("gone-1-1", {"role": "user", "content": "common xylophonesecret"})
    assert memory.sessions.delete("gone").counts["messages"] == 50
    assert ids(memory, "xylophonesecret") == []
    assert len(ids(memory, "common", limit=1000)) == 50
    assert memory.status().search["documents"] == 50
    assert memory.check(deep=True) == []
    if backend.dialect == "sqlite":
        backend.close()
        files = Path(backend.url).parent.glob(Path(backend.url).name + "*")
        assert [file.name for file in files if b"xylophonesecret" in file.read_bytes()] == []


def test_an_id_that_is_given_out_again_finds_only_the_new_words(tmp_path: Path) -> None:
    """crow-cli's own tables give a deleted newest row's number to the next."""
    path = tmp_path / "crow.db"
    connection = apsw.Connection(str(path))
    connection.execute(
        """
        create table prompts (id text primary key not null, name text not null, template text not null, created_at text not null);
        create table agents (agent_id text primary key not null, session_id text not null, agent_idx integer not null,
            fork_idx integer not null, forked_at text, cwd text not null, prompt_id text, prompt_args json,
            system_prompt text not null, tool_definitions json not null, mcp_servers json, request_params json not null,
            model_identifier text not null, status text not null, created_at text not null);
        create table messages (id integer not null primary key, agent_id text not null, fork_idx integer not null,
            created_at text not null, data json not null, role text not null, prompt_tokens integer,
            completion_tokens integer, total_tokens integer)
        """
    )
    connection.close()
    with Memory.open(path) as memory:
        memory.messages.add("s-1-1", {"role": "user", "content": "first"})
        old = memory.messages.add("s-1-1", {"role": "user", "content": "elephant"})
        other = apsw.Connection(str(path))
        other.execute("delete from messages where id = ?", (old,))
        new = memory.messages.add("s-1-1", {"role": "user", "content": "giraffe"})
        assert new == old
        assert ids(memory, "giraffe") == [new]
        assert ids(memory, "elephant") == []
        assert memory.check(deep=True) == []
        other.close()


class Stop(Exception):
    """Ends a reindexing in its middle."""


def test_a_reindexing_that_was_cut_short_goes_on(backend: Any, memory: Any) -> None:
    count = 3 * BATCH
    memory.messages.add_many(
        "s-1-1", [{"role": "user", "content": f"needle number{number}"} for number in range(count)]
    )
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        if len(seen) == 2:
            raise Stop

    with pytest.raises(Stop):
        memory.search.reindex(progress=progress)
    assert seen == [(BATCH, count), (2 * BATCH, count)]
    [problem] = memory.check()
    assert f"message {2 * BATCH}" in problem
    assert len(ids(memory, "needle", limit=1000)) == count
    assert memory.search.reindex() == BATCH
    assert memory.check(deep=True) == []
    assert len(ids(memory, "needle", limit=1000)) == count
    assert memory.status().search["documents"] == count


def test_a_reindexing_with_other_settings_begins_anew(memory: Any) -> None:
    memory.messages.add_many("s-1-1", [{"role": "user", "content": "needles"}] * (2 * BATCH))

    def stop(done: int, total: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        memory.search.reindex(progress=stop)
    assert memory.search.reindex(stem=True) == 2 * BATCH
    assert len(ids(memory, "needle", limit=1000)) == 2 * BATCH


def test_searches_and_writes_go_on_during_a_reindexing(backend: Any, memory: Any) -> None:
    memory.messages.add_many("s-1-1", [{"role": "user", "content": "needle"}] * (2 * BATCH))
    other = backend.blocking()
    found: list[int] = []

    def progress(done: int, total: int) -> None:
        other.messages.add("s-1-1", {"role": "user", "content": "needle"})
        found.append(len(other.search.messages("needle", limit=1000)))

    memory.search.reindex(progress=progress)
    assert found == [2 * BATCH + number for number in range(1, len(found) + 1)]
    assert len(ids(memory, "needle", limit=1000)) == found[-1]
    assert memory.check(deep=True) == []


def test_index_care_needs_transactions_of_its_own(memory: Any) -> None:
    with memory.transaction() as tx:
        for work in (tx.search.reindex, tx.search.optimize):
            with pytest.raises(Conflict):
                work()


DAMAGE = {
    "missing": {
        "sqlite": "delete from message_index where rowid = 3 << 6",
        "postgres": "delete from message_index where message_id = 3",
    },
    "stale": {
        "sqlite": "insert or replace into message_index (rowid, text, scope) values (3 << 6, 'a b c', 'd')",
        "postgres": "update message_index set len = 99, tsv = 'a' where message_id = 3",
    },
    "other words": {
        "sqlite": "insert or replace into message_index (rowid, text, scope) values (3 << 6, 'needle wrong', '\ue000ss \ue000ruser \ue000w1')",
        "postgres": "update message_index set tsv = ts_delete(tsv, 'number2') || 'wrong:2' where message_id = 3",
    },
    "orphan": {
        "sqlite": "insert into message_index (rowid, text, scope) values (77 << 6, 'needle', 'd')",
        "postgres": "insert into message_index values (77, 0, 3, 'needle:1')",
    },
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_check_finds_what_is_wrong_and_reindex_mends_it(backend: Any, memory: Any, kind: str) -> None:
    for number in range(5):
        memory.messages.add("s-1-1", {"role": "user", "content": f"needle number{number}"})
    foreign(backend, DAMAGE[kind][backend.dialect])
    assert memory.check() == []  # a quick look does not read every message
    found = memory.check(deep=True)
    said = {"orphan": "77", "other words": "its words" if backend.dialect == "sqlite" else "the first is 3"}
    assert said.get(kind, "the first is 3") in found[0], found
    memory.search.reindex()
    assert memory.check(deep=True) == []
    assert ids(memory, "needle") == [5, 4, 3, 2, 1]


CORRUPTION = {
    "pages": "update message_index_data set block = zeroblob(length(block)) where id > 10",
    "the list of pages": "update message_index_data set block = x'0000000000000102030405060708' where id = 10",
    "no list of pages": "update message_index_data set block = x'' where id = 10",
    "sums": "update message_index_data set block = x'0102' where id = 1",
    "no sums": "delete from message_index_data where id = 1",
    "letters": "update message_index_data set block = cast(replace(block, 'needle', 'noodle') as blob) where id > 10",
    "lengths": "update message_index_docsize set sz = x'' where id % 5 = 0",
    "rows": "delete from message_index_docsize where id % 5 = 0",
}


@pytest.mark.parametrize("kind", CORRUPTION)
def test_a_corrupt_index_is_found_and_made_again(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "crow.db"
    with Memory.open(path) as memory:
        memory.messages.add_many(
            "s-1-1", [{"role": "user", "content": f"needle number{number}"} for number in range(600)]
        )
        memory.search.optimize()
    other = apsw.Connection(str(path))
    other.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    other.execute(CORRUPTION[kind])
    assert other.changes()
    other.close()
    with Memory.open(path) as memory:
        for limits in ({}, {"session_id": "s"}):
            with contextlib.suppress(StoreCorrupt):
                memory.search.messages("needle", **limits)
        assert any("index" in problem for problem in memory.check(deep=True))
        assert memory.search.reindex() == 600
        assert memory.check(deep=True) == []
        assert len(ids(memory, "needle", limit=1000)) == 600


def test_a_reindexing_ends_where_messages_are_damaged(tmp_path: Path) -> None:
    """What the index can be made from is gone: it is left as it is."""
    path = tmp_path / "crow.db"
    with Memory.open(path) as memory:
        memory.messages.add_many("s-1-1", [{"role": "user", "content": f"needle n{number}"} for number in range(600)])
    other = apsw.Connection(str(path))
    [[root]] = other.execute("select rootpage from sqlite_schema where name = 'messages'")
    size = other.pragma("page_size")
    other.pragma("journal_mode", "delete")
    other.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * 100)
    with Memory.open(path) as memory:
        with pytest.raises(StoreCorrupt):
            memory.search.reindex()
        assert any("damaged" in problem or "check" in problem for problem in memory.check())


def test_optimize_keeps_everything_found(backend: Any, memory: Any) -> None:
    memory.messages.add_many("s-1-1", [{"role": "user", "content": f"needle number{number}"} for number in range(300)])
    foreign(backend, insert("needle foreign"), "delete from messages where id = 7")
    memory.search.optimize()
    memory.search.optimize()
    assert memory.status().search["lagging"] == 0
    assert len(ids(memory, "needle", limit=1000)) == 300
    assert memory.check(deep=True) == []


def test_a_cancelled_search_stops_at_once(backend: Any) -> None:
    """A cancelled search must not run on: it ends long before it would have."""
    words = [f"w{number}" for number in range(60)]
    with Memory.open(backend.url) as writer:
        for _ in range(40):
            writer.messages.add_many("s-1-1", [{"role": "user", "content": " ".join(words)}] * 200)

    async def measure() -> tuple[float, float]:
        async with AsyncMemory.open(backend.url) as memory:
            begun = time.perf_counter()
            await memory.search.messages(" ".join(words), match="any", exhaustive=True)
            whole = time.perf_counter() - begun
            task = asyncio.ensure_future(memory.search.messages(" ".join(words), match="any", exhaustive=True))
            await asyncio.sleep(whole / 10)
            begun = time.perf_counter()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            late = time.perf_counter() - begun
            assert len(await memory.search.messages("w1")) == 20
            return whole, late

    whole, late = asyncio.run(measure())
    assert late < max(0.1, whole / 2)


CHILD = """
import sys
from crowmem import Memory
words = [f"w{number}" for number in range(60)]
with Memory.open(sys.argv[1]) as memory:
    print("ready", flush=True)
    try:
        while True:
            memory.search.messages(" ".join(words), match="any", exhaustive=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        assert len(memory.search.messages("w1")) == 20
"""


@pytest.mark.slow  # it looks at the clock, which a busy machine spoils
@pytest.mark.parametrize("backend", ["sqlite-sync", "postgres-sync"], indirect=True)
def test_control_c_stops_a_search_at_once(backend: Any) -> None:
    words = [f"w{number}" for number in range(60)]
    with Memory.open(backend.url) as writer:
        for _ in range(40):
            writer.messages.add_many("s-1-1", [{"role": "user", "content": " ".join(words)}] * 200)
        begun = time.perf_counter()
        writer.search.messages(" ".join(words), match="any", exhaustive=True)
        whole = time.perf_counter() - begun
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, backend.url], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(whole / 3)
    begun = time.perf_counter()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "stopped\n"
    late = time.perf_counter() - begun
    child.stdout.close()
    assert child.wait() == 0
    assert late < max(0.1, whole / 2)

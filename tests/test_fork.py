"""A process that forks with an open store: nobody gets another's answers, and nobody's transaction is touched."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import pytest

from crowmem import Memory
from crowmem.errors import Closed, Unsupported

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


def in_child(work: Any) -> int:
    """Run in a forked child; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:  # the parent asserts on the exit code
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # Python warns of forks beside threads, which is what is tested
def test_the_child_leaves_its_parents_transaction_alone(dialect: str, request: Any, tmp_path: Any) -> None:
    url = str(tmp_path / "x.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    with Memory.open(url) as memory:
        memory.messages.add("s-1-1", {"n": 1})
        with pytest.raises(RuntimeError, match="roll back"), memory.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 2})

            def work() -> None:
                assert memory.messages.load("s-1-1") == [{"n": 1}]
                with pytest.raises(Closed):
                    tx.messages.add("s-1-1", {"n": "stolen"})

            assert in_child(work) == 0
            raise RuntimeError("roll back")
        assert memory.messages.load("s-1-1") == [{"n": 1}]
        memory.messages.add("s-1-1", {"n": 3})
        assert memory.messages.load("s-1-1") == [{"n": 1}, {"n": 3}]
        assert memory.check(deep=True) == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_process_gets_its_own_answers(dialect: str, request: Any, tmp_path: Any) -> None:
    url = str(tmp_path / "x.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    with Memory.open(url, busy_timeout_s=60) as memory:
        for number in range(4):
            memory.messages.add(f"s{number}-1-1", {"n": number})
        children = []
        for number in range(1, 4):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for _ in range(100):
                        assert memory.messages.load(f"s{number}-1-1")[0] == {"n": number}
                    memory.messages.add(f"s{number}-1-1", {"from": "child"})
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        for _ in range(100):
            assert memory.messages.load("s0-1-1") == [{"n": 0}]
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
        for number in range(1, 4):
            assert memory.messages.load(f"s{number}-1-1") == [{"n": number}, {"from": "child"}]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_child_writes_outlives_its_parents_store(tmp_path: Any) -> None:
    memory = Memory.open(tmp_path / "x.db")
    memory.messages.add("s-1-1", {"n": 0})
    (child_says, to_parent), (parent_says, to_child) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        os.close(to_child)  # its own end: when the parent is gone, reading ends
        try:
            memory.messages.add("s-1-1", {"n": 1})
            os.write(to_parent, b"x")
            os.read(parent_says, 1)
            memory.messages.add("s-1-1", {"n": 2})
            code = 0
        finally:
            os.write(to_parent, b"x")
            os.read(parent_says, 1)
            os._exit(code)
    os.read(child_says, 1)
    memory.close()  # this process's last connection: it must not take the log away from the child
    os.write(to_child, b"x")
    os.read(child_says, 1)
    with Memory.open(tmp_path / "x.db") as again:
        assert again.messages.load("s-1-1") == [{"n": 0}, {"n": 1}, {"n": 2}]
    os.write(to_child, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with Memory.open(tmp_path / "x.db") as again:
        assert again.messages.load("s-1-1") == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert again.check(deep=True) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_forked_beside_busy_threads_can_write(tmp_path: Any) -> None:
    with Memory.open(tmp_path / "x.db", busy_timeout_s=60) as memory:
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                memory.messages.add("threads-1-1", {"n": 1})
                memory.sessions.list()
                memory.mailbox.wait("nobody", timeout_s=0.001)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        codes = [in_child(lambda: memory.messages.add("children-1-1", {"n": 1})) for _ in range(20)]
        done.set()
        for thread in threads:
            thread.join()
        assert codes == [0] * 20
        assert len(memory.messages.load("children-1-1")) == 20
        assert memory.check(deep=True) == []


def test_a_child_does_not_stand_in_its_parents_line(tmp_path: Any) -> None:
    """As when a thread of the parent was about to write: nobody in the child would ever call the next one."""
    said = [{"role": "user", "content": f"word{number}"} for number in range(3)]  # one statement, which commits alone
    with Memory.open(tmp_path / "x.db", busy_timeout_s=5) as memory:
        memory.messages.add("s-1-1", said[0])
        group = memory._driver.file.group  # type: ignore[attr-defined]
        group._leader = -1  # a thread that the child does not have
        assert in_child(lambda: memory.messages.add("s-1-1", said[1])) == 0
        group._leader = None
        memory.messages.add("s-1-1", said[2])
        assert memory.messages.load("s-1-1") == said


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_inside_a_transaction_may_not_write(tmp_path: Any) -> None:
    with Memory.open(tmp_path / "x.db") as memory:
        with memory.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 1})

            def work() -> None:
                for store in (memory, Memory.open(tmp_path / "x.db")):
                    with pytest.raises(Unsupported, match="forked"):
                        store.messages.add("s-1-1", {"n": "child"})
                    assert store.messages.load("s-1-1") == []

            assert in_child(work) == 0
            tx.messages.add("s-1-1", {"n": 2})
        assert memory.messages.load("s-1-1") == [{"n": 1}, {"n": 2}]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_store_that_was_closed_before_the_fork_is_nobodys_concern(tmp_path: Any) -> None:
    path = tmp_path / "x.db"
    with Memory.open(path) as before:
        before.messages.add("s-1-1", {"n": 1})
    with Memory.open(path) as memory:
        memory.messages.add("s-1-1", {"n": 2})
        assert in_child(lambda: memory.messages.add("s-1-1", {"n": 3})) == 0
        assert before is not memory  # the closed one is still there
        assert memory.messages.load("s-1-1") == [{"n": 1}, {"n": 2}, {"n": 3}]

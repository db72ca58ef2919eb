"""A process that forks with an open store: nobody gets another's answers, and nobody's transaction is touched."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from crowmem import Memory
from crowmem.errors import Closed

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

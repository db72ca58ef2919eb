"""Tapes when things go wrong: lost answers, cut wires, killed writers, many processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from tcp_proxy import Wire
from test_leases import until, waiting
from test_tapes import branches, messages, stored

from crowmem import Memory
from crowmem.drivers.postgres_settings import POOL
from crowmem.errors import AlreadyFinal, OutcomeUnknown, ReadOnly, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends import Backend

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def wired(pg_clean: str, pg_base: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Wire, Memory]]:
    """A store at the other end of a wire, its statements prepared."""
    monkeypatch.setitem(POOL, "timeout", 1.0)
    database = str(conninfo_to_dict(pg_clean)["dbname"])
    with (
        Wire(pg_base.address) as wire,
        Memory.open(pg_base.url(database, host=wire.host, port=wire.port), pool_size=1) as memory,
    ):
        memory.tapes.append("warm", messages(0))
        yield wire, memory


def test_an_append_whose_answer_is_lost_is_unknown(wired: tuple[Wire, Memory], pg_clean: str) -> None:
    wire, memory = wired
    wire.cut("lose")
    with pytest.raises(OutcomeUnknown, match="tape_append"):
        memory.tapes.append("t", messages(0))
    wire.heal()
    with Memory.open(pg_clean) as other:
        until(lambda: other.tapes.length("t") == 1)


def test_a_draft_whose_answer_is_lost_is_saved_once(wired: tuple[Wire, Memory], pg_clean: str) -> None:
    wire, memory = wired
    draft = memory.tapes.begin("t")
    draft.append(messages(0)[0])
    draft.append(messages(1)[0])
    wire.cut("lose")
    with pytest.raises(OutcomeUnknown):
        memory.tapes.commit(draft)
    wire.heal()
    with Memory.open(pg_clean) as other:
        until(lambda: other.tapes.length("t") == 2)
        other.tapes.append("t", messages(9))
    assert not draft.final
    assert memory.tapes.commit(draft) == "t"
    assert draft.final
    assert memory.tapes.load("t") == messages(0, 1, 9)


def test_a_draft_that_never_arrived_is_saved_when_tried_again(wired: tuple[Wire, Memory]) -> None:
    wire, memory = wired
    draft = memory.tapes.begin("t")
    draft.append(messages(0)[0])
    wire.cut("refuse")
    for _ in range(2):
        with pytest.raises((OutcomeUnknown, Unavailable)):
            memory.tapes.commit(draft)
        assert not draft.final
        wire.heal()
        wire.cut("reset")
    wire.heal()
    while not draft.final:  # the pool may need a moment to notice
        with contextlib.suppress(Unavailable):
            memory.tapes.commit(draft)
    assert memory.tapes.load("t") == messages(0)


def test_a_rollback_after_a_lost_answer_says_that_it_was_saved(wired: tuple[Wire, Memory], pg_clean: str) -> None:
    wire, memory = wired
    draft = memory.tapes.begin("t")
    draft.append(messages(0)[0])
    wire.cut("lose")
    with pytest.raises(OutcomeUnknown):
        memory.tapes.commit(draft)
    wire.heal()
    with Memory.open(pg_clean) as other:
        until(lambda: other.tapes.length("t") == 1)
    with pytest.raises(AlreadyFinal, match="committed"):
        memory.tapes.rollback(draft)


def test_a_cut_waits_for_a_checkpoint_that_is_being_saved(pg_clean: str) -> None:
    """Both orders are right; a checkpoint that names entries which are gone is not."""
    with Memory.open(pg_clean) as memory:
        memory.tapes.append("t", messages(0, 1, 2))
        with memory.transaction() as tx:
            saved = tx.checkpoints.save("t").checkpoint_id
            thread = threading.Thread(target=memory.tapes.truncate, args=("t", 1))
            thread.start()
            until(lambda: waiting(pg_clean))
            assert memory.tapes.append("t", messages(3)) == 4, "an append waits for no checkpoint"
        thread.join()
        assert memory.tapes.load("t") == messages(0)
        assert memory.checkpoints.load(saved).entries == messages(0, 1, 2)


def test_a_checkpoint_waits_for_a_cut_that_is_being_made(pg_clean: str) -> None:
    with Memory.open(pg_clean) as memory:
        memory.tapes.append("t", messages(0, 1, 2))
        memory.checkpoints.save("t")
        saved: list[str] = []
        thread = threading.Thread(target=lambda: saved.append(memory.checkpoints.save("t").checkpoint_id))
        with memory.transaction() as tx:
            tx.tapes.truncate("t", 1)
            thread.start()
            until(lambda: waiting(pg_clean))
            tx.tapes.append("t", messages(11))
        thread.join()
        found = memory.checkpoints.load(saved[0])
        assert (found.entries, found.entry_count) == (messages(0, 11), 2)


def test_two_that_let_go_of_one_branch_leave_nothing(backend: Backend) -> None:
    """Each sees the other's name on the branch unless they take turns; then its entries would stay for ever."""
    memory = backend.blocking()
    for _ in range(10):
        memory.tapes.append("t", messages(0, 1, 2))
        names = ["t", *[memory.tapes.fork("t", at=2) for _ in range(3)]]
        barrier = threading.Barrier(len(names))

        def delete(name: str, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            assert memory.tapes.delete(name)

        threads = [threading.Thread(target=delete, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stored(backend) == branches(backend) == 0


def test_forks_cuts_and_appends_at_once(backend: Backend) -> None:
    memory = backend.blocking()
    memory.tapes.append("t", messages(0, 1, 2, 3))
    errors: list[BaseException] = []
    forks: list[str] = []

    def work(kind: str) -> None:
        try:
            for number in range(20):
                if kind == "append":
                    memory.tapes.append("t", messages(number))
                elif kind == "cut":
                    memory.tapes.truncate("t", 2 + number % 3)
                else:
                    name = memory.tapes.fork("t", at=2)
                    assert memory.tapes.load(name) == messages(0, 1)
                    forks.append(name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("append", "cut", "fork", "append", "fork")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(memory.tapes.load(name) == messages(0, 1) for name in forks)
    entries = memory.tapes.load("t")
    assert (len(entries), entries[:2]) == (memory.tapes.length("t"), messages(0, 1))
    for name in ("t", *forks):
        memory.tapes.delete(name)
    assert stored(backend) == branches(backend) == 0


PROCESS = """
import sys
from crowmem import Memory
url, worker, batch, total = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Memory.open(url, busy_timeout_s=120) as memory:
    for first in range(0, total, batch):
        memory.tapes.append("t", [{"w": worker, "n": number} for number in range(first, first + batch)])
"""


@pytest.mark.parametrize(("workers", "total"), [(4, 100), pytest.param(16, 1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_many_processes_append_without_a_gap(
    dialect: str, batch: int, workers: int, total: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "x.db") if dialect == "sqlite" else request.getfixturevalue("pg_fresh")
    with Memory.open(url) as memory:
        arguments = [[url, str(worker), str(batch), str(total)] for worker in range(workers)]
        children = [subprocess.Popen([sys.executable, "-c", PROCESS, *one], cwd=ROOT) for one in arguments]
        assert [child.wait() for child in children] == [0] * workers
        entries = memory.tapes.load("t")
        assert len(entries) == memory.tapes.length("t") == workers * total
        for worker in range(workers):
            assert [entry["n"] for entry in entries if entry["w"] == str(worker)] == list(range(total))
        for start in range(0, len(entries), batch):
            assert len({entry["w"] for entry in entries[start : start + batch]}) == 1


def test_a_writer_that_is_killed_leaves_whole_batches(tmp_path: Path) -> None:
    url = str(tmp_path / "x.db")
    code = (
        "import sys\nfrom crowmem import Memory\n"
        "with Memory.open(sys.argv[1]) as memory:\n"
        "    while True:\n        print(memory.tapes.append('t', [{'n': n} for n in range(7)]), flush=True)\n"
    )
    told = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            for _ in range(20):
                told = int(child.stdout.readline())
            os.kill(child.pid, 9)
        with Memory.open(url) as memory:
            entries = memory.tapes.load("t")
            assert len(entries) == memory.tapes.length("t") >= told
            assert [entry["n"] for entry in entries] == [n % 7 for n in range(len(entries))]
            assert len(entries) % 7 == 0


def test_a_store_that_cannot_be_written_says_so(backend: Backend) -> None:
    backend.blocking().tapes.append("t", messages(0))
    memory = backend.open(read_only=True)
    assert memory.tapes.load("t") == messages(0)
    for call in (
        lambda: memory.tapes.append("t", messages(1)),
        lambda: memory.tapes.truncate("t", 0),
        lambda: memory.tapes.fork("t"),
        lambda: memory.checkpoints.save("t"),
        lambda: memory.payloads.save("s", {}),
        lambda: memory.leases.acquire("n", "a"),
    ):
        with pytest.raises(ReadOnly):
            call()
    assert memory.tapes.load("t") == messages(0)

"""The files of a SQLite store are removed or replaced while it is open: nothing is acknowledged that would be lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from backends import Backend

from crowmem import Memory
from crowmem.drivers import sqlite_place
from crowmem.errors import ConfigError, CrowmemError, NotFound, SchemaMismatch, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened = Backend("sqlite", request.param, str(tmp_path / "crow.db"))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the log each time."""
    monkeypatch.setattr(sqlite_place, "LOG_S", 0.0)


def remove(path: Path) -> None:
    path.unlink()


def remove_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()


def move(path: Path) -> None:
    path.rename(f"{path}.old")


def move_its_folder(path: Path) -> None:
    path.parent.rename(f"{path.parent}.old")


def replace(path: Path) -> None:
    with Memory.open(path) as memory:
        memory.backup(f"{path}.copy")
    Path(f"{path}.copy").replace(path)


def replace_by_a_link(path: Path) -> None:
    shutil.copy(path, f"{path}.copy")
    path.unlink()
    path.symlink_to(f"{path}.copy")


WRITES: list[Callable[[Any], object]] = [
    lambda memory: memory.messages.add("s-1-1", {"n": 2}),
    lambda memory: memory.messages.add_many("s-1-1", [{"n": 2}, {"n": 3}]),
    lambda memory: memory.tasks.launch("t", "s"),
    lambda memory: memory.sessions.delete("s"),
]


@pytest.mark.parametrize("harm", [remove, remove_all, move, move_its_folder, replace, replace_by_a_link])
def test_a_store_that_is_gone_takes_no_writes(store: Backend, harm: Callable[[Path], None]) -> None:
    path = Path(store.url)
    memory = store.open()
    memory.messages.add("s-1-1", {"n": 1})
    harm(path)
    for write in WRITES:
        with pytest.raises(Unavailable, match=r"crow\.db: the store was re.*open the store again"):
            write(memory)
    assert memory.messages.load("s-1-1") == [{"n": 1}]  # who reads goes on with what was there
    memory.close()
    if harm is not move_its_folder:  # it opens again, with what stands there now
        with Memory.open(path) as again:
            again.messages.add("s-1-1", {"n": 4})
            assert again.messages.load("s-1-1")[-1] == {"n": 4}
            assert again.check(deep=True) == []


def test_a_transaction_is_not_committed_into_a_file_that_went_meanwhile(store: Backend) -> None:
    memory = store.open()
    memory.messages.add("s-1-1", {"n": 1})
    with pytest.raises(Unavailable, match="removed"), memory.transaction() as tx:
        tx.messages.add("s-1-1", {"n": 2})
        Path(store.url).unlink()
    assert memory.messages.load("s-1-1") == [{"n": 1}]


def test_a_store_that_is_put_back_goes_on(store: Backend) -> None:
    path = Path(store.url)
    memory = store.open()
    memory.messages.add("s-1-1", {"n": 1})
    path.rename(f"{path}.old")
    with pytest.raises(Unavailable, match="removed"):
        memory.messages.add("s-1-1", {"n": 2})
    Path(f"{path}.old").rename(path)
    memory.messages.add("s-1-1", {"n": 3})
    memory.close()
    with Memory.open(path) as again:
        assert again.messages.load("s-1-1") == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_a_log_that_is_gone_takes_no_writes_and_closing_saves_it(store: Backend, suffix: str, again: bool) -> None:
    log = Path(store.url + suffix)
    memory = store.open()
    memory.messages.add("s-1-1", {"n": 1})
    log.unlink()
    if again:
        log.touch()
    for write in WRITES:
        with pytest.raises(Unavailable, match=rf"crow\.db{suffix} was re.*close the store in every program"):
            write(memory)
    assert memory.messages.load("s-1-1") == [{"n": 1}]
    memory.close()
    with Memory.open(store.url) as opened:
        assert opened.messages.load("s-1-1") == [{"n": 1}]
        assert opened.check(deep=True) == []


def test_the_log_is_looked_for_every_second(store: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_place, "LOG_S", 1.0)
    now = [100.0]
    monkeypatch.setattr(sqlite_place, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    memory = store.open()
    memory.messages.add("s-1-1", {"n": 1})
    now[0] += 1
    memory.messages.add("s-1-1", {"n": 2})
    Path(store.url + "-wal").unlink()
    now[0] += 0.9
    memory.messages.add("s-1-1", {"n": 3})
    now[0] += 0.1
    with pytest.raises(Unavailable, match="-wal was removed"):
        memory.messages.add("s-1-1", {"n": 4})
    memory.close()
    with Memory.open(store.url) as opened:
        assert opened.messages.load("s-1-1") == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_threads_that_share_a_commit_are_all_told(tmp_path: Path) -> None:
    told: list[object] = []
    with Memory.open(tmp_path / "crow.db") as memory:
        memory.messages.add("s-1-1", {"n": 0})

        def write(number: int) -> None:
            try:
                told.append(memory.messages.add(f"s{number}-1-1", {"role": "user", "content": f"caw {number}"}))
            except CrowmemError as error:
                told.append(type(error))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        with pytest.raises(Unavailable), memory.transaction():
            for thread in threads:
                thread.start()
            while len(memory._driver.file.group._waiting) < len(threads) - 1:  # one leads, and waits for the turn
                continue
            (tmp_path / "crow.db").unlink()
        for thread in threads:
            thread.join()
    assert told == [Unavailable] * len(threads)


def test_a_new_connection_reads_no_other_store_than_the_first(tmp_path: Path) -> None:
    path = tmp_path / "crow.db"
    with Memory.open(path) as memory:
        memory.messages.add("s-1-1", {"n": 1})
        replace(path)
        file = memory._driver.file
        with file.reader(), pytest.raises(Unavailable, match="replaced"):  # the idle one is in use
            memory.messages.load("s-1-1")
        with pytest.raises(Unavailable, match="replaced"):
            file.open_reader()


def test_others_that_open_compact_and_close_the_store_are_no_loss(store: Backend) -> None:
    """Vacuuming writes into the same file; the log stays as long as anybody has the store open."""
    memory = store.open()
    memory.messages.add("s-1-1", {"n": 1})
    compact = (
        "import apsw, sys; connection = apsw.Connection(sys.argv[1]); connection.execute('vacuum');"
        "connection.pragma('wal_checkpoint', 'truncate'); connection.close()"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", compact, store.url], check=True)
        with Memory.open(store.url) as other:
            other.messages.add("s-1-1", {"n": 2})
        memory.messages.add("s-1-1", {"n": 3})
    memory.backup(store.url + ".copy")
    memory.messages.add("s-1-1", {"n": 4})
    assert len(memory.messages.load("s-1-1")) == 6


def test_a_store_opened_by_a_link_is_known_by_what_the_link_names(tmp_path: Path) -> None:
    real, link = tmp_path / "real.db", tmp_path / "link.db"
    Memory.open(real).close()
    link.symlink_to(real)
    with Memory.open(link) as memory:
        memory.messages.add("s-1-1", {"n": 1})
        moved = real.rename(tmp_path / "moved.db")
        with pytest.raises(Unavailable, match="removed"):
            memory.messages.add("s-1-1", {"n": 2})
        link.unlink()
        link.symlink_to(moved)
        memory.messages.add("s-1-1", {"n": 3})
        assert memory.messages.load("s-1-1") == [{"n": 1}, {"n": 3}]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_takes_the_same_store_only(tmp_path: Path) -> None:
    path = tmp_path / "crow.db"
    with Memory.open(path) as memory:
        memory.messages.add("s-1-1", {"n": 1})
        for lost, code in ((False, 0), (True, 3)):
            if lost:
                replace(path)
            child = os.fork()
            if child == 0:
                try:
                    memory.messages.add("s-1-1", {"n": 2})
                    memory.close()
                    os._exit(0)
                except Unavailable:
                    os._exit(3)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
        assert memory.messages.load("s-1-1") == [{"n": 1}, {"n": 2}]


def test_a_rollback_journal_is_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowmem.drivers.sqlite_file.shares_memory", lambda path: ("nfs", False))
    path = tmp_path / "crow.db"
    with Memory.open(path) as memory:
        memory.messages.add("s-1-1", {"n": 1})
        memory.messages.add("s-1-1", {"n": 2})
        path.unlink()
        with pytest.raises(Unavailable, match="removed"):
            memory.messages.add("s-1-1", {"n": 3})


def test_a_reader_keeps_to_the_file_it_opened(store: Backend) -> None:
    with Memory.open(store.url) as memory:
        memory.messages.add("s-1-1", {"n": 1})
    reader = store.open(read_only=True)
    Path(store.url).unlink()
    assert reader.messages.load("s-1-1") == [{"n": 1}]
    with pytest.raises(NotFound):
        store.open(read_only=True)


def test_acknowledged_messages_survive_a_kill_after_the_store_was_replaced(tmp_path: Path) -> None:
    """What the writer was told of before is in the file that was moved aside, and nothing after."""
    path = tmp_path / "crow.db"
    code = (
        "import sys; from crowmem import Memory; memory = Memory.open(sys.argv[1])\n"
        "for line in sys.stdin:\n"
        "    try: print(memory.messages.add('s-1-1', {'n': int(line)}), flush=True)\n"
        "    except Exception as error: print(type(error).__name__, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert writer.stdin is not None
    assert writer.stdout is not None

    def ask(number: int) -> str:
        print(number, file=writer.stdin, flush=True)
        return writer.stdout.readline().strip()

    with writer:
        assert [ask(number) for number in range(3)] == ["1", "2", "3"]
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").rename(tmp_path / f"old.db{suffix}")
        Memory.open(path).close()
        assert [ask(number) for number in range(3, 6)] == ["Unavailable"] * 3
        writer.send_signal(signal.SIGKILL)
    with Memory.open(tmp_path / "old.db") as old, Memory.open(path) as new:
        assert old.messages.load("s-1-1") == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert new.messages.load("s-1-1") == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_is_no_store(store: Backend, read_only: bool) -> None:
    Path(store.url).mkdir()
    with pytest.raises(ConfigError, match=r"crow\.db is a folder: name a file, such as .*crow\.db/crow\.db"):
        store.open(read_only=read_only)
    assert list(Path(store.url).iterdir()) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_one_byte_is_no_store(store: Backend, read_only: bool) -> None:
    path = Path(store.url)
    path.write_bytes(b"x")
    with pytest.raises(SchemaMismatch, match=r"crow\.db: a file of one byte is not a database.*name another file"):
        store.open(read_only=read_only)
    assert path.read_bytes() == b"x"
    path.write_bytes(b"")
    if not read_only:
        assert store.open().messages.add("s-1-1", {"n": 1}) == 1

"""Import with another process that reads ahead: it changes what a run takes, never what comes of it."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, ClassVar

import apsw
import pytest
from data import shared_data
from test_ingest import contents, line
from test_leases import until

from crowmem import Memory, ingest
from crowmem.importers import ahead
from crowmem.importers.files import find
from crowmem.importers.reading import Job, read_file
from crowmem.importers.worker import find_start, receive, send
from crowmem.ingest import ImportProgress, ImportReport, import_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Spy(ahead.Ahead):
    """Another process that can be killed after so many pieces."""

    started: ClassVar[list[Spy]] = []
    lives: ClassVar[int | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        Spy.started.append(self)

    def pieces(self) -> Iterator[Any]:
        for piece in super().pieces():
            yield piece
            self.taken += 1
            if self.taken == self.lives:
                self._process.kill()
                self._process.wait()

    @property
    def is_over(self) -> bool:
        return self._process.returncode is not None


@pytest.fixture(autouse=True)
def spy(monkeypatch: pytest.MonkeyPatch) -> type[Spy]:
    monkeypatch.setattr(ingest, "AHEAD_BYTES", 1)
    monkeypatch.setattr(ingest, "OWN_BYTES", 0)
    monkeypatch.setattr(ingest, "Ahead", Spy)
    monkeypatch.setattr(Spy, "started", [])
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    return Spy


def read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], ImportReport]:
    """What the transcripts are when one process reads them."""
    monkeypatch.setattr(ingest, "AHEAD_BYTES", 1 << 60)
    with Memory.open(tmp_path / "alone.db", images=tmp_path / "images-alone") as memory:
        report = import_paths(memory, [shared_data("transcripts")])
        return contents(memory), report


def test_it_reads_the_same(spy: type[Spy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory.open(tmp_path / "crow.db", images=tmp_path / "images") as memory:
        report = import_paths(memory, [shared_data("transcripts")])
        [process] = spy.started
        assert process.taken > report.messages_added
        assert process.is_over
        assert read_alone(tmp_path, monkeypatch) == (contents(memory), report)
    assert len(spy.started) == 1


def test_the_first_files_are_read_here_while_it_starts(
    spy: type[Spy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{number}.jsonl" for number in range(9)]
    for file in files:
        file.write_text("".join(line("user", one, f"say {one}", sessionId=f"s-{file.stem}") for one in range(9)))
    size = files[0].stat().st_size
    monkeypatch.setattr(ingest, "AHEAD_BYTES", 6 * size)
    monkeypatch.setattr(ingest, "OWN_BYTES", 4 * size)
    monkeypatch.setattr(ingest, "AHEAD", 7)
    with Memory.open(tmp_path / "crow.db") as memory:
        order: list[str] = []
        assert import_paths(memory, files, progress=lambda at: order.append(at.path)).messages_added == 81
        assert list(dict.fromkeys(order)) == [*map(str, files), ""]
    connection = apsw.Connection(str(tmp_path / "crow.db"))
    agents = connection.execute("select agent_id from messages group by agent_id order by min(id)").fetchall()
    assert agents == [(f"s-{file.stem}-1-1",) for file in files]
    connection.close()
    [process] = spy.started
    assert process.taken >= 5 * 9


def test_many_small_files_are_worth_a_process(spy: type[Spy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "AHEAD_BYTES", 1 << 60)
    monkeypatch.setattr(ingest, "AHEAD", 5)
    files = [tmp_path / f"{number}.jsonl" for number in range(6)]
    for file in files:
        file.write_text(line("user", 1, "caw", sessionId=f"s-{file.stem}"))
    with Memory.open(tmp_path / "crow.db") as memory:
        assert import_paths(memory, files[:4]).messages_added == 4
        assert not spy.started
        files[0].write_text(line("user", 2, "caw again", sessionId="s-0"))
        assert import_paths(memory, files).messages_added == 3
        assert not spy.started
        for file in files:
            file.write_text(line("user", 3, "once more", sessionId=f"s-{file.stem}"))
        assert import_paths(memory, files).messages_added == 6
    assert len(spy.started) == 1


@pytest.mark.parametrize("lives", [1, 700, 2500])
def test_another_takes_over_when_it_dies(
    spy: type[Spy], tmp_path: Path, lives: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spy, "lives", lives)
    monkeypatch.setattr(ahead, "KEPT_BYTES", 1)
    monkeypatch.setattr(ingest, "BATCH_ROWS", 10)
    with Memory.open(tmp_path / "crow.db", images=tmp_path / "images") as memory:
        report = import_paths(memory, [shared_data("transcripts")])
        assert [process.is_over for process in spy.started] == [True]
        alone, expected = read_alone(tmp_path, monkeypatch)
        assert contents(memory) == alone
    assert report.messages_added == expected.messages_added
    assert (report.skips, report.passed, report.formats) == (expected.skips, expected.passed, expected.formats)


@pytest.mark.parametrize("executable", ["", "/no/such/python", shutil.which("false")])
def test_where_there_can_be_none_there_is_none(
    tmp_path: Path, executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    file = tmp_path / "a.jsonl"
    file.write_text("".join(line("user", number, f"say {number}") for number in range(1, 50)))
    with Memory.open(tmp_path / "crow.db") as memory:
        assert import_paths(memory, [file]).messages_added == 49


@pytest.mark.parametrize("entry", [None, b"/folder", "/nul\0", "/half\ud800"])
def test_odd_folders_of_modules_stop_no_import(tmp_path: Path, entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, entry])
    file = tmp_path / "a.jsonl"
    file.write_text(line("user", 1, "caw"))
    with Memory.open(tmp_path / "crow.db") as memory:
        assert import_paths(memory, [file]).messages_added == 1


@pytest.mark.parametrize("printed", ["caw\n", "caw without an end", "\0\0\0\0\0\0\0\3caw\n"])
def test_what_a_site_prints_is_no_piece(
    spy: type[Spy], tmp_path: Path, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"print({printed!r}, end='')")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    file = tmp_path / "a.jsonl"
    file.write_text(line("user", 1, "caw"))
    with Memory.open(tmp_path / "crow.db") as memory:
        assert import_paths(memory, [file]).messages_added == 1
    [process] = spy.started
    assert process.taken


def test_a_process_without_its_thread_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = tmp_path / "a.jsonl"
    file.write_text(line("user", 1, "caw"))
    with Memory.open(tmp_path / "crow.db") as memory, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", Kept)
        patch.setattr(threading.Thread, "start", refuse)
        assert import_paths(memory, [file]).messages_added == 1
    assert [process.returncode for process in started] == [-9]


def test_a_run_that_fails_leaves_no_process(spy: type[Spy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(at: ImportProgress) -> None:
        if at.messages_added:
            raise KeyboardInterrupt

    monkeypatch.setattr(ingest, "BATCH_ROWS", 10)
    with Memory.open(tmp_path / "crow.db") as memory, pytest.raises(KeyboardInterrupt):
        import_paths(memory, [shared_data("transcripts")], progress=stop)
    assert [process.is_over for process in spy.started] == [True]
    assert not [thread for thread in threading.enumerate() if thread.name == "crowmem-import"]


def test_full_pipes_on_both_sides_stop_nobody(spy: type[Spy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "KEPT_BYTES", 1)
    files = [tmp_path / f"{number}.jsonl" for number in range(12)]
    for file in files:
        file.write_text(line("user", 1, "x" * 300_000, sessionId=f"s-{file.stem}"))
    with Memory.open(tmp_path / "crow.db") as memory:
        assert import_paths(memory, files).messages_added == 12
        for file in files:
            with file.open("a") as stream:
                stream.write(line("user", 2, "y" * 300_000, sessionId=f"s-{file.stem}"))
        connection = apsw.Connection(str(tmp_path / "crow.db"))  # jobs that are larger than a pipe
        connection.execute("update import_sources set state = json_set(state, '$.filler', ?)", ("z" * 500_000,))
        connection.close()
        assert import_paths(memory, files).messages_added == 12
    assert len(spy.started) == 2


def test_a_few_lines_are_worth_no_process(spy: type[Spy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(line("user", number, "x" * 1000, uuid=f"w-{number}") for number in range(60)))
    monkeypatch.setattr(ingest, "AHEAD_BYTES", file.stat().st_size)
    with Memory.open(tmp_path / "crow.db") as memory:
        import_paths(memory, [file])
        assert len(spy.started) == 1
        with file.open("a") as stream:
            stream.write(line("user", 60, "the last"))
        assert import_paths(memory, [file]).messages_added == 1
    assert len(spy.started) == 1


@contextmanager
def worker(kept_bytes: int) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
    """The process by itself, with what goes in and what comes out."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "crowmem.importers.worker", str(kept_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        find_start(process.stdout)
        yield process, process.stdin, process.stdout


def large(tmp_path: Path) -> Job:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(line("user", one, "x" * 100_000, sessionId="s-a") for one in range(20)))
    [place], _missing = find([file], "")
    return Job(place, None)


def test_it_ends_when_nobody_takes_what_it_read(tmp_path: Path) -> None:
    with worker(1) as (process, jobs, pieces):
        send(jobs, large(tmp_path))
        assert pieces.read(1)
        pieces.close()
        assert process.wait() == 1


def test_it_sends_everything_before_it_ends_with_its_input(tmp_path: Path) -> None:
    job = large(tmp_path)
    found: list[Any] = []
    with worker(1) as (process, jobs, pieces):
        for _ in range(3):
            send(jobs, job)
        jobs.close()
        while (data := receive(pieces)) is not None:
            found += pickle.loads(data)
        assert process.wait() == 0
    assert found == 3 * list(read_file(job))


def test_what_it_writes_while_it_is_stopped_arrives_whole(tmp_path: Path) -> None:
    job = large(tmp_path)
    with worker(1) as (process, jobs, pieces):
        send(jobs, job)
        until(lambda: struct.unpack("i", fcntl.ioctl(pieces, termios.FIONREAD, bytes(4)))[0] > 32768)  # pipe is full
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(signal.SIGCONT)
        jobs.close()
        found: list[Any] = []
        while (data := receive(pieces)) is not None:
            found += pickle.loads(data)
    assert found == list(read_file(job))


def test_it_ends_by_what_it_cannot_do() -> None:
    with worker(1) as (process, jobs, pieces):
        send(jobs, "no job")
        assert pieces.read() == b""
        assert process.wait() == 1

"""Watching: what is written is imported, by the kernel's word and by looking, and nothing is done meanwhile."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from crowmem import Memory
from crowmem import watching as watching_module
from crowmem.errors import Busy, CrowmemError, OutcomeUnknown
from crowmem.importers import Skip
from crowmem.importers import changes as module
from crowmem.importers.changes import Looked, Told, changes
from crowmem.ingest import ImportReport, import_paths
from crowmem.watching import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG_S = 30.0


@pytest.fixture(params=["told", "looked"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "looked":
        monkeypatch.setattr(module, "Told", Looked)
        monkeypatch.setattr(module, "_LOOK_S", (0.05, 0.2))
    return str(request.param)


@pytest.fixture
def watching(tmp_path: Path, kind: str) -> Iterator[Callable[..., tuple[Memory, Watcher]]]:
    """Start a watcher in a thread of its own."""
    started: list[tuple[Watcher, threading.Thread, Memory]] = []

    def start(*paths: Path, report: Any = None, failed: Any = None) -> tuple[Memory, Watcher]:
        memory = Memory.open(str(tmp_path / "crow.db"))
        watcher = Watcher(memory, paths, settle_s=0.05)
        thread = threading.Thread(target=watcher.run, args=(report, failed))
        thread.start()
        started.append((watcher, thread, memory))
        return memory, watcher

    yield start
    for watcher, thread, memory in started:
        watcher.stop()
        thread.join(LONG_S)
        assert not thread.is_alive()
        watcher.close()
        memory.close()


def line(number: int, session: str = "s-1") -> str:
    record = {
        "type": "user",
        "uuid": f"u-{number}",
        "sessionId": session,
        "timestamp": f"2026-01-01T00:00:{number:02d}.000Z",
        "message": {"role": "user", "content": f"message {number}"},
    }
    return json.dumps(record) + "\n"


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def count(memory: Memory, session: str) -> int:
    return len(memory.messages.query(session_id=session))


def has(memory: Memory, session: str, number: int) -> bool:
    return count(memory, session) == number


def test_what_is_written_comes_in(tmp_path: Path, watching: Any) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    (folder / "s-1.jsonl").write_text(line(1))
    memory, _watcher = watching(folder)
    until(lambda: count(memory, "s-1") == 1)
    with (folder / "s-1.jsonl").open("a") as file:
        file.write(line(2))
        file.flush()
        until(lambda: count(memory, "s-1") == 2)
        file.write(line(3)[:30])  # half a line is left alone until it is whole
        file.flush()
        (folder / "s-2.jsonl").write_text(line(1, "s-2"))
        until(lambda: count(memory, "s-2") == 1)
        assert count(memory, "s-1") == 2
        file.write(line(3)[30:])
        file.flush()
        until(lambda: count(memory, "s-1") == 3)


def test_new_folders_are_followed(tmp_path: Path, watching: Any) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    memory, _watcher = watching(folder)
    deep = folder / "new" / "deeper"
    deep.mkdir(parents=True)
    (deep / "s-3.jsonl").write_text(line(1, "s-3"))
    until(lambda: count(memory, "s-3") == 1)
    with (deep / "s-3.jsonl").open("a") as file:
        file.write(line(2, "s-3"))
    until(lambda: count(memory, "s-3") == 2)


def test_a_single_file_is_followed_without_its_neighbours(tmp_path: Path, watching: Any) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    (folder / "s-1.jsonl").write_text(line(1))
    memory, _watcher = watching(folder / "s-1.jsonl")
    until(lambda: count(memory, "s-1") == 1)
    (folder / "s-2.jsonl").write_text(line(1, "s-2"))
    with (folder / "s-1.jsonl").open("a") as file:
        file.write(line(2))
    until(lambda: count(memory, "s-1") == 2)
    assert count(memory, "s-2") == 0


def test_a_watcher_that_starts_again_goes_on(tmp_path: Path, watching: Any) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    (folder / "s-1.jsonl").write_text(line(1))
    memory, watcher = watching(folder)
    until(lambda: count(memory, "s-1") == 1)
    watcher.stop()
    with (folder / "s-1.jsonl").open("a") as file:
        file.write(line(2))
    memory, _watcher = watching(folder)
    until(lambda: count(memory, "s-1") == 2)


def test_a_file_written_beside_and_renamed_is_told_once(tmp_path: Path, watching: Any) -> None:
    """Its first name is gone when its turn comes, which is no loss to tell of."""
    folder = tmp_path / "projects"
    folder.mkdir()
    reports: list[ImportReport] = []
    memory, _watcher = watching(folder, report=reports.append)
    for number in (1, 2, 3):
        (folder / "s-1.tmp").write_text("".join(line(one) for one in range(number)))
        (folder / "s-1.tmp").rename(folder / "s-1.jsonl")
        until(partial(has, memory, "s-1", number))
    (folder / "s-1.jsonl").unlink()
    (folder / "s-2.jsonl").write_text(line(1, "s-2"))
    until(lambda: count(memory, "s-2") == 1)
    assert [skip for report in reports for skip in report.skips] == []


def test_a_folder_that_is_made_again_comes_in(tmp_path: Path, watching: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching_module, "RESCAN_S", 0.1)
    folder = tmp_path / "projects"
    memory, _watcher = watching(folder)
    for number in (1, 2):
        folder.mkdir()
        (folder / f"s-{number}.jsonl").write_text(line(1, f"s-{number}"))
        until(partial(count, memory, f"s-{number}"))
        folder.rename(tmp_path / f"away-{number}")


def test_a_folder_that_was_missing_is_followed_from_the_next_look_on(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "projects"
    followed = changes([folder])
    folder.mkdir()
    followed.follow()
    (folder / "s-1.jsonl").write_text(line(1))
    assert followed.wait(LONG_S) == {str(folder / "s-1.jsonl")}
    followed.close()


def test_folders_of_programs_are_not_followed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "node_modules" / "x").mkdir(parents=True)
    followed = changes([tmp_path])
    (tmp_path / ".git").mkdir()
    for folder in ("node_modules/x", ".git"):
        (tmp_path / folder / "s-1.jsonl").write_text(line(1))
    (tmp_path / "s-1.jsonl").write_text(line(1))
    assert followed.wait(LONG_S) == {str(tmp_path / "s-1.jsonl")}
    followed.close()


def test_a_store_that_is_away_is_waited_for(tmp_path: Path, watching: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching_module, "RETRY_S", (0.01, 0.02))
    folder = tmp_path / "projects"
    folder.mkdir()
    away = 3

    def unsure(*arguments: Any) -> ImportReport:
        nonlocal away
        if away:
            away -= 1
            raise Busy("another writer") if away else OutcomeUnknown("the connection broke")
        return import_paths(*arguments)

    monkeypatch.setattr(watching_module, "import_paths", unsure)
    errors: list[CrowmemError] = []
    reports: list[ImportReport] = []
    memory, _watcher = watching(folder, report=reports.append, failed=errors.append)
    until(lambda: reports)
    assert [type(error) for error in errors] == [Busy, Busy, OutcomeUnknown]
    away = 2
    (folder / "s-1.jsonl").write_text(line(1))
    until(lambda: count(memory, "s-1") == 1)
    assert len(errors) == 5


def test_without_somebody_to_tell_a_failure_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_arguments: Any) -> ImportReport:
        raise Busy("another writer")

    monkeypatch.setattr(watching_module, "import_paths", away)
    with Memory.open(str(tmp_path / "crow.db")) as memory, Watcher(memory, [tmp_path]) as watcher, pytest.raises(Busy):
        watcher.run()


def test_being_told_needs_no_looking(tmp_path: Path) -> None:
    """While nothing changes the kernel wakes nobody: the wait ends only by its own time."""
    (tmp_path / "a").write_text("x")
    followed = changes([tmp_path])
    assert isinstance(followed, Told)
    began = time.process_time()
    assert followed.wait(0.3) == set()
    assert time.process_time() - began < 0.1
    (tmp_path / "a").write_text("y")
    assert followed.wait(LONG_S) == {str(tmp_path / "a")}
    followed.wake()
    assert followed.wait(LONG_S) == set()
    followed.close()


def test_looking_gets_rarer_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", (0.01, 10.0))
    looks = 0
    plain = module.find

    def find(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return plain(*arguments)

    monkeypatch.setattr(module, "find", find)
    followed = Looked([str(tmp_path)])
    assert followed.wait(0.5) == set()
    assert looks < 12
    followed.close()


def test_without_watches_left_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Told, folder: str) -> None:
        raise OSError(28, f"inotify_add_watch {folder}")

    monkeypatch.setattr(Told, "_add", full)
    followed = changes([tmp_path])
    assert isinstance(followed, Looked)
    followed.close()


def test_a_file_that_goes_while_it_is_read_is_not_told(
    tmp_path: Path, watching: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = watching_module.import_paths

    def after_it_went(memory: Memory, paths: Any) -> ImportReport:
        found = plain(memory, paths)
        found.skip(Skip(str(tmp_path / "projects" / "s-1.tmp"), 0, "No such file or directory"))
        return found

    monkeypatch.setattr(watching_module, "import_paths", after_it_went)
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / "s-1.jsonl").write_text(line(1))
    reports: list[ImportReport] = []
    memory, _watcher = watching(tmp_path / "projects", report=reports.append)
    until(lambda: count(memory, "s-1") == 1)
    assert [(report.skipped, report.skips) for report in reports] == [(0, [])]

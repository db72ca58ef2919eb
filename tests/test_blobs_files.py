"""The folder: durable, verified, private, and never fooled by what lies in it."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pictures import JPEG, png

from crowmem.blobs import Collectable, FileStore, Store
from crowmem.blobs.folders import names_in
from crowmem.blobs.keys import image_key
from crowmem.errors import BlobDamaged, ConfigError, CrowmemError, InvalidValue, ReadOnly, StoreFull, Unavailable

DATA = png(1)
KEY = image_key(DATA)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "deep" / "images")


def test_it_is_a_store(store):
    assert isinstance(store, Store)
    assert isinstance(store, Collectable)


def test_nothing_is_made_before_the_first_put(store):
    assert store.get(KEY) is None
    assert not store.exists(KEY)
    assert not store.delete(KEY)
    assert store.keys() == []
    assert list(store.survey()) == []
    assert store.tidy() == 0
    assert not store.folder.exists()


def test_what_was_put_is_there(store):
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert store.exists(KEY)
    assert store.keys() == [KEY]
    assert store.delete(KEY)
    assert not store.delete(KEY)
    assert store.get(KEY) is None


def test_folder_and_files_are_private(store):
    store.put(KEY, DATA)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert (store.folder / KEY).stat().st_mode & 0o777 == 0o600


def test_a_put_flushes_the_file_before_it_gets_its_name_and_the_folder_after_it(store, monkeypatch):
    store.put(image_key(JPEG), JPEG)
    order = []
    fsync, link = os.fsync, os.link
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: (order.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"), fsync(handle)),
    )
    monkeypatch.setattr(os, "link", lambda *paths: (order.append("name"), link(*paths)))
    store.put(KEY, DATA)
    assert order == ["file", "name", "folder"]


def test_a_second_put_writes_nothing_and_marks_the_blob_as_used(store):
    store.put(KEY, DATA)
    before = (store.folder / KEY).stat()
    os.utime(store.folder / KEY, (1, 1))
    store.put(KEY, DATA)
    after = (store.folder / KEY).stat()
    assert after.st_ino == before.st_ino
    assert after.st_mtime > 1


@pytest.mark.parametrize(
    "damage", [b"", DATA[:-1], DATA + b"x", DATA[:-1] + b"?"], ids=["empty", "cut", "longer", "flipped"]
)
def test_damage_is_told_and_a_put_repairs_it(store, damage):
    store.put(KEY, DATA)
    (store.folder / KEY).write_bytes(damage)
    with pytest.raises(BlobDamaged, match=KEY):
        store.get(KEY)
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA


@pytest.mark.parametrize("kind", ["pipe", "link in a circle", "dangling link", "link to another file"])
def test_what_is_no_plain_file_holds_nobody_and_is_replaced(store, kind, tmp_path):
    store.put(KEY, DATA)
    path, other = store.folder / KEY, tmp_path / "other"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "link in a circle" else other)
    if kind == "link to another file":
        other.write_bytes(b"mine")
    try:
        assert store.get(KEY) is None
    except BlobDamaged:
        assert kind != "dangling link"
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert path.is_file()
    assert not path.is_symlink()
    assert (other.read_bytes() if other.exists() else b"mine") == b"mine"


def test_bytes_of_another_hash_are_refused(store):
    with pytest.raises(InvalidValue, match="another SHA-256"):
        store.put(KEY, DATA + b"x")
    assert not store.folder.exists()


@pytest.mark.parametrize("key", ["../x", "/etc/passwd", "C:\\x", KEY + "\0", "%2e%2e/x", None])
def test_no_door_builds_a_path_from_what_is_no_key(store, key, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x").write_bytes(DATA)
    for door in (
        store.get,
        store.exists,
        store.delete,
        lambda bad: store.put(bad, DATA),
        lambda bad: store.discard(bad, 0),
    ):
        with pytest.raises(InvalidValue, match="no image key"):
            door(key)
    assert (tmp_path / "deep" / "x").read_bytes() == DATA


def test_other_files_of_the_folder_are_passed_over(store):
    store.put(KEY, DATA)
    for name in ("notes.txt", ".hidden", KEY + ".bak", "x.tmp"):
        (store.folder / name).write_text("mine")
    (store.folder / "spool").mkdir()
    assert store.keys() == [KEY]
    assert [found.key for page in store.survey() for found in page] == [KEY]
    assert store.tidy() == 0


def test_a_home_folder_expands(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    FileStore("~/pictures").put(KEY, DATA)
    assert (tmp_path / "pictures" / KEY).read_bytes() == DATA


@pytest.mark.parametrize("data", [None, "text", 5, []])
def test_what_is_no_bytes_is_refused_in_a_thread_that_has_put_nothing_yet(store, data):
    caught = []

    def put():
        try:
            store.put(KEY, data)
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    thread.join()
    [error] = caught
    assert isinstance(error, InvalidValue)
    assert "expected bytes" in str(error)


@pytest.mark.parametrize("folder", ["", "a\0b", "~nobody-of-this-name/x", None, 5, b"x"])
def test_what_is_no_path_is_a_configuration_error(folder):
    with pytest.raises(ConfigError, match="images folder"):
        FileStore(folder)


def test_a_file_where_the_folder_should_be_is_a_configuration_error(tmp_path):
    (tmp_path / "images").write_text("a file")
    store = FileStore(tmp_path / "images")
    for call in (lambda: store.put(KEY, DATA), lambda: store.get(KEY), lambda: store.exists(KEY), store.keys):
        with pytest.raises(ConfigError, match="images"):
            call()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(28, StoreFull), (122, StoreFull), (30, ReadOnly), (13, ReadOnly), (5, Unavailable), (24, Unavailable)],
    ids=["no space", "quota", "read-only mount", "denied", "i/o error", "too many files"],
)
def test_errors_of_the_system_become_ours_and_leave_nothing(store, monkeypatch, number, kind):
    store.put(image_key(JPEG), JPEG)

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(kind) as caught:
        store.put(KEY, DATA)
    assert isinstance(caught.value.__cause__, OSError)
    assert names_in(store.folder) == [image_key(JPEG)]


def test_a_short_write_is_continued(store, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    store.put(KEY, DATA)
    monkeypatch.undo()
    assert store.get(KEY) == DATA


# --- collecting ---


def test_only_what_is_old_is_discarded(store):
    store.put(KEY, DATA)
    written = (store.folder / KEY).stat().st_mtime
    assert not store.discard(KEY, written)
    assert store.get(KEY) == DATA
    assert store.discard(KEY, written + 1)
    assert store.get(KEY) is None
    assert not store.discard(KEY, written + 1)
    assert names_in(store.folder) == []


def test_a_put_while_the_file_is_moved_aside_is_not_lost(store, monkeypatch):
    store.put(KEY, DATA)
    os.utime(store.folder / KEY, (1, 1))
    rename = Path.rename

    def renamed_then_put(self, target):
        rename(self, target)
        FileStore(store.folder).put(KEY, DATA)
        return target

    monkeypatch.setattr(Path, "rename", renamed_then_put)
    store.discard(KEY, time.time() - 60)
    assert store.get(KEY) == DATA


def test_a_reader_finds_a_file_that_a_collector_has_moved_aside(store, monkeypatch):
    store.put(KEY, DATA)
    os.utime(store.folder / KEY, (1, 1))
    plain, rename, seen = FileStore._move_back, Path.rename, []

    def put_then_renamed(self, target):
        FileStore(store.folder).put(KEY, DATA)
        return rename(self, target)

    def looked(self, aside, path):
        seen.append((store.get(KEY), store.exists(KEY), store.exists(image_key(JPEG))))
        plain(self, aside, path)

    monkeypatch.setattr(FileStore, "_move_back", looked)
    monkeypatch.setattr(Path, "rename", put_then_renamed)
    assert not store.discard(KEY, time.time() - 60)
    assert seen == [(DATA, True, False)]
    assert store.get(KEY) == DATA
    assert store.get(image_key(JPEG)) is None


def test_a_file_touched_just_before_it_is_moved_comes_back(store, monkeypatch):
    store.put(KEY, DATA)
    os.utime(store.folder / KEY, (1, 1))
    rename = Path.rename

    def put_then_renamed(self, target):
        FileStore(store.folder).put(KEY, DATA)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", put_then_renamed)
    assert not store.discard(KEY, time.time() - 60)
    assert store.get(KEY) == DATA
    assert names_in(store.folder) == [KEY]


@pytest.mark.parametrize("damage", [None, b"x"], ids=["new", "damaged"])
def test_a_writer_that_is_slow_to_flush_does_not_undo_a_younger_mark(store, monkeypatch, damage):
    """Else a collector that began in between goes by the slow one's mark, and removes what the quick one's message names."""
    store.put(image_key(JPEG), JPEG)
    if damage is not None:
        (store.folder / KEY).write_bytes(damage)
    fsync, began = os.fsync, []

    def slow(handle):
        if not began and not stat.S_ISDIR(os.fstat(handle).st_mode):
            began.append(time.time() + 0.001)
            time.sleep(0.002)
            FileStore(store.folder).put(KEY, DATA)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", slow)
    store.put(KEY, DATA)
    assert not store.discard(KEY, began[0])
    assert store.get(KEY) == DATA
    assert sorted(names_in(store.folder)) == sorted([KEY, image_key(JPEG)])


@pytest.mark.parametrize("number", [1, 95, 31], ids=["EPERM", "EOPNOTSUPP", "EMLINK"])
def test_a_folder_without_hard_links_is_as_good(store, monkeypatch, number):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    (store.folder / KEY).write_bytes(b"x")
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert names_in(store.folder) == [KEY]


def test_who_repairs_what_was_repaired_meanwhile_leaves_it(store, monkeypatch):
    store.put(KEY, DATA)
    (store.folder / KEY).write_bytes(b"x")
    rename = Path.rename

    def put_then_renamed(self, target):
        monkeypatch.setattr(Path, "rename", rename)
        FileStore(store.folder).put(KEY, DATA)
        repaired.append((store.folder / KEY).stat().st_ino)
        return rename(self, target)

    repaired: list[int] = []
    monkeypatch.setattr(Path, "rename", put_then_renamed)
    store.put(KEY, DATA)
    assert [(store.folder / KEY).stat().st_ino] == repaired
    assert names_in(store.folder) == [KEY]


def test_a_put_that_has_no_file_handle_left_does_not_remove_the_good_copy(store):
    """It cannot tell whether the copy is good, so it may replace that by another, but never take it away first."""
    store.put(KEY, DATA)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(Unavailable, match="Too many open files"):
            store.put(KEY, DATA)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert store.get(KEY) == DATA
    assert names_in(store.folder) == [KEY]


def test_a_disk_that_fills_up_leaves_what_could_not_be_read(store, monkeypatch):
    store.put(KEY, DATA)

    def fail(*_):
        raise OSError(5, os.strerror(5))

    def full(*_):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr("crowmem.blobs.files._opened", fail)
        patch.setattr(os, "write", full)
        with pytest.raises(StoreFull):
            store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert names_in(store.folder) == [KEY]


def test_a_file_that_cannot_be_marked_as_used_is_replaced(store, monkeypatch):
    """Only its owner may set the time of a file, though others of its folder may rename it."""
    store.put(KEY, DATA)
    others, utime = (store.folder / KEY).stat().st_ino, os.utime

    def mark(file, *args, **more):
        if os.stat(file).st_ino == others:  # noqa: PTH116  # a number or a path
            raise OSError(1, os.strerror(1))
        utime(file, *args, **more)

    monkeypatch.setattr(os, "utime", mark)
    store.put(KEY, DATA)
    assert (store.folder / KEY).stat().st_ino != others
    assert store.get(KEY) == DATA
    assert names_in(store.folder) == [KEY]


def test_a_put_ends_where_no_file_can_be_told_from_another(store, monkeypatch):
    store.put(KEY, DATA)
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with pytest.raises(Unavailable, match="does not stay"):
        store.put(KEY, DATA)
    assert store.get(KEY) == DATA


@pytest.mark.parametrize("moment", ["moved", "looked"])
def test_a_collector_that_tidies_up_beside_another_hinders_nobody(store, monkeypatch, moment):
    """What the other has moved aside is an old file, and seems left over by one that died long ago."""
    store.put(KEY, DATA)
    os.utime(store.folder / KEY, (1, 1))
    if moment == "moved":
        rename = Path.rename
        monkeypatch.setattr(Path, "rename", lambda path, to: (rename(path, to), FileStore(store.folder).tidy()))
        assert not store.discard(KEY, time.time())
        assert store.get(KEY) == DATA
    else:
        aside = store.folder / f".{KEY}-{'a' * 16}.tmp"
        (store.folder / KEY).rename(aside)
        look = store.look
        monkeypatch.setattr(store, "look", lambda name: (look(name), aside.unlink())[0])
        assert store.tidy() == 0
        assert store.get(KEY) is None
    assert names_in(store.folder) == ([KEY] if moment == "moved" else [])


def test_a_writer_that_slept_while_its_file_was_cleared_away_writes_it_again(store, monkeypatch):
    store.put(image_key(JPEG), JPEG)
    fsync, slept = os.fsync, []

    def sleep(handle):
        fsync(handle)
        if not slept and not stat.S_ISDIR(os.fstat(handle).st_mode):
            slept.append(handle)
            os.utime(handle, (1, 1))
            assert FileStore(store.folder).tidy() == 1

    monkeypatch.setattr(os, "fsync", sleep)
    store.put(KEY, DATA)
    assert slept
    assert store.get(KEY) == DATA


def test_a_folder_of_a_blobs_name_is_left_alone_by_collectors(store):
    store.put(image_key(JPEG), JPEG)
    (store.folder / KEY).mkdir()
    os.utime(store.folder / KEY, (1, 1))
    assert not store.discard(KEY, time.time())
    assert [found.key for page in store.survey() for found in page] == [image_key(JPEG)]
    assert (store.folder / KEY).is_dir()


def test_a_mark_never_goes_back_with_a_clock(store, monkeypatch):
    """Else a put of a computer whose clock is behind looks older than the put before it."""
    store.put(KEY, DATA)
    before = store.look(KEY).written_at
    monkeypatch.setattr(time, "time_ns", lambda: int(before * 1e9) - 60 * 10**9)
    store.put(KEY, DATA)
    assert before < store.look(KEY).written_at < before + 1


def test_a_mark_is_not_before_its_put_where_times_are_of_even_seconds(store, monkeypatch):
    utime = os.utime

    def coarse(file, *, ns):
        utime(file, ns=tuple(at // 2_000_000_000 * 2_000_000_000 for at in ns))

    monkeypatch.setattr(os, "utime", coarse)
    for _ in range(2):
        began = time.time()
        store.put(KEY, DATA)
        assert not store.discard(KEY, began)
    assert store.get(KEY) == DATA


def test_without_hard_links_a_slow_writer_is_noticed_by_a_collector_too(store, monkeypatch):
    """It replaces a younger file by its own, which a collector removes before it is marked again."""
    store.put(image_key(JPEG), JPEG)
    replace, began = os.replace, []

    def refused(*_):
        raise OSError(1, os.strerror(1))

    def slow(aside, path):
        if not began:
            began.append(time.time() + 0.001)
            time.sleep(0.002)
            FileStore(store.folder).put(KEY, DATA)
            replace(aside, path)
            assert store.discard(KEY, began[0])
        else:
            replace(aside, path)

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(os, "replace", slow)
    store.put(KEY, DATA)
    assert not store.discard(KEY, began[0])
    assert store.get(KEY) == DATA


def test_a_young_file_is_not_moved_at_all(store, monkeypatch):
    store.put(KEY, DATA)
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("moved"))
    assert not store.discard(KEY, time.time() - 60)


def test_putting_and_discarding_at_once_never_loses_a_put(store):
    """A put that has returned, with no later discard of an old blob, leaves the blob there."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def collect() -> None:
        try:
            while not stop.wait(0.0002):
                store.discard(KEY, time.time() - 60)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=collect) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            store.put(KEY, DATA)
            while not store.exists(KEY):  # somebody holds the young file for an instant, and brings it back
                time.sleep(0)
            with contextlib.suppress(FileNotFoundError):
                os.utime(store.folder / KEY, (1, 1))
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_leftovers_of_the_dead_are_cleared_and_whole_ones_go_back(store):
    store.put(image_key(JPEG), JPEG)
    whole, cut, young = (store.folder / f".{KEY}-{letter * 16}.tmp" for letter in "abc")
    half = store.folder / f".{'d' * 16}.tmp"
    half.write_bytes(DATA[:5])
    os.utime(half, (1, 1))
    whole.write_bytes(DATA)
    cut.write_bytes(DATA[:5])
    young.write_bytes(DATA[:5])
    os.utime(whole, (1, 1))
    os.utime(cut, (1, 1))
    assert store.tidy() == 3
    assert sorted(names_in(store.folder)) == sorted([KEY, image_key(JPEG), young.name])
    assert store.get(KEY) == DATA


def test_a_survey_has_pages_of_a_thousand(store):
    store.put(KEY, DATA)
    for number in range(1001):
        (store.folder / f"{number:064x}.gif").write_bytes(b"")
    pages = list(store.survey())
    assert [len(page) for page in pages] == [1000, 2]
    keys = [found.key for page in pages for found in page]
    assert keys == sorted(keys) == store.keys()


# --- many at once, and crashes ---


def test_many_threads_put_the_same_and_different_blobs(store):
    blobs = {image_key(data): data for data in map(png, range(20))}
    failures: list[CrowmemError] = []

    def work() -> None:
        try:
            for key, data in blobs.items():
                store.put(key, data)
                assert store.get(key) == data
        except CrowmemError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.keys() == sorted(blobs)
    assert len(names_in(store.folder)) == 20


WRITER = """
import sys
sys.path[:0] = {paths!r}
from pictures import png
from crowmem.blobs import FileStore
from crowmem.blobs.keys import image_key
store = FileStore({folder!r})
for number in range(100_000):
    data = png(number, 50_000)
    store.put(image_key(data), data)
    print(number, flush=True)
"""


def test_kill_at_random_moments_leaves_whole_blobs_and_all_acknowledged_ones(tmp_path):
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    for round_number in range(12):
        folder = tmp_path / str(round_number)
        code = WRITER.format(paths=paths, folder=str(folder))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            seen = [writer.stdout.readline() for _ in range(1 + 3 * round_number)]
            writer.kill()
            seen += writer.stdout.readlines()
        store = FileStore(folder)
        acknowledged = [int(line) for line in seen if line.endswith("\n")]
        assert len(acknowledged) >= 1 + 3 * round_number
        for number in acknowledged:
            data = png(number, 50_000)
            assert store.get(image_key(data)) == data
        assert all(store.get(key) is not None for key in FileStore.keys(store))

"""A bucket with a folder behind it: outages, the spool, repair in both directions, one line in the log."""

from __future__ import annotations

import io
import logging
import os
import secrets
import threading
from typing import TYPE_CHECKING

import pytest
from pictures import JPEG, png
from tcp_proxy import Wire

from crowmem.blobs import Collectable, FileStore, HybridStore, MinioStore, Store, hybrid
from crowmem.blobs.endpoint import make_client
from crowmem.blobs.keys import image_key
from crowmem.errors import BlobDamaged, ConfigError, CrowmemError, InvalidValue, StoreFull, Unavailable

if TYPE_CHECKING:
    import s3_server

DATA = png(1)
KEY = image_key(DATA)


class Away(FileStore):
    """A folder that plays a bucket which can be taken away; it counts what it is asked."""

    problem: CrowmemError | None = None
    asked = 0

    def _check(self) -> None:
        self.asked += 1
        if self.problem is not None:
            raise self.problem

    def put(self, key, data):
        self._check()
        super().put(key, data)

    def get(self, key):
        self._check()
        return super().get(key)

    def exists(self, key):
        self._check()
        return super().exists(key)

    def delete(self, key):
        self._check()
        return super().delete(key)

    def keys(self):
        self._check()
        return super().keys()


@pytest.fixture
def bucket(tmp_path):
    return Away(tmp_path / "bucket")


@pytest.fixture
def folder(tmp_path):
    return FileStore(tmp_path / "folder")


@pytest.fixture
def store(bucket, folder):
    return HybridStore(bucket, folder)


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still until it is set."""
    from crowmem.blobs import breaker

    now = [1000.0]
    monkeypatch.setattr(breaker.time, "monotonic", lambda: now[0])
    return now


def waiting(store: HybridStore) -> int:
    return int(store.status()["spool"]["blobs"])


def test_it_is_a_store(store):
    assert isinstance(store, Store)
    assert isinstance(store, Collectable)


def test_the_fallback_must_be_a_folder(bucket):
    with pytest.raises(ConfigError, match="FileStore"):
        HybridStore(bucket, object())


def test_writes_go_to_the_bucket_only(store, bucket, folder):
    store.put(KEY, DATA)
    assert bucket.get(KEY) == DATA
    assert folder.keys() == []
    assert store.get(KEY) == DATA
    assert store.exists(KEY)
    assert waiting(store) == 0


def test_reads_fall_back_to_the_folder(store, folder):
    folder.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert store.exists(KEY)
    assert store.keys() == [KEY]
    assert store.get(image_key(JPEG)) is None
    assert not store.exists(image_key(JPEG))


def test_while_the_bucket_is_away_blobs_wait_in_the_folder_and_one_line_says_so(store, bucket, folder, caplog):
    bucket.problem = Unavailable("cannot put it: refused")
    with caplog.at_level(logging.INFO, logger="crowmem"):
        store.put(KEY, DATA)
        store.put(image_key(JPEG), JPEG)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "refused" in caplog.text
        assert str(folder.folder) in caplog.text
        status = store.status()
        assert status["reachable"] is False
        assert status["spool"] == {"blobs": 2, "bytes": len(DATA) + len(JPEG)}
        assert store.get(KEY) == DATA
        assert FileStore(folder.folder).get(KEY) == DATA
        bucket.problem = None
        assert store.sync() == 2
        assert store.sync() == 0
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert bucket.keys() == sorted([KEY, image_key(JPEG)])
    assert store.status()["reachable"] is True
    assert waiting(store) == 0


def test_the_next_put_that_reaches_the_bucket_uploads_what_waits(store, bucket, clock):
    bucket.problem = Unavailable("away")
    store.put(KEY, DATA)
    bucket.problem = None
    clock[0] += 60
    store.put(image_key(JPEG), JPEG)
    assert bucket.keys() == sorted([KEY, image_key(JPEG)])
    assert waiting(store) == 0


def test_the_spool_outlives_the_process(store, bucket, folder):
    bucket.problem = Unavailable("away")
    store.put(KEY, DATA)
    bucket.problem = None
    assert HybridStore(bucket, folder).sync() == 1
    assert bucket.get(KEY) == DATA


def test_an_outage_costs_its_timeout_rarely(store, bucket, clock):
    bucket.problem = Unavailable("hangs for ten seconds")
    for number in range(100):
        data = png(number)
        store.put(image_key(data), data)
    assert bucket.asked == 1
    asked = []
    for _second in range(60):
        clock[0] += 1
        store.put(KEY, DATA)
        asked.append(bucket.asked)
    assert asked[-1] == 1 + len([1, 2, 4, 8, 15, 15, 15])  # after each of these pauses it is tried once


def test_while_the_bucket_is_away_what_only_it_has_cannot_be_told(store, bucket):
    bucket.problem = Unavailable("away")
    for call in (store.keys, lambda: store.delete(KEY), lambda: store.get(KEY), lambda: store.exists(KEY)):
        with pytest.raises(Unavailable, match="away"):
            call()
    assert bucket.asked == 2  # a read does not wait for an answer so soon again


def test_sync_always_tries(store, bucket):
    bucket.problem = Unavailable("away")
    store.put(KEY, DATA)
    asked = bucket.asked
    with pytest.raises(Unavailable):
        store.sync()
    assert bucket.asked == asked + 1
    assert waiting(store) == 1


@pytest.mark.parametrize("problem", [ConfigError("AccessDenied"), StoreFull("quota"), Unavailable("503")], ids=str)
def test_whatever_the_bucket_says_the_put_succeeds(store, bucket, problem):
    bucket.problem = problem
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert waiting(store) == 1


def test_bytes_of_another_hash_go_nowhere(store, bucket, folder):
    with pytest.raises(InvalidValue):
        store.put(KEY, JPEG)
    with pytest.raises(InvalidValue):
        store.put("../x", JPEG)
    assert bucket.keys() == folder.keys() == []


def test_when_both_fail_the_put_fails(store, bucket, folder, monkeypatch):
    bucket.problem = Unavailable("away")
    folder.folder.write_text("a file")
    with pytest.raises(ConfigError):
        store.put(KEY, DATA)


# --- repair ---


def test_a_damaged_object_is_repaired_from_the_folder(store, bucket, folder):
    store.put(KEY, DATA)
    folder.put(KEY, DATA)
    (bucket.folder / KEY).write_bytes(b"damaged")
    assert store.get(KEY) == DATA
    assert bucket.get(KEY) == DATA
    assert waiting(store) == 0


def test_a_damaged_file_is_repaired_from_the_bucket(store, bucket, folder):
    store.put(KEY, DATA)
    folder.put(KEY, DATA)
    (folder.folder / KEY).write_bytes(b"damaged")
    assert store.get(KEY) == DATA
    assert folder.get(KEY) == DATA


def test_without_a_good_copy_it_is_damaged(store, bucket, folder):
    store.put(KEY, DATA)
    (bucket.folder / KEY).write_bytes(b"damaged")
    with pytest.raises(BlobDamaged):
        store.get(KEY)
    folder.put(KEY, DATA)
    (folder.folder / KEY).write_bytes(b"damaged too")
    with pytest.raises(BlobDamaged):
        store.get(KEY)
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA


def test_a_repair_that_fails_is_told_and_the_good_copy_returned(store, bucket, folder, monkeypatch, caplog):
    store.put(KEY, DATA)
    folder.put(KEY, DATA)
    (folder.folder / KEY).write_bytes(b"damaged")

    def full(key, data):
        raise StoreFull("no room")

    monkeypatch.setattr(folder, "put", full)
    with caplog.at_level(logging.WARNING, logger="crowmem"):
        assert store.get(KEY) == DATA
    assert "no room" in caplog.text


def test_a_damaged_waiting_blob_does_not_stop_the_others(store, bucket, folder):
    bucket.problem = Unavailable("away")
    blobs = {image_key(data): data for data in map(png, range(5))}
    for key, data in blobs.items():
        store.put(key, data)
    bucket.problem = None
    first = sorted(blobs)[0]
    (folder.folder / first).write_bytes(b"damaged")
    with pytest.raises(BlobDamaged, match=first):
        store.sync()
    assert bucket.keys() == sorted(blobs)[1:]
    bucket.put(first, blobs[first])
    assert store.sync() == 0
    assert waiting(store) == 0


def test_a_damaged_waiting_blob_is_told_once_and_the_next_put_uploads_the_others(store, bucket, folder, caplog, clock):
    bucket.problem = Unavailable("away")
    blobs = {image_key(data): data for data in map(png, range(5))}
    for key, data in blobs.items():
        store.put(key, data)
    bucket.problem = None
    clock[0] += 60
    first = sorted(blobs)[0]
    (folder.folder / first).write_bytes(b"damaged")
    caplog.clear()
    for number in range(10, 13):
        store.put(image_key(png(number)), png(number))
    assert waiting(store) == 1
    assert set(blobs) - set(bucket.keys()) == {first}
    assert [first in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [True]
    store.put(first, blobs[first])  # the bucket has it now, and the note goes
    assert waiting(store) == 0
    assert bucket.get(first) == blobs[first]


def test_a_note_without_its_blob_is_forgotten(store, folder):
    folder.put(image_key(JPEG), JPEG)
    (folder.folder / "spool").mkdir()
    (folder.folder / "spool" / KEY).touch()
    assert store.sync() == 0
    assert waiting(store) == 0


# --- collecting ---


def test_a_survey_names_each_blob_once_with_its_later_put(store, bucket, folder):
    import os

    for number in range(30):
        data = png(number)
        if number % 2:
            bucket.put(image_key(data), data)
        if number % 3:
            folder.put(image_key(data), data)
            os.utime(folder.folder / image_key(data), (1, 1))
    found = [one for page in store.survey() for one in page]
    assert [one.key for one in found] == store.keys()
    young = {one.key for one in found if one.written_at > 1}
    assert young == set(bucket.keys())


def test_delete_and_discard_take_both_copies_and_the_note(store, bucket, folder):
    bucket.problem = Unavailable("away")
    store.put(KEY, DATA)
    bucket.problem = None
    bucket.put(KEY, DATA)
    assert store.discard(KEY, 1e12)
    assert store.keys() == []
    assert waiting(store) == 0
    assert not store.discard(KEY, 1e12)
    folder.put(KEY, DATA)
    assert store.delete(KEY)
    assert not store.delete(KEY)


def test_a_young_waiting_blob_keeps_its_note(store, bucket):
    bucket.problem = Unavailable("away")
    store.put(KEY, DATA)
    bucket.problem = None
    assert not store.discard(KEY, 1.0)
    assert store.sync() == 1
    assert bucket.get(KEY) == DATA


def test_the_users_are_noted_in_both_and_in_the_bucket_when_it_is_there(store, bucket, folder):
    store.join("a" * 32)
    assert bucket.users() == folder.users() == store.users() == ["a" * 32]
    bucket.join("b" * 32)
    folder.join("c" * 32)
    assert store.users() == ["a" * 32, "b" * 32, "c" * 32]


def test_joining_while_the_bucket_is_away_is_no_error(folder, caplog):
    store = HybridStore(MinioStore("127.0.0.1:1", "pictures", "some-user", "some-secret"), folder)
    store.join("a" * 32)
    assert folder.users() == ["a" * 32]
    assert len(caplog.records) == 1
    with pytest.raises(Unavailable):
        store.users()


def test_a_user_is_noted_in_the_bucket_before_the_first_image_after_an_outage(bucket, folder, clock, monkeypatch):
    """Else another database's collector there would take its images for nobody's."""
    away, order = [Unavailable("away")], []
    join, put = bucket.join, bucket.put

    def noted(user):
        if away:
            raise away[0]
        order.append("note")
        join(user)

    def kept(key, data):
        order.append("put")
        put(key, data)

    monkeypatch.setattr(bucket, "join", noted)
    monkeypatch.setattr(bucket, "put", kept)
    store = HybridStore(bucket, folder)
    store.join("a" * 32)
    store.put(KEY, DATA)
    assert bucket.users() == []
    away.clear()
    assert store.sync() == 1
    store.put(KEY, DATA)
    assert order == ["note", "put", "put"]
    assert bucket.users() == ["a" * 32]


def test_a_note_that_is_refused_does_not_keep_images_from_the_bucket(bucket, folder, monkeypatch, clock):
    def refused(user):
        raise ConfigError("AccessDenied")

    monkeypatch.setattr(bucket, "join", refused)
    store = HybridStore(bucket, folder)
    store.join("a" * 32)
    clock[0] += 60
    store.put(KEY, DATA)
    assert bucket.get(KEY) == DATA


# --- threads and a real server ---


def test_many_threads_through_an_outage_lose_nothing(store, bucket):
    blobs = {image_key(data): data for data in map(png, range(200))}
    failures: list[BaseException] = []
    half = threading.Barrier(9)

    def work(keys):
        try:
            for index, key in enumerate(keys):
                if index == len(keys) // 2:
                    half.wait()
                store.put(key, blobs[key])
        except BaseException as error:
            failures.append(error)

    keys = list(blobs)
    threads = [threading.Thread(target=work, args=(keys[start::8],)) for start in range(8)]
    for thread in threads:
        thread.start()
    half.wait()
    bucket.problem = Unavailable("away")
    for thread in threads:
        thread.join()
    assert not failures
    bucket.problem = None
    store.sync()
    assert bucket.keys() == sorted(blobs)
    assert all(bucket.get(key) == data for key, data in blobs.items())


def test_a_dead_server_at_opening_is_told_once_and_quickly(folder, caplog):
    store = HybridStore(MinioStore("127.0.0.1:1", "pictures", "some-user", "some-secret"), folder)
    with caplog.at_level(logging.INFO, logger="crowmem"):
        store.probe()
        store.put(KEY, DATA)
    assert len(caplog.records) == 1
    assert store.get(KEY) == DATA


def test_the_whole_story_on_a_real_server(s3_base: s3_server.S3Server, folder, tmp_path):
    name = f"b-{secrets.token_hex(8)}"
    with Wire(s3_base.address) as wire:

        def bucket() -> MinioStore:
            return MinioStore(f"127.0.0.1:{wire.port}", name, s3_base.access_key, s3_base.secret_key, read_s=1.0)

        store = HybridStore(bucket(), folder)
        store.probe()
        store.put(KEY, DATA)
        wire.cut("refuse")
        store.put(image_key(JPEG), JPEG)
        assert store.get(image_key(JPEG)) == JPEG
        with pytest.raises(Unavailable):
            store.get(KEY)
        wire.cut("pass")
        assert store.sync() == 1
        elsewhere = HybridStore(bucket(), FileStore(tmp_path / "other machine"))
        assert elsewhere.get(KEY) == DATA
        assert elsewhere.get(image_key(JPEG)) == JPEG
        assert elsewhere.keys() == sorted([KEY, image_key(JPEG)])
        client = make_client(s3_base.endpoint, False, s3_base.access_key, s3_base.secret_key, s3_base.region, 2, 10)
        client.put_object(name, KEY, io.BytesIO(b"damaged"), 7)
        with pytest.raises(BlobDamaged):
            elsewhere.get(KEY)
        folder.put(KEY, DATA)
        assert store.get(KEY) == DATA
        assert elsewhere.get(KEY) == DATA


def test_draining_stops_after_its_time(store, bucket, monkeypatch, clock):
    bucket.problem = Unavailable("away")
    blobs = {image_key(data): data for data in map(png, range(5))}
    for key, data in blobs.items():
        store.put(key, data)
    bucket.problem = None
    clock[0] += 60
    monkeypatch.setattr(hybrid, "DRAIN_S", -1.0)
    store.put(image_key(JPEG), JPEG)
    assert waiting(store) == 4


@pytest.mark.parametrize("bad", [None, 1, "https://s3.example", object()], ids=lambda bad: type(bad).__name__)
def test_what_is_no_store_is_neither_primary_nor_fallback(tmp_path, bad):
    with pytest.raises(ConfigError, match="the primary of a HybridStore is"):
        HybridStore(bad, FileStore(tmp_path))
    with pytest.raises(ConfigError, match="the fallback of a HybridStore is"):
        HybridStore(FileStore(tmp_path), bad)


def test_a_note_that_is_made_again_during_an_upload_stays(store, bucket, folder, monkeypatch):
    """Between the two a collector may have taken the blob out of the bucket again: this put is then the only one."""
    bucket.problem = Unavailable("cannot put it: refused")
    store.put(KEY, DATA)
    bucket.problem = None
    os.utime(folder.folder / "spool" / KEY, (1, 1))
    put = Away.put

    def put_then_collect(away, key, data):
        put(away, key, data)
        assert away.discard(key, away.look(key).written_at + 1)
        bucket.problem = Unavailable("cannot put it: refused")
        HybridStore(bucket, folder).put(key, data)
        bucket.problem = None

    with monkeypatch.context() as patch:
        patch.setattr(Away, "put", lambda *call: (patch.undo(), put_then_collect(*call)))
        assert store.sync() == 1
    assert waiting(store) == 1
    assert store.sync() == 1
    assert waiting(store) == 0
    assert bucket.get(KEY) == DATA

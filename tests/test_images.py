"""Images in a store: taken out on the way in, put back on the way out, named, freed and collected, on four backends."""

from __future__ import annotations

import copy
import json
import os
import secrets
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from backends import Backend
from data import shared_data
from pictures import GIF, JPEG, WEBP, openai_block, picture, png
from test_images_extraction import FORMS

from crowmem import Memory
from crowmem.blobs import FileStore, HybridStore, MinioStore
from crowmem.blobs.endpoint import make_client
from crowmem.blobs.files import Found
from crowmem.blobs.keys import image_key
from crowmem.copying import copy_store
from crowmem.errors import (
    BlobDamaged,
    Busy,
    Closed,
    ConfigError,
    Conflict,
    InvalidValue,
    ReadOnly,
    StoreFull,
    Unavailable,
    Unsupported,
)

if TYPE_CHECKING:
    from pathlib import Path

DATA = png(1)
KEY = image_key(DATA)
REF = {"type": "image_ref", "path": KEY, "mime": "image/png"}
HOSTILE = ["../x", "/etc/x", "C:\\x", KEY + "\0", "%2e%2e%2fx", "", None, 7]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images of this test"


@pytest.fixture
def memory(backend, folder):
    return backend.open(images=folder)


def age(folder: Path, seconds: float = 100_000) -> None:
    """Let every blob be older."""
    for path in folder.glob("*.*"):
        moment = path.stat().st_mtime - seconds
        os.utime(path, (moment, moment))


# --- in and out ---


def test_images_never_reach_the_database(memory, folder):
    message = picture(DATA)
    memory.messages.add("s-1-1", message)
    assert memory.messages.load("s-1-1") == [{"role": "user", "content": [{"type": "text", "text": "look"}, REF]}]
    assert (folder / KEY).read_bytes() == DATA
    assert memory.messages.load("s-1-1", hydrate=True) == [message]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_comes_back_letter_for_letter(memory, name):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, FORMS[name]]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": [FORMS[name], FORMS[name]]}],
        },
    ]
    before = json.dumps(messages)
    memory.messages.add_many("s-1-1", messages)
    memory.messages.add("s-1-1", messages[0])
    assert json.dumps(messages) == before
    assert memory.messages.load_json("s-1-1").count("image_ref") >= 4
    assert json.dumps(memory.messages.load("s-1-1", hydrate=True)) == json.dumps([*messages, messages[0]])


def test_the_same_bytes_are_stored_once(memory, folder):
    for _ in range(3):
        memory.messages.add("s-1-1", picture(DATA))
    assert [path.name for path in folder.glob("*.png")] == [KEY]


def test_what_is_no_image_stays_in_the_message(memory, folder):
    message = {
        "role": "user",
        "content": [
            openai_block(b"<html>", "image/png"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}},
        ],
    }
    memory.messages.add("s-1-1", message)
    assert memory.messages.load("s-1-1") == [message] == memory.messages.load("s-1-1", hydrate=True)
    assert not folder.exists()


def test_a_fork_sees_its_parents_images(memory):
    memory.agents.create("s-1-1", "s")
    memory.messages.add("s-1-1", picture(DATA))
    fork = memory.agents.fork("s-1-1")
    memory.messages.add(fork.agent_id, picture(JPEG))
    assert memory.messages.load(fork.agent_id, hydrate=True) == [picture(DATA), {**picture(JPEG)}]


def test_text_beside_images_is_found(memory):
    memory.messages.add("s-1-1", picture(DATA, "a magpie on a wire"))
    [hit] = memory.search.messages("magpie")
    assert hit.data["content"][1] == REF


def test_many_images_in_one_session(memory):
    messages = [picture(png(number), f"number {number}") for number in range(150)]
    memory.messages.add_many("s-1-1", messages)
    assert memory.messages.load("s-1-1", hydrate=True) == messages


@pytest.mark.parametrize("path", HOSTILE, ids=repr)
def test_a_reference_to_no_key_is_refused_before_anything_is_written(memory, folder, path):
    bad = {"role": "user", "content": [openai_block(DATA), {**REF, "path": path}]}
    with pytest.raises(InvalidValue, match=r"^message\.content\[1\]\.path is "):
        memory.messages.add("s-1-1", bad)
    with pytest.raises(InvalidValue, match=r"^messages\[1\]\.content\[1\]\.path is "):
        memory.messages.add_many("s-1-1", [picture(JPEG), bad])
    with pytest.raises(InvalidValue, match=r"content\[1\]\.path is "):
        memory.images.extract(bad)
    assert memory.messages.load("s-1-1") == []
    assert not folder.exists()


@pytest.mark.parametrize("key", HOSTILE, ids=repr)
def test_no_door_takes_what_is_no_key(memory, key):
    for door in (
        memory.images.get,
        memory.images.exists,
        memory.images.messages,
        lambda bad: memory.images.remove(1, bad),
    ):
        with pytest.raises(InvalidValue, match="no image key"):
            door(key)


def test_a_stored_hostile_reference_opens_no_file(backend, memory, tmp_path):
    (tmp_path / "x").write_bytes(DATA)
    foreign(backend, "s-1-1", {"role": "user", "content": [{**REF, "path": "../x"}]})
    [message] = memory.messages.load("s-1-1", hydrate=True)
    assert message["content"] == [{**REF, "path": "../x"}]
    assert memory.images.hydrate(message) == message


def test_a_message_that_is_refused_leaves_no_image(memory, folder):
    with pytest.raises(InvalidValue):
        memory.messages.add("s-1-1", {**picture(DATA), "score": float("nan")})
    with pytest.raises(InvalidValue):
        memory.messages.add("malformed", picture(DATA))
    assert not folder.exists()


# --- the doors ---


def test_put_and_get(memory, folder):
    assert memory.images.get(KEY) is None
    assert not memory.images.exists(KEY)
    for data, ending in ((DATA, ".png"), (JPEG, ".jpg"), (GIF, ".gif"), (WEBP, ".webp")):
        key = memory.images.put(data)
        assert key == image_key(data)
        assert key.endswith(ending)
        assert memory.images.get(key) == data
        assert memory.images.exists(key)


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (b"<!DOCTYPE html>", "image/png"),
        (b"<svg/>", "image/png"),
        (b"", "image/png"),
        (b"RIFF", None),
        ("text", "image/png"),
        (None, None),
    ],
    ids=["web page", "svg", "empty", "cut", "text", "nothing"],
)
def test_one_bad_image_is_refused_at_the_door(memory, folder, data, mime):
    with pytest.raises(InvalidValue):
        memory.images.put(data, mime)
    assert not folder.exists()


@pytest.mark.parametrize("mime", ["image/jpg", "image/jpeg", "image/png", "text/html", None])
def test_the_bytes_decide_whatever_is_declared(memory, mime):
    assert memory.images.put(JPEG, mime).endswith(".jpg")


def test_extract_and_hydrate(memory):
    message = picture(DATA)
    before = copy.deepcopy(message)
    stored = memory.images.extract(message)
    assert stored["content"][1] == REF
    assert message == before
    assert memory.images.get(KEY) == DATA
    assert memory.images.hydrate(stored) == message
    assert stored["content"][1] == REF


def test_no_image_is_read_or_kept_after_close(memory, folder):
    key = memory.images.put(DATA)
    named = memory.images.extract(picture(DATA))
    with memory.transaction() as tx:
        tx.close()  # a transaction ends with its block
    assert memory.images.exists(key)
    memory.close()
    for call in (
        lambda: memory.images.put(GIF),
        lambda: memory.images.get(key),
        lambda: memory.images.exists(key),
        lambda: memory.images.extract(picture(GIF)),
        lambda: memory.images.hydrate(named),
        memory.images.sync,
        lambda: memory.images.collect(grace_s=0),
        lambda: memory.images.messages(key),
    ):
        with pytest.raises(Closed):
            call()
    assert [path.stem for path in folder.rglob("*.png")] == [key.removesuffix(".png")]
    assert not list(folder.rglob("*.gif"))


def test_a_missing_image_leaves_its_reference(memory, folder):
    memory.messages.add_many("s-1-1", [picture(DATA), picture(JPEG)])
    (folder / KEY).unlink()
    first, second = memory.messages.load("s-1-1", hydrate=True)
    assert first["content"][1] == REF
    assert second == picture(JPEG)


def test_a_damaged_image_is_told_and_the_next_message_with_it_repairs_it(memory, folder):
    memory.messages.add("s-1-1", picture(DATA))
    (folder / KEY).write_bytes(DATA[:-1])
    with pytest.raises(BlobDamaged, match=KEY):
        memory.messages.load("s-1-1", hydrate=True)
    with pytest.raises(BlobDamaged):
        memory.images.get(KEY)
    assert memory.messages.load("s-1-1")[0]["content"][1] == REF
    memory.messages.add("s-1-1", picture(DATA))
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)] * 2


def test_a_session_can_be_freed_of_one_image(memory):
    ids = memory.messages.add_many("s-1-1", [picture(DATA), picture(JPEG), picture(DATA)])
    assert memory.images.messages(KEY) == [ids[0], ids[2]]
    assert memory.images.messages(KEY, after_id=ids[0], limit=1) == [ids[2]]
    for message_id in memory.images.messages(KEY):
        assert memory.images.remove(message_id, KEY)
        assert not memory.images.remove(message_id, KEY)
    freed = {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "text", "text": "[image removed]"}]}
    assert memory.messages.load("s-1-1", hydrate=True) == [freed, picture(JPEG), freed]
    assert memory.images.messages(KEY) == []
    assert len(memory.search.messages("removed")) == 2
    assert not memory.images.remove(10**9, KEY)


# --- which store ---


def test_a_store_object_may_be_given(backend, folder):
    memory = backend.open(images=FileStore(folder))
    memory.messages.add("s-1-1", picture(DATA))
    assert (folder / KEY).exists()


@pytest.mark.parametrize("images", [5, object(), b"folder", ["folder"]], ids=lambda value: type(value).__name__)
def test_what_is_no_store_is_a_configuration_error(backend, images):
    with pytest.raises(ConfigError, match="images is a"):
        backend.open(images=images)


def test_by_default_they_are_beside_the_file_or_in_the_home_folder(backend, tmp_path):
    memory = backend.open()
    memory.messages.add("s-1-1", picture(DATA))
    beside = tmp_path if backend.dialect == "sqlite" else tmp_path / "home" / ".agents" / "crow"
    assert (beside / "images" / KEY).exists()


def test_a_configured_folder(backend, tmp_path):
    (tmp_path / "config.yaml").write_text("images_dir: pictures\n")
    memory = backend.open(config=tmp_path)
    memory.messages.add("s-1-1", picture(DATA))
    assert (tmp_path / "pictures" / KEY).exists()


def config_with_s3(folder: Path, endpoint: str, bucket: str, access_key: str, secret_key: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(
        f"""
images_dir: pictures
image_store:
  s3:
    endpoint: {endpoint}
    bucket: {bucket}
    access_key: ${{TEST_S3_USER}}
    secret_key: ${{TEST_S3_SECRET}}
"""
    )
    (folder / ".env").write_text(f"TEST_S3_USER={access_key}\nTEST_S3_SECRET={secret_key}\n")
    return folder


def test_a_configured_bucket(backend, tmp_path, s3_base, caplog):
    bucket = f"b-{secrets.token_hex(8)}"
    settings = (f"http://{s3_base.endpoint}", bucket, s3_base.access_key, s3_base.secret_key)
    here = backend.open(config=config_with_s3(tmp_path / "here", *settings))
    here.messages.add("s-1-1", picture(DATA))
    key = here.images.put(JPEG)
    status = here.status().images
    assert status["url"] == f"http://{s3_base.endpoint}/{bucket}"
    assert status["reachable"] is True
    assert s3_base.secret_key not in str(here.status())
    assert s3_base.secret_key not in repr(here)
    assert FileStore(tmp_path / "here" / "pictures").keys() == []
    there = backend.open(config=config_with_s3(tmp_path / "there", *settings))
    assert there.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
    assert there.images.collect(grace_s=0) == 1
    assert here.images.get(key) is None
    assert caplog.records == []


def test_a_read_only_store_makes_no_bucket(backend, tmp_path, s3_base):
    bucket = f"b-{secrets.token_hex(8)}"
    settings = (f"http://{s3_base.endpoint}", bucket, s3_base.access_key, s3_base.secret_key)
    backend.open().messages.add("s-1-1", {"role": "user", "content": "no image"})
    backend.open(config=config_with_s3(tmp_path / "here", *settings), read_only=True).messages.load("s-1-1")
    client = make_client(s3_base.endpoint, False, s3_base.access_key, s3_base.secret_key, s3_base.region, 2, 10)
    assert not client.bucket_exists(bucket)
    backend.open(config=config_with_s3(tmp_path / "here", *settings))
    assert client.bucket_exists(bucket)


def test_a_configured_bucket_that_is_down_costs_one_line_in_the_log(backend, tmp_path, caplog):
    config = config_with_s3(tmp_path / "here", "http://127.0.0.1:1", "pictures", "some-user", "some-secret")
    memory = backend.open(config=config)
    assert len(caplog.records) == 1
    assert "some-secret" not in caplog.text
    memory.messages.add_many("s-1-1", [picture(DATA), picture(JPEG)])
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA), picture(JPEG)]
    assert memory.status().images["spool"]["blobs"] == 2
    assert len(caplog.records) == 1


def test_a_configured_bucket_with_a_wrong_secret_goes_to_the_folder_too(backend, tmp_path, s3_base, caplog):
    settings = (f"http://{s3_base.endpoint}", "pictures", s3_base.access_key, "wrong-secret")
    memory = backend.open(config=config_with_s3(tmp_path / "here", *settings))
    assert "SignatureDoesNotMatch" in caplog.text
    assert "wrong-secret" not in caplog.text
    memory.messages.add("s-1-1", picture(DATA))
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]


def test_a_database_in_memory_keeps_images_in_its_messages(tmp_path):
    with Memory.open(":memory:") as memory:
        memory.messages.add("s-1-1", picture(DATA))
        assert memory.messages.load("s-1-1") == [picture(DATA)] == memory.messages.load("s-1-1", hydrate=True)
        with pytest.raises(ConfigError, match="images="):
            memory.images.put(DATA)
    assert not (tmp_path / "home" / ".agents").exists()
    with Memory.open(":memory:", images=tmp_path / "pictures") as memory:
        memory.messages.add("s-1-1", picture(DATA))
        assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
        assert (tmp_path / "pictures" / KEY).exists()


def test_a_read_only_store_writes_no_image(backend, memory, folder):
    memory.messages.add("s-1-1", picture(DATA))
    reader = backend.open(read_only=True, images=folder)
    assert reader.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
    assert reader.images.get(KEY) == DATA
    for call in (
        lambda: reader.images.put(JPEG),
        lambda: reader.messages.add("s-1-1", picture(JPEG)),
        lambda: reader.messages.add_many("s-1-1", [picture(JPEG)]),
        lambda: reader.images.extract(picture(JPEG)),
        lambda: reader.images.remove(1, KEY),
        lambda: reader.images.collect(grace_s=0),
    ):
        with pytest.raises(ReadOnly):
            call()
    assert [path.name for path in folder.glob("*.*") if path.is_file()] == [KEY]


class Failing(FileStore):
    """A folder that fails as it is told."""

    problem: Exception | None = None

    def put(self, key, data):
        if self.problem is not None:
            raise self.problem
        super().put(key, data)


@pytest.mark.parametrize("problem", [StoreFull("no room"), Unavailable("away")], ids=str)
def test_an_image_that_cannot_be_kept_keeps_its_message_out(backend, folder, problem):
    images = Failing(folder)
    memory = backend.open(images=images)
    images.problem = problem
    for call in (
        lambda: memory.messages.add("s-1-1", picture(DATA)),
        lambda: memory.messages.add_many("s-1-1", [picture(DATA)]),
        lambda: memory.images.put(DATA),
    ):
        with pytest.raises(type(problem), match=str(problem)):
            call()
    assert memory.messages.load("s-1-1") == []
    memory.messages.add("s-1-1", {"role": "user", "content": "text still goes"})


def test_an_outage_of_the_bucket(backend, folder, tmp_path):
    bucket = Failing(tmp_path / "bucket")
    bucket.problem = Unavailable("away")
    memory = backend.open(images=HybridStore(bucket, FileStore(folder)))
    memory.messages.add("s-1-1", picture(DATA))
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
    status = memory.status().images
    assert status["reachable"] is False
    assert status["spool"] == {"blobs": 1, "bytes": len(DATA)}
    with pytest.raises(Unavailable):
        memory.images.sync()
    bucket.problem = None
    assert memory.images.sync() == 1
    assert memory.images.sync() == 0
    assert memory.status().images["spool"]["blobs"] == 0
    elsewhere = backend.open(images=HybridStore(bucket, FileStore(tmp_path / "another machine")))
    assert elsewhere.messages.load("s-1-1", hydrate=True) == [picture(DATA)]


def test_a_folder_has_nothing_to_upload(memory):
    assert memory.images.sync() == 0


def test_the_status_says_where_images_are(memory, folder):
    memory.messages.add_many("s-1-1", [picture(DATA), picture(DATA), picture(JPEG)])
    assert memory.status().images == {"kind": "folder", "folder": str(folder), "named": 2, "references": 3}


def test_what_cannot_be_read_is_told_beside_the_rest(memory, folder, monkeypatch):
    """Root may read everything, so the system's refusal is played."""
    memory.messages.add_many("s-1-1", [picture(DATA), picture(JPEG)])
    (folder / KEY).unlink()
    (folder / KEY).mkdir()
    plain = os.open

    def denied(path, *rest, **more):
        if str(path).endswith(".jpg"):
            raise PermissionError(13, "Permission denied")
        return plain(path, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", denied)
        found = " ".join(memory.check(deep=True))
    assert f"image {KEY}: damaged" in found
    assert ".jpg: unreadable" in found


def test_a_status_is_given_even_when_the_images_cannot_be_looked_at(backend, folder):
    images = HybridStore(MinioStore("127.0.0.1:1", "pictures", "some-user", "some-secret"), FileStore(folder))
    (folder / "spool").parent.mkdir(parents=True)
    (folder / "spool").write_bytes(b"a file in its place")
    memory = backend.open(images=images)
    assert "spool" in memory.status().images["problem"]
    assert memory.status().images["kind"] == "HybridStore"


def test_the_check_finds_missing_and_damaged_images(memory, folder):
    ids = memory.messages.add_many("s-1-1", [picture(DATA), picture(JPEG), picture(GIF)])
    assert memory.check(deep=True) == []
    (folder / KEY).unlink()
    (folder / image_key(JPEG)).write_bytes(b"x")
    found = memory.check(deep=True)
    assert len(found) == 2
    assert any(KEY in line and "missing" in line and str(ids[0]) in line for line in found)
    assert any(image_key(JPEG) in line and "damaged" in line and str(ids[1]) in line for line in found)


# --- collecting ---


def foreign(backend, agent_id: str, message: dict[str, Any]) -> None:
    """A row as crow-cli writes it."""
    data = json.dumps(message).replace("'", "''")
    run_foreign(
        backend,
        "insert into messages (agent_id, fork_idx, created_at, data, role) "
        f"values ('{agent_id}', 1, '2026-01-01T00:00:00+00:00', '{data}', 'user')",
    )


def run_foreign(backend, sql: str) -> None:
    """A statement of another program."""
    if backend.dialect == "sqlite":
        import apsw

        connection = apsw.Connection(backend.url)
        connection.set_busy_timeout(5000)
        connection.execute(sql)
        connection.close()
    else:
        import psycopg

        with psycopg.connect(backend.url) as connection:
            connection.execute(sql)


def test_only_what_nothing_names_is_collected(memory, folder):
    memory.messages.add("s-1-1", picture(DATA))
    loose = memory.images.put(JPEG)
    assert memory.images.collect(grace_s=0) == 1
    assert not memory.images.exists(loose)
    assert memory.images.exists(KEY)
    assert memory.images.collect(grace_s=0) == 0


def test_the_grace_time_protects_what_was_just_put(memory, folder):
    memory.images.put(DATA)
    assert memory.images.collect() == 0
    age(folder, 80_000)
    assert memory.images.collect() == 0
    memory.images.put(DATA)
    age(folder, 80_000)
    assert memory.images.collect() == 0
    age(folder, 10_000)
    assert memory.images.collect() == 1
    assert memory.images.collect() == 0


def test_after_a_deletion_only_images_of_no_other_session_go(memory):
    for session in ("a", "b"):
        memory.agents.create(f"{session}-1-1", session)
    memory.messages.add("a-1-1", picture(DATA))
    memory.messages.add("a-1-1", picture(JPEG))
    memory.messages.add("b-1-1", picture(DATA))
    assert memory.images.collect(grace_s=0) == 0
    memory.sessions.delete("a")
    assert memory.images.messages(image_key(JPEG)) == []
    assert memory.images.collect(grace_s=0) == 1
    assert memory.messages.load("b-1-1", hydrate=True) == [picture(DATA)]


def test_what_other_programs_wrote_counts(backend, memory):
    memory.images.put(DATA)
    memory.images.put(JPEG)
    foreign(backend, "s-1-1", {"role": "user", "content": [REF]})
    foreign(backend, "s-1-1", {"role": "user", "content": "not JSON of ours: image_ref"})
    assert memory.images.collect(grace_s=0) == 1
    assert memory.messages.load("s-1-1", hydrate=True)[0]["content"] == [openai_block(DATA)]


def test_what_other_programs_change_and_delete_counts(backend, memory):
    memory.messages.add("s-1-1", picture(DATA))
    memory.messages.add("s-1-1", picture(JPEG))
    run_foreign(backend, 'update messages set data = \'{"role": "user"}\' where id = 1')
    run_foreign(backend, "delete from messages where id = 2")
    assert memory.images.messages(KEY) == memory.images.messages(image_key(JPEG)) == []
    assert memory.images.collect(grace_s=0) == 2


def test_a_row_that_is_no_json_does_not_fail_whoever_writes_it(tmp_path):
    """SQLite takes any text; other programs write NaN, which is no JSON."""
    url = str(tmp_path / "crow.db")
    with Memory.open(url) as memory:
        memory.images.put(DATA)
        for data in ('{"type": "image_ref", "score": NaN}', 'cut off: "image_ref', '"image_ref"'):
            run_foreign(
                Backend("sqlite", "sync", url),
                f"insert into messages (agent_id, fork_idx, created_at, data, role) values ('s-1-1', 1, '', '{data}', '')",
            )
        assert memory.images.collect(grace_s=0) == 1


def test_a_crow_file_brings_its_references(tmp_path):
    """Messages that were there before the first opening count as well."""
    source = shared_data("transcripts", "derived", "crow-db", "crow.db")
    shutil.copytree(source.parent, tmp_path / "crow")
    [image] = (tmp_path / "crow" / "images").iterdir()
    with Memory.open(tmp_path / "crow" / "crow.db") as memory:
        assert len(memory.images.messages(image.name)) >= 1
        memory.images.put(DATA)
        assert memory.images.collect(grace_s=0) == 1
        assert memory.images.exists(image.name)
        assert memory.check(deep=True) == []


def test_a_reference_given_by_the_caller_counts(memory):
    key = memory.images.put(DATA)
    memory.messages.add("s-1-1", {"role": "user", "content": [{"type": "image_ref", "path": key, "mime": "image/png"}]})
    assert memory.images.collect(grace_s=0) == 0
    assert memory.messages.load("s-1-1", hydrate=True) == [{"role": "user", "content": [openai_block(DATA)]}]


def test_a_rolled_back_transaction_leaves_an_image_to_collect(memory):
    with pytest.raises(RuntimeError), memory.transaction() as tx:
        tx.messages.add("s-1-1", picture(DATA))
        assert tx.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
        raise RuntimeError("undo")
    assert memory.messages.load("s-1-1") == []
    assert memory.images.exists(KEY)
    assert memory.images.collect(grace_s=0) == 1


def test_an_image_in_an_open_transaction_is_not_collected(backend, memory, folder):
    memory.images.put(DATA)
    other = backend.open(images=folder)
    if backend.dialect == "sqlite":
        return  # one writer at a time: the collector waits for its turn
    with memory.transaction() as tx:
        tx.messages.add("s-1-1", picture(DATA))
        assert other.images.collect(grace_s=0) == 0
    assert other.images.collect(grace_s=0) == 0
    assert other.messages.load("s-1-1", hydrate=True) == [picture(DATA)]


def test_collecting_inside_a_transaction_is_refused(memory):
    with memory.transaction() as tx, pytest.raises(Unsupported, match="transaction"):
        tx.images.collect()


@pytest.mark.parametrize("grace_s", [-1, float("nan"), "1", None, True])
def test_a_grace_time_that_is_none(memory, grace_s):
    with pytest.raises(InvalidValue, match="grace_s"):
        memory.images.collect(grace_s=grace_s)


def test_a_store_that_tells_no_ages_cannot_be_collected(backend, folder):
    class Plain:
        """The five methods of a store and no more."""

        def __init__(self):
            self.blobs = {}

        def put(self, key, data):
            self.blobs[key] = data

        def get(self, key):
            return self.blobs.get(key)

        def exists(self, key):
            return key in self.blobs

        def delete(self, key):
            return self.blobs.pop(key, None) is not None

        def keys(self):
            return sorted(self.blobs)

    memory = backend.open(images=Plain())
    memory.messages.add("s-1-1", picture(DATA))
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
    assert memory.images.put(JPEG) == image_key(JPEG)
    assert memory.status().images["kind"] == "Plain"
    with pytest.raises(Unsupported, match="age"):
        memory.images.collect()


def test_images_shared_with_another_store_are_not_collected(backend, memory, folder, tmp_path):
    memory.images.put(DATA)
    with Memory.open(tmp_path / "another.db", images=folder) as other:
        other.messages.add("s-1-1", picture(DATA))
        for one in (memory, other):
            with pytest.raises(Conflict, match=r"\.stores"):
                one.images.collect(grace_s=0)
        assert other.messages.load("s-1-1", hydrate=True) == [picture(DATA)]


def test_a_store_is_known_to_others_as_soon_as_it_names_images(tmp_path):
    """Also one whose images another program has put, and one that was copied."""
    source = shared_data("transcripts", "derived", "crow-db", "crow.db")
    shutil.copytree(source.parent, tmp_path / "crow")
    with Memory.open(tmp_path / "crow" / "crow.db") as crow, Memory.open(tmp_path / "crow" / "copy.db") as target:
        assert copy_store(crow, target).missing_images == []
        for session in target.sessions.list():
            target.sessions.delete(session.session_id)
        with pytest.raises(Conflict):
            target.images.collect(grace_s=0)
        assert crow.check(deep=True) == []
        with pytest.raises(Conflict):
            crow.images.collect(grace_s=0)


def test_a_store_opens_even_where_its_images_cannot_be_reached(backend, memory, tmp_path, caplog):
    memory.messages.add("s-1-1", picture(DATA))
    (tmp_path / "a file").write_text("no folder")
    other = backend.open(images=tmp_path / "a file")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert other.messages.load("s-1-1")[0]["content"][1] == REF
    with pytest.raises(ConfigError):
        other.messages.load("s-1-1", hydrate=True)


def test_leftovers_of_dead_writers_are_cleared(memory, folder):
    memory.images.put(DATA)
    left = folder / ".0123456789abcdef.tmp"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    memory.images.collect()
    assert not left.exists()


def test_more_than_a_page_is_collected(memory):
    for number in range(250):
        memory.images.put(png(number))
    memory.messages.add("s-1-1", picture(png(7)))
    assert memory.images.collect(grace_s=0) == 249
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(png(7))]


def run(memory: Memory, name: str, **params: Any) -> Any:
    """Run one statement on the driver of a store for plain calls."""
    from crowmem.operation import drive
    from crowmem.statement import statement

    return drive(memory._driver.run(statement(name), params))


def test_a_collector_that_died_is_no_hindrance(backend, memory, folder):
    """What it condemned and did not remove can be named, and collected again once its time is up."""
    blocking = backend.blocking(images=folder)
    both = [memory.images.put(DATA), memory.images.put(JPEG)]
    assert len(run(blocking, "image_condemn", keys=both, hold_us=60_000_000)) == 2
    assert memory.images.collect(grace_s=0) == 0
    memory.messages.add("s-1-1", picture(DATA))
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
    run(blocking, "image_gone", keys=both)
    assert memory.images.collect(grace_s=0) == 1
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]


def test_a_second_collector_that_comes_too_late_does_not_cover_up_for_the_first(backend, folder, monkeypatch):
    """It has listed the image, finds it gone, and must not let the writer think that nothing happened."""
    from crowmem import collecting, image_keeping
    from crowmem.operation import drive

    memory = backend.open(images=folder)
    collector = backend.blocking(images=folder)
    put_all, runs, listed = image_keeping.put_all, [], Found(KEY, time.time(), len(DATA))

    def put_then_collect_twice(images, blobs):
        put_all(images, blobs)
        if not runs:
            runs.append(collector.images.collect(grace_s=0))
            runs.append(drive(collecting._remove(collector._driver, FileStore(folder), [listed], time.time())))

    monkeypatch.setattr(image_keeping, "put_all", put_then_collect_twice)
    memory.messages.add("s-1-1", picture(DATA))
    assert runs == [1, 0]
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]


def test_a_writer_waits_for_a_collector_of_a_bucket(backend, memory, folder, monkeypatch):
    """A bucket cannot tell a late removal from an early one: while one may be under way, nothing is written."""
    monkeypatch.setattr(FileStore, "exact", False)
    blocking = backend.blocking(images=folder)
    key = memory.images.put(DATA)
    run(blocking, "image_condemn", keys=[key], hold_us=60_000_000)
    with memory.transaction() as tx, pytest.raises(Busy, match="removed just now"):
        tx.messages.add("s-1-1", picture(DATA))
    run(blocking, "image_condemn", keys=[image_key(JPEG)], hold_us=300_000)
    for write in (lambda: memory.messages.add("s-1-1", picture(JPEG)), lambda: memory.images.put(JPEG)):
        started = time.monotonic()
        write()
        assert time.monotonic() - started < 30
    (folder / KEY).unlink()
    run(blocking, "image_gone", keys=[key])
    memory.messages.add("s-1-1", picture(DATA))
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(JPEG), picture(DATA)]


def test_an_image_removed_behind_a_writers_back_is_put_again(backend, folder, monkeypatch):
    """Between a writer's put and its message a whole collection runs: the writer notices."""
    from crowmem import image_keeping

    memory = backend.open(images=folder)
    collector = backend.blocking(images=folder)
    put_all, runs = image_keeping.put_all, []

    def put_then_collect(images, blobs):
        put_all(images, blobs)
        if not runs:
            runs.append(collector.images.collect(grace_s=0))

    monkeypatch.setattr(image_keeping, "put_all", put_then_collect)
    memory.messages.add("s-1-1", picture(DATA))
    assert runs == [1]
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
    assert memory.images.collect(grace_s=0) == 0


class Clock:
    """The two clocks of a module, in the hands of a test."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def time(self) -> float:
        return time.time() + self.ahead_s

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()


def test_a_collector_whose_clock_is_ahead_does_not_take_what_was_put_after_it_condemned(backend, folder, monkeypatch):
    """By its clock the writer's put is a minute old, but it is not the put that it saw when it listed the image."""
    from crowmem import collecting

    memory, collector = backend.open(images=folder), backend.blocking(images=folder)
    memory.images.put(DATA)
    discard, added = FileStore.discard, []

    def add_then_discard(store, key, before):
        if not added:
            added.append(memory.messages.add("s-1-1", picture(DATA)))
        return discard(store, key, before)

    monkeypatch.setattr(FileStore, "discard", add_then_discard)
    monkeypatch.setattr(collecting, "time", Clock(60.0))
    assert collector.images.collect(grace_s=0) == 0
    assert added
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]


def going_on(store: Any, *keys: str) -> dict[str, int]:
    return {key: on for key, _times, on in run(store, "image_condemned", keys=list(keys))}


def test_an_image_whose_removal_failed_stays_condemned_for_its_time(backend, folder, monkeypatch):
    """The server may still work off the request: a writer that puts the image again at once would lose it."""
    monkeypatch.setattr(FileStore, "exact", False)
    blocking = backend.blocking(images=folder)
    first, second = sorted([blocking.images.put(DATA), blocking.images.put(JPEG)])
    discard = FileStore.discard

    def time_out(store, key, before):
        if key == second:
            raise Unavailable("timed out")
        return discard(store, key, before)

    with monkeypatch.context() as patch, pytest.raises(Unavailable, match="timed out"):
        patch.setattr(FileStore, "discard", time_out)
        blocking.images.collect(grace_s=0)
    assert going_on(blocking, first, second) == {first: 0, second: 1}
    run(blocking, "image_gone", keys=[second])
    assert blocking.images.collect(grace_s=0) == 1
    assert going_on(blocking, first, second) == {first: 0, second: 0}


def test_a_cancelled_collection_goes_on_in_its_thread_and_its_images_stay_condemned(tmp_path, monkeypatch):
    import asyncio
    import threading

    from crowmem import AsyncMemory

    monkeypatch.setattr(FileStore, "exact", False)
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    discard = FileStore.discard

    def slow(store, key, before):
        begun.set()
        go_on.wait(60)
        try:
            return discard(store, key, before)
        finally:
            ended.set()

    monkeypatch.setattr(FileStore, "discard", slow)

    async def cancel() -> None:
        async with AsyncMemory.open(str(tmp_path / "crow.db"), images=tmp_path / "images") as memory:
            await memory.images.put(DATA)
            collection = asyncio.ensure_future(memory.images.collect(grace_s=0))
            await asyncio.to_thread(begun.wait, 60)
            collection.cancel()
            with pytest.raises(asyncio.CancelledError):
                await collection
            with Memory.open(str(tmp_path / "crow.db"), images=tmp_path / "images") as other:
                assert not ended.is_set()
                assert going_on(other, KEY) == {KEY: 1}
            go_on.set()
            await asyncio.to_thread(ended.wait, 60)

    asyncio.run(cancel())


def test_a_collector_whose_computer_slept_stops(memory, folder, monkeypatch):
    """The monotonic clock stands while it sleeps, and its time to remove is over."""
    from crowmem import collecting

    memory.images.put(DATA)
    memory.images.put(JPEG)
    clock, discard = Clock(), FileStore.discard

    def discard_then_sleep(store, key, before):
        try:
            return discard(store, key, before)
        finally:
            clock.ahead_s += 3600

    monkeypatch.setattr(FileStore, "discard", discard_then_sleep)
    monkeypatch.setattr(collecting, "time", clock)
    assert memory.images.collect(grace_s=0) == 1
    assert memory.images.collect(grace_s=0) == 1


def test_a_clock_that_was_set_back_holds_no_writer_of_a_bucket(backend, memory, folder, monkeypatch):
    """What a collector that died had condemned until next year is free after two minutes, and can be collected."""
    from crowmem import image_keeping

    monkeypatch.setattr(FileStore, "exact", False)
    monkeypatch.setattr(image_keeping, "HOLD_S", 0.05)
    blocking = backend.blocking(images=folder)
    both = [memory.images.put(DATA), memory.images.put(JPEG)]
    run(blocking, "image_condemn", keys=both, hold_us=365 * 86_400 * 10**6)
    memory.messages.add("s-1-1", picture(DATA))
    assert memory.messages.load("s-1-1", hydrate=True) == [picture(DATA)]
    assert memory.images.collect(grace_s=0) == 1
    assert going_on(blocking, *both) == {both[0]: 1, both[1]: 0}


def test_images_are_condemned_for_longer_than_a_collector_can_take():
    """Its last image may need every attempt at two requests, each as slow as it may be, and the server some time more."""
    from crowmem.blobs import minio
    from crowmem.collecting import REMOVING_S
    from crowmem.image_keeping import HOLD_S

    request_s = (len(minio.PAUSES_S) + 1) * (minio.CONNECT_S + minio.READ_S) + sum(minio.PAUSES_S)
    assert REMOVING_S + 2 * request_s + 20 < HOLD_S

"""The bucket: on a real SeaweedFS, and on servers that misbehave in every way we met."""

from __future__ import annotations

import io
import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from bad_s3 import Request, bad_s3
from pictures import JPEG, png
from tcp_proxy import Wire

from crowmem.blobs import Collectable, MinioStore, Store, minio
from crowmem.blobs.endpoint import make_client
from crowmem.blobs.keys import image_key
from crowmem.errors import BlobDamaged, ConfigError, CrowmemError, InvalidValue, StoreFull, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import s3_server

DATA = png(1)
KEY = image_key(DATA)
SECRET = "a-secret-of-the-tests"


def store_on(endpoint: str, **settings: Any) -> MinioStore:
    return MinioStore(endpoint, "pictures", "some-user", SECRET, **{"read_s": 0.3, "connect_s": 0.3, **settings})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    """What is asked again is asked at once: there is nothing to wait for here."""
    monkeypatch.setattr(minio, "PAUSES_S", (0.0, 0.0))


@pytest.fixture
def store(s3_base: s3_server.S3Server) -> MinioStore:
    """A bucket of this test's own that does not exist yet."""
    return MinioStore(s3_base.endpoint, f"b-{secrets.token_hex(8)}", s3_base.access_key, s3_base.secret_key)


def client_of(server: s3_server.S3Server):
    return make_client(server.endpoint, server.secure, server.access_key, server.secret_key, server.region, 2, 10)


# --- a real server ---


def test_it_is_a_store(store):
    assert isinstance(store, Store)
    assert isinstance(store, Collectable)


def test_a_missing_bucket_has_nothing_and_is_made_by_the_first_put(store):
    assert store.get(KEY) is None
    assert not store.exists(KEY)
    assert not store.delete(KEY)
    assert store.keys() == []
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA


def test_what_was_put_is_there(store):
    store.put(KEY, DATA)
    store.put(KEY, DATA)
    store.put(image_key(JPEG), JPEG)
    assert store.exists(KEY)
    assert store.keys() == sorted([KEY, image_key(JPEG)])
    assert {found.key: found.size for page in store.survey() for found in page} == {
        KEY: len(DATA),
        image_key(JPEG): len(JPEG),
    }
    assert store.delete(KEY)
    assert not store.delete(KEY)
    assert store.get(KEY) is None


def test_a_large_image_goes_in_one_request_with_its_checksum(store, s3_base):
    data = png(2, 12 * 1024 * 1024)
    store.put(image_key(data), data)
    assert store.get(image_key(data)) == data


def test_the_type_travels_along(store, s3_base):
    store.put(image_key(JPEG), JPEG)
    stat = client_of(s3_base).stat_object(store.bucket, image_key(JPEG))
    assert stat.content_type == "image/jpeg"


def test_damage_is_told_and_a_put_repairs_it(store, s3_base):
    store.put(KEY, DATA)
    client_of(s3_base).put_object(store.bucket, KEY, io.BytesIO(DATA[:-1]), len(DATA) - 1)
    with pytest.raises(BlobDamaged, match=KEY):
        store.get(KEY)
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA


def test_other_objects_are_passed_over_and_only_what_is_old_is_discarded(store, s3_base):
    store.put(KEY, DATA)
    client_of(s3_base).put_object(store.bucket, "notes.txt", io.BytesIO(b"mine"), 4)
    [[found]] = store.survey()
    assert found.key == KEY
    assert not store.discard(KEY, found.written_at)
    assert store.discard(KEY, found.written_at + 1)
    assert not store.discard(KEY, found.written_at + 1)
    assert store.keys() == []


@pytest.mark.parametrize("key", ["../x", "/etc/passwd", KEY + "\0", "%2e%2e/x", "a/b", None])
def test_no_request_is_made_for_what_is_no_key(key):
    with bad_s3(lambda request: request.refuse(500, "InternalError")) as server:
        store = store_on(server.endpoint)
        for door in (
            store.get,
            store.exists,
            store.delete,
            lambda bad: store.put(bad, DATA),
            lambda bad: store.discard(bad, 0),
        ):
            with pytest.raises(InvalidValue, match="no image key"):
                door(key)
        assert server.seen == []


def test_eight_threads_share_one_store(store):
    blobs = {image_key(data): data for data in map(png, range(40))}
    failures: list[CrowmemError] = []

    def work(keys: list[str]) -> None:
        try:
            for key in keys:
                store.put(key, blobs[key])
                assert store.get(key) == blobs[key]
        except CrowmemError as error:
            failures.append(error)

    keys = list(blobs)
    threads = [threading.Thread(target=work, args=(keys[start::8],)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.keys() == sorted(blobs)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(store):
    store.put(KEY, DATA)
    child = os.fork()
    if child == 0:
        good = all(store.get(KEY) == DATA for _ in range(20))
        os._exit(0 if good else 1)
    assert all(store.get(KEY) == DATA for _ in range(20))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("part", ["access_key", "secret_key"])
def test_wrong_credentials_are_a_configuration_error_that_shows_no_secret(s3_base, part):
    settings = {"access_key": s3_base.access_key, "secret_key": s3_base.secret_key, part: SECRET}
    store = MinioStore(s3_base.endpoint, "pictures", **settings)
    for call in (
        store.probe,
        lambda: store.get(KEY),
        lambda: store.put(KEY, DATA),
        lambda: store.exists(KEY),
        store.keys,
    ):
        with pytest.raises(ConfigError, match=r"access_key|access key") as caught:
            call()
        assert SECRET not in str(caught.value)
        assert s3_base.secret_key not in str(caught.value)


def test_a_probe_makes_the_bucket(store):
    store.probe()
    store.probe()
    assert store.keys() == []


def test_a_wire_that_is_cut_and_healed(s3_base):
    with Wire(s3_base.address) as wire:
        store = MinioStore(
            f"127.0.0.1:{wire.port}", f"b-{secrets.token_hex(8)}", s3_base.access_key, s3_base.secret_key, read_s=0.5
        )
        store.put(KEY, DATA)
        for mode in ("refuse", "reset", "hang"):
            wire.cut(mode)
            with pytest.raises(Unavailable):
                store.get(KEY)
            with pytest.raises(Unavailable):
                store.probe(0.5)
            wire.cut("pass")
            assert store.get(KEY) == DATA


def test_the_users_of_a_bucket_are_noted(store, s3_base):
    assert store.users() == []
    store.join("b" * 32)
    store.join("a" * 32)
    store.join("a" * 32)
    assert store.users() == ["a" * 32, "b" * 32]
    assert store.keys() == []
    for name in store.users():  # as the error of a refused collection advises
        client_of(s3_base).remove_object(store.bucket, f".stores/{name}")
    assert store.users() == []  # some servers go on listing the folder


# --- what is shown ---


def test_secrets_are_in_no_text(s3_base):
    store = store_on(s3_base.endpoint)
    shown = f"{store!r} {store} {vars(store)} {store.status()} {store.where}"
    assert SECRET not in shown
    assert "some-user" not in shown


# --- addresses ---


@pytest.mark.parametrize(
    ("endpoint", "where"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000/pictures"),
        ("http://s3.example/", "http://s3.example/pictures"),
        ("https://s3.example:8443", "https://s3.example:8443/pictures"),
        ("s3.example", "https://s3.example/pictures"),
        ("s3.example:443", "https://s3.example:443/pictures"),
        ("http://[::1]:9000", "http://[::1]:9000/pictures"),
    ],
)
def test_an_endpoint_is_a_url_or_a_host_and_port(endpoint, where):
    assert store_on(endpoint).where == where


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "   ",
        "ftp://s3.example",
        "http://",
        "http://s3.example/bucket",
        "http://s3.example?x=1",
        "http://s3.example:port",
        "http://a b",
        None,
        9000,
    ],
)
def test_what_is_no_endpoint_is_refused(endpoint):
    with pytest.raises(ConfigError, match=r"image_store\.s3\.endpoint"):
        store_on(endpoint)


def test_credentials_in_an_endpoint_are_refused_and_not_repeated():
    for login in (f"me:{SECRET}", f"me:{SECRET}/x", f"me@{SECRET}", f"me:{SECRET}?x#"):
        for scheme in ("http://", ""):
            with pytest.raises(ConfigError, match="access_key") as caught:
                store_on(f"{scheme}{login}@s3.example")
            assert SECRET not in str(caught.value)


@pytest.mark.parametrize("bucket", ["", "x", "Upper", "a..b", "-a-", "a/b", "x" * 64, None])
def test_what_is_no_bucket_is_refused(bucket):
    with pytest.raises(ConfigError, match=r"image_store\.s3\.bucket"):
        MinioStore("127.0.0.1:9000", bucket, "some-user", SECRET)


@pytest.mark.parametrize("wrong", ["", "käse", "a\nb", None])
@pytest.mark.parametrize("name", ["access_key", "secret_key", "region"])
def test_what_cannot_be_signed_with_is_refused(name, wrong):
    settings = {"access_key": "some-user", "secret_key": SECRET, "region": "us-east-1", name: wrong}
    with pytest.raises(ConfigError, match=name):
        MinioStore("127.0.0.1:9000", "pictures", **settings)


# --- servers that misbehave ---


def calls(store: MinioStore) -> list[Callable[[], Any]]:
    return [
        lambda: store.put(KEY, DATA),
        lambda: store.get(KEY),
        lambda: store.exists(KEY),
        lambda: store.delete(KEY),
        lambda: store.discard(KEY, 1e12),
        store.keys,
        store.users,
        lambda: store.join("a" * 32),
        lambda: store.probe(0.3),
    ]


def garbage(request: Request) -> None:
    request.wfile.write(b"\x00\x01 this is not HTTP\r\n\r\n")
    request.close_connection = True


def nothing(request: Request) -> None:
    request.close_connection = True


UNAVAILABLE = {
    "hangs": Request.hang,
    "hangs up": nothing,
    "speaks no HTTP": garbage,
    "503 for ever": lambda request: request.refuse(503, "SlowDown"),
    "500 for ever": lambda request: request.refuse(500, "InternalError"),
    "503 in HTML": lambda request: request.reply(503, b"<html>Down</html>", "text/html"),
    "502 empty": lambda request: request.reply(502),
    "429": lambda request: request.refuse(429, "TooManyRequests"),
}


@pytest.mark.parametrize("answer", UNAVAILABLE.values(), ids=UNAVAILABLE.keys())
def test_a_server_that_is_away_or_overloaded(answer):
    with bad_s3(answer) as server:
        for call in calls(store_on(server.endpoint)):
            with pytest.raises(Unavailable) as caught:
                call()
            assert caught.value.__cause__ is not None
            assert len(str(caught.value)) < 300


NONSENSE = {
    "broken XML": lambda request: request.reply(400, b"<Error><Code>"),
    "XML of something else": lambda request: request.reply(400, b"<x/>"),
    "409": lambda request: request.refuse(409, "Conflict"),
    "not UTF-8": lambda request: request.reply(400, b"\xff\xfe"),
    "redirect": lambda request: request.refuse(301, "PermanentRedirect"),
    "418": lambda request: request.reply(418, b"teapot", "text/plain"),
    "200 with nonsense": lambda request: request.reply(200, b"{}", "application/json"),
    "200 with cut body": lambda request: request.reply(200, b"<List", length=1000),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_server_that_answers_nonsense_only_ever_raises_our_errors(answer):
    with bad_s3(answer) as server:
        for call in calls(store_on(server.endpoint)):
            try:
                call()
            except CrowmemError as error:
                assert not isinstance(error, InvalidValue)  # noqa: PT017  # any other kind of ours, or none


def test_what_answers_200_to_everything_keeps_nothing():
    """A login page of a network, or a web server at the wrong port: an image would be lost with every put."""
    with bad_s3(lambda request: request.reply(200, b"<html>Welcome</html>", "text/html")) as server:
        with pytest.raises(Unavailable, match="no S3 server"):
            store_on(server.endpoint).put(KEY, DATA)
        assert len(server.seen) == 1


def test_a_refused_connection():
    with bad_s3(nothing) as server:
        endpoint = server.endpoint
    for call in calls(store_on(endpoint)):
        with pytest.raises(Unavailable, match="NewConnectionError"):
            call()


def test_a_name_that_does_not_resolve():
    with pytest.raises(Unavailable):
        store_on("http://no-such-host.invalid:9000").get(KEY)


def test_an_image_may_take_longer_over_a_slow_line_than_a_connection_may_take():
    """The socket's timeout is for one call that sends, and the whole image must not be one."""
    data = png(1, 16 * 1024 * 1024)
    heard = bytearray()

    def hear(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client:
            while len(heard) < len(data):
                heard.extend(client.recv(64 * 1024))
                time.sleep(0.01)
            client.sendall(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 0\r\n\r\n')

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=hear, args=(listener,), daemon=True)
        thread.start()
        where = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began_s = time.monotonic()
        MinioStore(where, "pictures", "some-user", SECRET, connect_s=1, read_s=60).put(image_key(data), data)
        assert time.monotonic() - began_s > 1
        thread.join()
    assert heard.endswith(data)


def test_a_body_that_is_cut_is_asked_for_again():
    tries = []

    def cut_twice(request: Request) -> None:
        tries.append(1)
        if len(tries) < 3:
            request.reply(200, DATA[:10], "image/png", length=len(DATA))
        else:
            request.reply(200, DATA, "image/png")

    with bad_s3(cut_twice) as server:
        assert store_on(server.endpoint).get(KEY) == DATA


def test_a_body_that_is_always_cut_is_unavailable():
    with (
        bad_s3(lambda request: request.reply(200, DATA[:10], "image/png", length=len(DATA))) as server,
        pytest.raises(Unavailable),
    ):
        store_on(server.endpoint).get(KEY)


def test_a_body_garbled_once_is_asked_for_again_before_it_counts_as_damage():
    tries = []

    def garbled_once(request: Request) -> None:
        tries.append(1)
        request.reply(200, DATA if len(tries) > 1 else DATA[::-1], "image/png")

    with bad_s3(garbled_once) as server:
        assert store_on(server.endpoint).get(KEY) == DATA
    with bad_s3(lambda request: request.reply(200, DATA[::-1], "image/png")) as server, pytest.raises(BlobDamaged):
        store_on(server.endpoint).get(KEY)
        assert len(server.seen) == 2


def test_a_busy_server_is_asked_again():
    tries = []

    def busy_twice(request: Request) -> None:
        tries.append(1)
        if len(tries) < 3:
            request.refuse(503, "SlowDown")
        else:
            request.reply(200)

    with bad_s3(busy_twice) as server:
        store_on(server.endpoint).put(KEY, DATA)
        assert len(server.seen) == 3


def test_a_wait_that_the_server_asks_for_is_not_believed():
    def later(request: Request) -> None:
        request.send_response(503)
        request.send_header("Retry-After", "3600")
        request.send_header("Content-Length", "0")
        request.end_headers()

    with bad_s3(later) as server, pytest.raises(Unavailable):
        store_on(server.endpoint).get(KEY)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "RequestTimeTooSkewed", ConfigError),
        (403, "SignatureDoesNotMatch", ConfigError),
        (403, "InvalidAccessKeyId", ConfigError),
        (403, "AccessDenied", ConfigError),
        (400, "AuthorizationHeaderMalformed", ConfigError),
        (507, "InsufficientStorage", StoreFull),
        (403, "QuotaExceeded", StoreFull),
        (400, "BadDigest", Unavailable),
    ],
)
def test_what_a_server_refuses_says_what_to_do(status, code, kind):
    with bad_s3(lambda request: request.refuse(status, code)) as server, pytest.raises(kind, match=code):
        store_on(server.endpoint).put(KEY, DATA)


def test_a_clock_that_is_wrong_is_named():
    with (
        bad_s3(lambda request: request.refuse(403, "RequestTimeTooSkewed")) as server,
        pytest.raises(ConfigError, match="clock"),
    ):
        store_on(server.endpoint).probe()


@pytest.mark.parametrize("code", ["BucketAlreadyOwnedByYou", "BucketAlreadyExists"])
def test_a_bucket_that_somebody_made_meanwhile(code):
    made = []

    def answer(request: Request) -> None:
        if request.path == "/pictures":
            made.append(request.command)
            request.refuse(409, code)
        elif made:
            request.reply(200)
        else:
            request.refuse(404, "NoSuchBucket")

    with bad_s3(answer) as server:
        store_on(server.endpoint).put(KEY, DATA)
    assert made == ["PUT"]


def test_a_bucket_that_cannot_be_made_is_a_configuration_error():
    def answer(request: Request) -> None:
        if request.path == "/pictures":
            request.refuse(403, "AccessDenied")
        else:
            request.refuse(404, "NoSuchBucket")

    with bad_s3(answer) as server, pytest.raises(ConfigError, match="AccessDenied"):
        store_on(server.endpoint).put(KEY, DATA)


def test_neither_the_location_nor_the_bucket_is_ever_asked_for():
    """A key may have the right to read and write objects and no other."""

    def answer(request: Request) -> None:
        place = request.path.split("?")[0]
        if "location" in request.path or place in ("/pictures", "/pictures/", "/pictures/crowmem-probe"):
            request.refuse(403, "AccessDenied")
        elif request.command == "GET":
            request.reply(200, DATA, "image/png")
        else:
            request.reply(200)

    with bad_s3(answer) as server:
        store = store_on(server.endpoint)
        store.probe()
        store.put(KEY, DATA)
        assert store.get(KEY) == DATA
        assert not [line for line in server.seen if "location" in line]


def test_an_object_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(minio, "BLOB_BYTES", 3 * minio.PIECE)
    with (
        bad_s3(lambda request: request.reply(200, bytes(64 * minio.PIECE), "image/png")) as server,
        pytest.raises(BlobDamaged),
    ):
        store_on(server.endpoint).get(KEY)

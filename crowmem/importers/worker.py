"""A process that reads files ahead: ``python -m crowmem.importers.worker``.

Jobs come in by standard input, pieces go out by standard output, both pickled, each with its length before it. It ends
with its input.
"""

from __future__ import annotations

import pickle
import signal
import struct
import sys
from typing import IO, TYPE_CHECKING, Any

from crowmem.importers.items import Turn
from crowmem.importers.reading import Finished, read_file

if TYPE_CHECKING:
    from crowmem.importers.reading import Job, Piece

LENGTH = struct.Struct("!Q")
_AT_ONCE = 200  # pieces in one message
_CHARACTERS = 1024 * 1024  # of their text, about


def send(stream: IO[bytes], value: Any) -> None:
    """Write one value."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read one value's bytes; None at the end.

    Raises:
        EOFError: the end comes in the middle of it.
    """
    head = stream.read(LENGTH.size)
    if not head:
        return None
    data = stream.read(*LENGTH.unpack(head)) if len(head) == LENGTH.size else b""
    if len(head) < LENGTH.size or len(data) < LENGTH.unpack(head)[0]:
        raise EOFError("the other side ended in the middle of a message")
    return data


def main() -> None:
    """Read jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key pressed is for the process that started this one
    jobs, pieces = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may write among the pieces
    while (data := receive(jobs)) is not None:
        _work(pickle.loads(data), pieces)  # noqa: S301  # of the process that started this one


def _work(job: Job, stream: IO[bytes]) -> None:
    batch: list[Piece] = []
    characters = 0
    for piece in read_file(job):
        batch.append(piece)
        if isinstance(piece, Turn):
            content = piece.message.get("content")
            characters += len(content) if isinstance(content, str) else _CHARACTERS // 20
        if len(batch) >= _AT_ONCE or characters >= _CHARACTERS or isinstance(piece, Finished):
            send(stream, batch)
            batch, characters = [], 0


if __name__ == "__main__":
    main()

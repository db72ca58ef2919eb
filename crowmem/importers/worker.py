"""A process that reads files ahead: ``python -m crowmem.importers.worker BYTES``.

Jobs come in by standard input, pieces go out by standard output, both pickled, each with its length before it. At most
so many bytes wait to go out. It ends with its input. What a ``sitecustomize`` prints comes before a mark, from which
on the output is pieces alone.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

from crowmem.importers.items import Turn
from crowmem.importers.reading import Finished, read_file

if TYPE_CHECKING:
    from crowmem.importers.reading import Job, Piece

LENGTH = struct.Struct("!Q")
_START = b"\0crowmem pieces\n"
_AT_ONCE = 200  # pieces in one message
_CHARACTERS = 1024 * 1024  # of their text, about
_SWITCH_S = 0.0005  # after so long the thread that sends gets its turn


def packed(value: Any) -> bytes:
    """One value as it travels."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def send(stream: IO[bytes], value: Any) -> None:
    """Write one value."""
    write(stream, packed(value))


def write(stream: IO[bytes], data: bytes) -> None:
    """Write everything, past the stream's buffer: Python's loses the rest of what a stopped process wrote in part."""
    left = memoryview(data)
    while left:
        left = left[os.write(stream.fileno(), left) :]


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


def find_start(stream: IO[bytes]) -> None:
    """Pass over what came before the mark.

    Raises:
        EOFError: there is none.
    """
    while not (line := stream.readline()).endswith(_START):
        if not line:
            raise EOFError("it ended before it began")


class _Sender:
    """What waits to go out, and the thread that writes it."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._most = most
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def put(self, value: Any) -> None:
        """Let a value go out; waits while too much does."""
        data = packed(value)
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < self._most)
            self._waiting.append(data)
            self._bytes += len(data)
            self._changed.notify_all()

    def end(self) -> None:
        """Wait until everything has gone out."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._thread.join()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over)
                data, self._waiting = b"".join(self._waiting), []
            if not data:
                return
            try:
                write(self._stream, data)
            except OSError:
                os._exit(1)  # nobody wants it any more
            with self._changed:
                self._bytes -= len(data)
                self._changed.notify_all()


def main() -> None:
    """Read jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key pressed is for the process that started this one
    sys.setswitchinterval(_SWITCH_S)
    sys.stdout.flush()
    sys.stdout.buffer.write(_START)
    sys.stdout.buffer.flush()
    jobs, pieces = sys.stdin.buffer, _Sender(sys.stdout.buffer, int(sys.argv[1]))
    sys.stdout = sys.stderr  # nothing else may write among the pieces
    while (data := receive(jobs)) is not None:
        _work(pickle.loads(data), pieces)  # noqa: S301  # of the process that started this one
    pieces.end()


def _work(job: Job, pieces: _Sender) -> None:
    batch: list[Piece] = []
    characters = 0
    for piece in read_file(job):
        batch.append(piece)
        if isinstance(piece, Turn):
            content = piece.message.get("content")
            characters += len(content) if isinstance(content, str) else _CHARACTERS // 20
        if len(batch) >= _AT_ONCE or characters >= _CHARACTERS or isinstance(piece, Finished):
            pieces.put(batch)
            batch, characters = [], 0


if __name__ == "__main__":
    main()

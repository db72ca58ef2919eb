"""Reading files ahead in another process, so that parsing and storing take a core each.

One thread gives it jobs, another takes what it sends out of the pipe and keeps it, up to a limit, until it is wanted:
neither side waits for a full pipe while the other does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from crowmem.importers.reading import Finished
from crowmem.importers.worker import receive, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.reading import Job, Piece

KEPT_BYTES = 8 * 1024 * 1024  # most of what was sent and is not wanted yet


class WorkerLost(Exception):
    """The process ended before its work did."""


class Ahead:
    """A process that reads files; `submit` jobs, and take their pieces in the same order."""

    def __init__(self) -> None:
        """Start it.

        Raises:
            OSError: there can be no process.
        """
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("no interpreter to start")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "crowmem.importers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # whatever it fails by, whoever does its work comes to as well
            env=environment,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise OSError("no pipes to it")
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._kept: deque[bytes | None] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=target, name="crowmem-import", daemon=True) for target in (self._give, self._take)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Let a file be read after those before it."""
        self._jobs.put(job)

    def pieces(self) -> Iterator[Piece]:
        """The pieces of the oldest job whose pieces were not taken.

        Raises:
            WorkerLost: the process is gone.
        """
        while True:
            data = self._next()
            if data is None:
                raise WorkerLost
            batch: list[Piece] = pickle.loads(data)  # noqa: S301  # of our own process
            yield from batch
            if isinstance(batch[-1], Finished):
                return

    def close(self) -> None:
        """End the process."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._jobs.put(None)
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # what could not be sent is not wanted any more
                stream.close()

    def _give(self) -> None:
        with contextlib.suppress(OSError):  # it is gone: `pieces` says so
            while (job := self._jobs.get()) is not None:
                send(self._stdin, job)

    def _take(self) -> None:
        data: bytes | None = b""
        while data is not None:
            try:
                data = receive(self._stdout)
            except (OSError, EOFError):
                data = None
            with self._changed:
                while self._bytes > KEPT_BYTES and not self._closed:
                    self._changed.wait()
                self._kept.append(data)
                self._bytes += len(data or b"")
                self._changed.notify_all()
                if self._closed:
                    return

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._kept:
                self._changed.wait()
            data = self._kept.popleft()
            self._bytes -= len(data or b"")
            if data is None:
                self._kept.append(None)  # whoever asks again gets the same answer
            self._changed.notify_all()
        return data

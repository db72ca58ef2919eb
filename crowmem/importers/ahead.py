"""Reading files ahead in another process, so that parsing and storing take a core each.

What it has read waits there, up to a limit, until it is wanted, and is sent by a thread of its own; here a thread gives
it jobs. So neither side waits for a full pipe while the other does, and whoever stores shares its interpreter with
nobody who is at work.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from crowmem.importers.reading import Finished
from crowmem.importers.worker import find_start, receive, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.reading import Job, Piece

KEPT_BYTES = 8 * 1024 * 1024  # most of what it has read and is not wanted yet


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
        folders = map(os.path.abspath, (entry for entry in sys.path if isinstance(entry, str)))  # as imports read it
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "crowmem.importers.worker", str(KEPT_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # whatever it fails by, whoever does its work comes to as well
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            )
        except ValueError as error:  # a folder with a NUL in its name, or with what no encoding has
            raise OSError(str(error)) from error
        if self._process.stdin is None or self._process.stdout is None:
            raise OSError("no pipes to it")
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._give, name="crowmem-import", daemon=True)
        self._started = False
        try:
            self._thread.start()
        except RuntimeError as error:  # a limit of threads and processes
            self._end()
            raise OSError(str(error)) from error

    def submit(self, job: Job) -> None:
        """Let a file be read after those before it."""
        self._jobs.put(job)

    def pieces(self) -> Iterator[Piece]:
        """The pieces of the oldest job whose pieces were not taken.

        Raises:
            WorkerLost: the process is gone.
        """
        while True:
            try:
                if not self._started:
                    find_start(self._stdout)
                    self._started = True
                data = receive(self._stdout)
            except (OSError, EOFError):
                data = None
            if data is None:
                raise WorkerLost
            batch: list[Piece] = pickle.loads(data)  # noqa: S301  # of our own process
            yield from batch
            if isinstance(batch[-1], Finished):
                return

    def close(self) -> None:
        """End the process."""
        self._jobs.put(None)
        self._process.kill()
        self._thread.join()
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # what could not be sent is not wanted any more
                stream.close()

    def _give(self) -> None:
        with contextlib.suppress(OSError):  # it is gone: `pieces` says so
            while (job := self._jobs.get()) is not None:
                send(self._stdin, job)

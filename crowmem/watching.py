"""Keeping a memory current: histories are imported as they are written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from crowmem.importers.changes import changes
from crowmem.ingest import import_paths

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Self

    from crowmem.importers.changes import Changes
    from crowmem.ingest import ImportReport
    from crowmem.memory import Memory

SETTLE_S = 0.5  # changes are gathered so long, since a tool writes a turn in many small pieces
GATHER_S = 5.0  # and at most so long
RESCAN_S = 300.0  # everything is looked at so often, should a change go untold


class Watcher:
    """Imports histories now, and then as they change.

    ```python
    with Watcher(memory, ["~/.claude/projects"]) as watcher:
        watcher.run(print)
    ```
    """

    def __init__(self, memory: Memory, paths: Iterable[str | os.PathLike[str]], *, settle_s: float = SETTLE_S) -> None:
        """Begin to follow changes; nothing is imported before `run`.

        Args:
            memory: an open store.
            paths: files and folders.
            settle_s: seconds without a change before what changed is imported.

        Raises:
            OSError: the system gives no more files to watch.
        """
        self._memory = memory
        self._paths = list(paths)
        self._settle_s = settle_s
        self._changes: Changes = changes(self._paths)
        self._stopped = False

    def run(self, report: Callable[[ImportReport], None] | None = None) -> None:
        """Import what is there, then whatever changes, until `stop` is called.

        A run after this one goes on where each file was left.

        Args:
            report: called with what each import did, if it did anything.

        Raises:
            Unavailable: the store failed, as any of its errors.
        """
        self._import(None, report)
        scanned = time.monotonic()
        while not self._stopped:
            changed = self._gathered(max(0.0, scanned + RESCAN_S - time.monotonic()))
            if self._stopped:
                return
            if changed is None or time.monotonic() - scanned >= RESCAN_S:
                self._import(None, report)
                scanned = time.monotonic()
            elif changed:
                self._import(sorted(changed), report)

    def stop(self) -> None:
        """Let `run` return soon; may be called by another thread or a signal handler."""
        self._stopped = True
        self._changes.wake()

    def close(self) -> None:
        """Give back what the system holds."""
        self._changes.close()

    def __enter__(self) -> Self:
        """Use the watcher in a block that closes it."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it."""
        self.close()

    def _gathered(self, timeout_s: float) -> set[str] | None:
        """What changed, once it has settled; None: look at everything."""
        found = self._changes.wait(timeout_s)
        until = time.monotonic() + GATHER_S
        while found and not self._stopped and time.monotonic() < until:
            more = self._changes.wait(self._settle_s)
            if more is None:
                return None
            if not more:
                break
            found |= more
        return found

    def _import(self, paths: list[str] | None, report: Callable[[ImportReport], None] | None) -> None:
        done = import_paths(self._memory, self._paths if paths is None else paths)
        if report is not None and (done.messages_added or done.messages_grown or done.skipped):
            report(done)


def watch(
    memory: Memory, paths: Iterable[str | os.PathLike[str]], report: Callable[[ImportReport], None] | None = None
) -> None:
    """Import histories now and then as they change, until the program is interrupted.

    Args:
        memory: an open store.
        paths: files and folders.
        report: called with what each import did.
    """
    with Watcher(memory, paths) as watcher:
        watcher.run(report)

"""Keeping a memory current: histories are imported as they are written."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from crowmem.errors import OutcomeUnknown, Unavailable
from crowmem.importers.changes import changes
from crowmem.ingest import import_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from crowmem.errors import CrowmemError
    from crowmem.importers.changes import Changes
    from crowmem.ingest import ImportReport
    from crowmem.memory import Memory

SETTLE_S = 0.5  # changes are gathered so long, since a tool writes a turn in many small pieces
GATHER_S = 5.0  # and at most so long
RESCAN_S = 300.0  # everything is looked at so often, should a change go untold
RETRY_S = (1.0, 60.0)  # between two attempts while the store is away: at first, and at most


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
        self._owed = False  # a report, after a failure

    def run(
        self,
        report: Callable[[ImportReport], None] | None = None,
        failed: Callable[[CrowmemError], None] | None = None,
    ) -> None:
        """Import what is there, then whatever changes, until `stop` is called.

        A run after this one goes on where each file was left.

        Args:
            report: called with what each import did, if it did anything, and with the first one after a failure.
            failed: called when the store is away or busy, after which the same is tried again until it succeeds;
                without it such errors are raised as well.

        Raises:
            Unavailable: the store failed, as any of its errors.
        """
        changed: set[str] | None = None
        scanned = 0.0
        pause_s = RETRY_S[0]
        while not self._stopped:
            if changed is None or time.monotonic() - scanned >= RESCAN_S:
                changed, scanned = None, time.monotonic()
                self._changes.follow()
            try:
                self._import(changed, report)
            except (Unavailable, OutcomeUnknown) as error:  # what came in already is known by its keys
                if failed is None:
                    raise
                failed(error)
                self._owed = True
                changed = _both(changed, self._collected(pause_s))
                pause_s = min(2 * pause_s, RETRY_S[1])
            else:
                pause_s = RETRY_S[0]
                changed = self._gathered(max(0.0, scanned + RESCAN_S - time.monotonic()))

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

    def _collected(self, time_s: float) -> set[str] | None:
        """What changes during a time; None: look at everything."""
        found: set[str] | None = set()
        until = time.monotonic() + time_s
        while not self._stopped and (left := until - time.monotonic()) > 0:
            found = _both(found, self._changes.wait(left))
        return found

    def _import(self, changed: set[str] | None, report: Callable[[ImportReport], None] | None) -> None:
        """Import some files, or everything (None). A file that is gone again is none: tools write beside and rename."""
        if changed is not None:
            changed = {path for path in changed if os.path.exists(path)}  # noqa: PTH110  # a set of plain names
            if not changed and not self._owed:
                return
        done = import_paths(self._memory, self._paths if changed is None else sorted(changed))
        done.leave_out_gone({os.fspath(path) for path in self._paths})
        if report is not None and (done.messages_added or done.messages_grown or done.skipped or self._owed):
            report(done)
        self._owed = False


def _both(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    return None if one is None or other is None else one | other


def watch(
    memory: Memory,
    paths: Iterable[str | os.PathLike[str]],
    report: Callable[[ImportReport], None] | None = None,
    failed: Callable[[CrowmemError], None] | None = None,
) -> None:
    """Import histories now and then as they change, until the program is interrupted.

    Args:
        memory: an open store.
        paths: files and folders.
        report: called with what each import did.
        failed: as for `Watcher.run`.
    """
    with Watcher(memory, paths) as watcher:
        watcher.run(report, failed)

"""One bar on stderr, for whoever watches a terminal; nothing anywhere else."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from crowmem.terminal import columns_of, cut, one_line

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

EVERY_S = 0.1
CELLS = 24


class Progress:
    """A bar that is drawn over itself, at most ten times a second, and wiped away at the end of its block."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._wanted = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn_at = float("-inf")

    def __enter__(self) -> Self:
        """Begin; nothing is drawn yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wipe the bar away."""
        if self._drawn_at > float("-inf"):
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, done: int, total: int, note: str = "") -> None:
        """Draw how far it is.

        Args:
            done: what is done, in any unit.
            total: of so many; 0 when that is not known, which draws no bar.
            note: said behind it.
        """
        if not self._wanted or time.monotonic() - self._drawn_at < EVERY_S:
            return
        self._drawn_at = time.monotonic()
        line = self._label
        if total > 0:
            part = min(1.0, done / total)
            filled = round(CELLS * part)
            line += f" [{'#' * filled}{'.' * (CELLS - filled)}] {part:4.0%}"
        shown = cut(one_line(f"{line} {note}"), (columns_of(sys.stderr) or 80) - 1)
        sys.stderr.write(f"\r\x1b[K{shown}")
        sys.stderr.flush()

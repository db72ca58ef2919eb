"""Leaves a server alone for a while after it failed: an outage then costs its timeouts rarely, not on every call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crowmem.errors import CrowmemError

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 15.0


class Breaker:
    """Remembers the last failure, and when to try again: after a second, then twice as long each time, up to fifteen.

    Threads may share it: a race costs one attempt more, or a pause a little shorter.
    """

    def __init__(self) -> None:
        """Begin with all well."""
        self.problem: CrowmemError | None = None
        self._pause_s = 0.0
        self._next_try = 0.0

    def lets_through(self) -> bool:
        """Whether the server may be asked now."""
        return self.problem is None or time.monotonic() >= self._next_try

    def failed(self, error: CrowmemError) -> bool:
        """Note a failure. Returns whether it is the first after all was well."""
        first = self.problem is None
        self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
        self._next_try = time.monotonic() + self._pause_s
        self.problem = error
        return first

    def worked(self) -> bool:
        """Note a success. Returns whether it ended an outage."""
        ended = self.problem is not None
        self.problem, self._pause_s = None, 0.0
        return ended

"""Low-water marks: where the next pending delivery of a mailbox can lie at the earliest.

A claim that starts at the mark passes over what was claimed before it; on PostgreSQL these are dead index entries
that no vacuum may remove while an old snapshot is open (every queue without a mark falls 5 to 12 times then,
measured). A mark is only a hint of one process. Rows do come back behind it: whoever runs short looks from the start
again, and so does everybody once a second.
"""

from __future__ import annotations

import time

clock = time.monotonic

LOOK_S = 1.0  # at the latest after this a claim starts from the beginning again, and gives back what is overdue
COSTLY_S = 0.00015  # a look from the start is slow when it takes longer than this
COSTLY_TIMES = 2  # and so many times as long as one from the mark
COSTLY_LOOKS = 3  # and so did the ones before it: one may be slow by chance
REST_TIMES = 20  # then the next one waits for so many times what it took, at most LOOK_S
CLEAR_AFTER = 256  # deliveries taken between two clearings of SQLite's ready list
CLEAR_S = 60.0  # how often a process looks what others left on that list
MOST = 100_000  # mailboxes remembered; past it all are forgotten, which costs one look from the start each


class Box:
    """What one process knows about one mailbox. Times are on the monotonic clock."""

    __slots__ = ("costly_until", "following", "marks", "next_clear", "next_look", "next_sweep", "slow", "taken")

    def __init__(self) -> None:
        self.marks: dict[str | None, int] = {}  # by priority, None for any: everything up to this id is taken
        self.following = 0  # the id that comes next as long as ids follow each other; 0 where they do not
        self.next_look = self.next_clear = 0.0
        self.next_sweep = clock() + LOOK_S
        self.costly_until = 0.0
        self.slow = 0
        self.taken: list[int] = []  # ids that SQLite's ready list still has

    def start(self, priority: str | None, now: float) -> int:
        """After which id to begin."""
        if now >= self.next_look:
            self.next_look = now + LOOK_S
            return 0
        return self.marks.get(priority, 0)

    def is_due(self, now: float) -> bool:
        """Whether something is to be given back or cleared away before the next claim."""
        return now >= self.next_sweep or len(self.taken) >= CLEAR_AFTER

    def follow(self, now: float) -> int:
        """Which id to try without a look, another each time; 0 when a look is due or ids do not follow each other."""
        found = self.following
        if not found or now >= self.next_look or self.is_due(now):
            return 0
        self.following = found + 1
        return found

    def failed(self, tried: int) -> None:
        """An id was not to be had: ids do not follow each other, unless other threads went on with them meanwhile."""
        if self.following == tried + 1:
            self.following = 0

    def took(self, priority: str | None, first: int, last: int) -> None:
        """A look found these ids, the first and the last of some."""
        if priority is None and (self.following or first == self.marks.get(None, 0) + 1):
            self.following = max(self.following, last + 1)
        self.marks[priority] = last

    def forget(self) -> None:
        """Something may have come back: begin at the start next time."""
        self.next_look = 0.0
        self.costly_until = 0.0

    def looked(self, took_s: float, now: float, direct_s: float = 0.0) -> bool:
        """A look from the start took so long, and one from the mark so long; True when the former is costly."""
        self.next_look = now + LOOK_S
        self.slow = self.slow + 1 if took_s > max(COSTLY_S, COSTLY_TIMES * direct_s) else 0
        if self.slow < COSTLY_LOOKS:
            return False
        self.costly_until = now + min(LOOK_S, REST_TIMES * took_s)
        return True


class Marks:
    """The mailboxes of one store, as one process knows them."""

    def __init__(self) -> None:
        self._boxes: dict[str, Box] = {}

    def box(self, address: str) -> Box:
        """What is known about one mailbox."""
        found = self._boxes.get(address)
        if found is None:
            if len(self._boxes) >= MOST:
                self._boxes.clear()
            found = self._boxes[address] = Box()
        return found

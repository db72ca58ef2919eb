"""A first-come-first-served lock with a time limit.

SQLite lets one connection write at a time and answers a second one "busy"; its own wait sleeps up to 100 ms and is
unfair (one claim in 16 threads waited 2.7 s, measured). Writers of one process stand in this queue instead, whichever
Memory they use; then the process queues among the others (`TurnFile`), and only then asks SQLite.

Among threads that wait, one that has the turn keeps it for a millisecond if it comes back at once: each hand-over costs
as much as a write, and another Memory reads the pages anew (4 threads with a Memory each: 71 to 40 µs a claim). The
first in line takes the turn when it is not called for in that time, and after an owner that stayed away all hand it on.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from crowmem.marks import Marks

if TYPE_CHECKING:
    from crowmem.drivers.turn_file import TurnFile

KEPT_S = 0.001  # how long a thread goes on among others that wait
IDLE_S = 0.0002  # who has not come back for so long lets the others wait for nothing
REST_S = 0.05  # then none goes on for so long


class _Gate:
    """Where one waits. Its lock is released when the turn is given, or to have the first in line look by itself."""

    __slots__ = ("given", "lock", "looks", "owner")

    def __init__(self) -> None:
        self.owner = threading.get_ident()  # once it is given
        self.given = False
        self.looks = False
        self.lock = threading.Lock()
        self.lock.acquire()

    def open(self) -> None:
        """Wake who waits here."""
        if self.lock.locked():
            self.lock.release()


class Turn:
    """Mutual exclusion in order of arrival. Not re-entrant: `held` tells a thread that it would wait for itself."""

    def __init__(self, among_processes: TurnFile | None = None) -> None:
        """Make a turn that nobody has.

        Args:
            among_processes: what to acquire next, once this process's turn is ours.
        """
        self.users = 0
        self.among_processes = among_processes
        self.marks = Marks()  # of all stores that write here: what one takes the others need not look at
        self.block: Any = None  # the transaction that this turn is held for; its ``open`` says whether it still is
        self._mutex = threading.Lock()
        self._waiting: deque[_Gate] = deque()
        self._taken = False
        self._owner: int | None = None
        self._kept_for: int | None = None  # while nobody has the turn and some wait for it
        self._until = 0.0  # until when who has it may come back for it
        self._free_since = 0.0
        self._rest_until = 0.0

    @property
    def held(self) -> bool:
        """Whether this very thread holds the turn."""
        return self._owner == threading.get_ident()

    def acquire(self, timeout_s: float) -> bool:
        """Wait for the turn; False when the time is up, and at once when this very thread holds it."""
        if self._owner == threading.get_ident():
            return False
        began = 0.0
        got = False
        try:
            if not self._take_free():
                began = time.monotonic()
                if not self.hold(timeout_s):
                    return False
            if self.among_processes is None:
                got = True
            else:
                got = self.among_processes.acquire(timeout_s - (time.monotonic() - began) if began else timeout_s)
                if not got:
                    self.let_go()
            return got
        except BaseException:  # Ctrl-C, at whatever moment
            if self.held:
                self.release()
            raise

    def hold(self, timeout_s: float) -> bool:
        """Wait for this process's turn only, to be ended by `let_go`; False when the time is up."""
        if self._take_free():
            return True
        gate = _Gate()
        with self._mutex:
            if not self._taken and not self._waiting:
                self._taken, self._owner = True, gate.owner
                return True
            self._waiting.append(gate)
        return self._wait(gate, timeout_s)

    def _take_free(self) -> bool:
        """Take the turn if nobody has it and nobody came before."""
        me = threading.get_ident()
        with self._mutex:
            if self._taken or (self._waiting and self._kept_for != me):
                return False
            self._taken, self._owner = True, me
            return True

    def _wait(self, gate: _Gate, timeout_s: float) -> bool:
        until = time.monotonic() + min(timeout_s, threading.TIMEOUT_MAX)
        try:
            while not gate.given:
                look_at = min(until, self._until) if gate.looks else until
                left_s = max(0.0, look_at - time.monotonic())
                if not gate.lock.acquire(timeout=left_s) and not self._look(gate) and time.monotonic() >= until:
                    return not self._leave(gate)
        except BaseException:  # Ctrl-C while waiting
            if not self._leave(gate):
                self.let_go()
            raise
        self._until = time.monotonic() + KEPT_S
        return True

    def _look(self, gate: _Gate) -> bool:
        """The first in line takes the turn when its last owner did not come back for it in time."""
        with self._mutex:
            gate.looks = False
            if not gate.given and not self._taken and self._waiting[0] is gate:
                del self._waiting[0]
                gate.given = self._taken = True
                self._owner = gate.owner
                now = time.monotonic()
                if now - self._free_since > IDLE_S:
                    self._rest_until = now + REST_S
            return gate.given

    def _leave(self, gate: _Gate) -> bool:
        """Stop waiting; False when the turn was handed over at that very moment."""
        with self._mutex:
            if gate.given:
                return False
            self._waiting.remove(gate)
            if not self._taken:
                self._have_look()
            return True

    def _have_look(self) -> None:
        if self._waiting and not self._waiting[0].looks:
            self._waiting[0].looks = True
            self._waiting[0].open()

    def release(self) -> None:
        """Hand the turn to whoever came next, here and in other processes."""
        try:
            if self.among_processes is not None:
                self.among_processes.release()
        except BaseException:  # Ctrl-C, perhaps before its first line; here, as below, what is done twice harms nobody
            if self.among_processes is not None:
                self.among_processes.release()
            raise
        finally:
            try:
                self.let_go()
            except BaseException:
                if self.held:
                    self.let_go()
                raise

    def let_go(self) -> None:
        """Hand this process's turn on, at once or when its owner does not come back for it in a moment."""
        now = time.monotonic() if self._waiting else math.inf  # not while the mutex is held: Ctrl-C comes after a call
        with self._mutex:
            owner, self._owner = self._owner, None
            if not self._waiting:
                self._taken = False
            elif self._rest_until <= now < self._until:
                self._taken = False
                self._kept_for, self._free_since = owner, now
                self._have_look()
            else:
                gate = self._waiting[0]
                self._owner = gate.owner
                gate.given = True
                del self._waiting[0]
                gate.open()


_turns: dict[str, Turn] = {}
_turns_mutex = threading.Lock()


def turn_for(path: str) -> Turn:
    """The one turn of this process for a file; to be given back with `give_back`."""
    from crowmem.drivers.turn_file import TurnFile

    with _turns_mutex:
        turn = _turns.get(path)
        if turn is None:
            turn = _turns[path] = Turn(TurnFile(path))
        turn.users += 1
        return turn


def give_back(path: str, turn: Turn) -> None:
    """One user of a file's turn less; the last one removes what queued the processes."""
    with _turns_mutex:
        turn.users -= 1
        if turn.users == 0 and _turns.get(path) is turn:
            del _turns[path]
            if turn.among_processes is not None:
                turn.among_processes.close()


def _forget() -> None:
    """In a forked child nobody is left to hand a turn on, and the parent's place among processes is not the child's."""
    global _turns, _turns_mutex
    for turn in _turns.values():
        if turn.among_processes is not None:
            turn.among_processes.disown()
    _turns, _turns_mutex = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget)

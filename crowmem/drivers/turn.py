"""A first-come-first-served lock with a time limit.

SQLite lets one connection write at a time and answers a second one "busy"; its own wait sleeps up to 100 ms and is
unfair (one claim in 16 threads waited 2.7 s, measured). Writers of one process stand in this queue instead, whichever
Memory they use; then the process queues among the others (`TurnFile`), and only then asks SQLite.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crowmem.drivers.turn_file import TurnFile


class Turn:
    """Mutual exclusion in order of arrival. Not re-entrant: `held` tells a thread that it would wait for itself."""

    def __init__(self, among_processes: TurnFile | None = None) -> None:
        """Make a turn that nobody has.

        Args:
            among_processes: what to acquire next, once this process's turn is ours.
        """
        self.users = 0
        self.among_processes = among_processes
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False
        self._owner: int | None = None

    @property
    def held(self) -> bool:
        """Whether this very thread holds the turn."""
        return self._owner == threading.get_ident()

    def acquire(self, timeout_s: float) -> bool:
        """Wait for the turn; False when the time is up."""
        began = time.monotonic()
        if not self.hold(timeout_s):
            return False
        if self.among_processes is None:
            return True
        got = False
        try:
            got = self.among_processes.acquire(timeout_s - (time.monotonic() - began))
        finally:
            if not got:
                self.let_go()
        return got

    def hold(self, timeout_s: float) -> bool:
        """Wait for this process's turn only, to be ended by `let_go`; False when the time is up."""
        with self._mutex:
            gate = None
            if self._taken:
                gate = threading.Lock()
                gate.acquire()
                self._waiting.append(gate)
            self._taken = True
        if gate is not None and not self._wait(gate, timeout_s):
            return False
        self._owner = threading.get_ident()
        return True

    def _wait(self, gate: threading.Lock, timeout_s: float) -> bool:
        try:
            got = gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        except BaseException:  # Ctrl-C while waiting
            if not self._leave(gate):
                self.let_go()
            raise
        return got or not self._leave(gate)

    def _leave(self, gate: threading.Lock) -> bool:
        """Stop waiting; False when the turn was handed over at that very moment."""
        with self._mutex:
            try:
                self._waiting.remove(gate)
            except ValueError:
                return False
            return True

    def release(self) -> None:
        """Hand the turn to whoever came next, here and in other processes."""
        if self.among_processes is not None:
            self.among_processes.release()
        self.let_go()

    def let_go(self) -> None:
        """Hand this process's turn on."""
        self._owner = None
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


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

"""One commit for many: writers of one process that wait for each other share a transaction.

A write that commits alone costs a flush of the disk and, among threads, a hand-over. Whoever writes takes along what
others wait to write: each statement fails or succeeds by itself, all are committed at once, and none is acknowledged
before. A writer that nobody waits behind does what it would do without.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from crowmem.drivers.sqlite_errors import FAILURES, translate
from crowmem.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import apsw

    from crowmem.drivers.sqlite_file import SqliteFile
    from crowmem.statement import Statement

MOST = 64  # statements of one transaction


class _Request:
    """A statement that waits to be run, by another thread or by its own."""

    __slots__ = ("done", "error", "gate", "leads", "params", "rows", "statement", "thread")

    def __init__(self, statement: Statement, params: Mapping[str, Any]) -> None:
        self.thread = threading.get_ident()
        self.statement = statement
        self.params = params
        self.rows: list[Any] = []
        self.error: Exception | None = None
        self.done = False  # what it wrote is committed, or its error stands
        self.leads = False  # its thread is to run it, and others along with it
        self.gate = threading.Lock()
        self.gate.acquire()

    def result(self) -> list[Any]:
        """The rows, or the error."""
        if self.error is not None:
            raise self.error
        return self.rows


class Group:
    """The writers of one `SqliteFile` that commit alone."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._leader: int | None = None  # the thread that runs statements
        self._mutex = threading.Lock()
        self._waiting: deque[_Request] = deque()

    def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one writing statement; when this returns it is committed."""
        me = threading.get_ident()
        try:
            if not self._lead(me):
                request = self._stand_in_line(statement, params)
                if not request.leads:
                    return request.result()
            others: Sequence[_Request] = ()
            connection = self._file.take_checked()
            try:
                if self._waiting:
                    others = self._take_along()
                if not others:
                    return self._file.run_writing(connection, statement, params)
                own = _Request(statement, params)
                self._run_together(connection, (own, *others))
            finally:
                try:
                    self._file.turn.release()
                except BaseException:
                    if self._file.turn.held:  # Ctrl-C before the first line of it
                        self._file.turn.release()
                    raise
                finally:
                    if others:
                        self._answer(others)
            return own.result()
        finally:
            if self._leader == me:
                self._leader = None
            if self._waiting:
                self._call_next()

    def _lead(self, me: int) -> bool:
        """Lead if nobody else does; this thread itself may, since Ctrl-C came between two steps."""
        with self._mutex:
            if self._leader is None or self._leader == me:
                self._leader = me
                return True
            return False

    def _stand_in_line(self, statement: Statement, params: Mapping[str, Any]) -> _Request:
        """Wait until another thread has run it, or until it is this thread's turn to lead."""
        if self._file.turn.held:
            self._file.take()  # raises, if this thread would wait for itself
            self._file.turn.release()  # what Ctrl-C left
        request = _Request(statement, params)
        with self._mutex:
            self._waiting.append(request)
        self._call_next()  # who led may have gone before it could see this one
        timeout_s = min(self._file.busy_timeout_s, threading.TIMEOUT_MAX)
        try:
            served = request.gate.acquire(timeout=timeout_s)
        except BaseException:  # Ctrl-C while waiting
            if not self._leave(request):
                request.gate.acquire()
            raise
        if not served:
            if self._leave(request):
                raise Busy(f"{self._file.name}: other writers kept the store for {self._file.busy_timeout_s:g} s")
            request.gate.acquire()  # it is being run at this very moment
        return request

    def _leave(self, request: _Request) -> bool:
        """Wait no longer; False when somebody runs it already, or it is called upon to lead."""
        with self._mutex:
            try:
                self._waiting.remove(request)
            except ValueError:
                return False
            return True

    def _call_next(self) -> None:
        """Have the one that waits longest lead, if anybody waits and nobody leads."""
        with self._mutex:
            if self._leader is not None or not self._waiting:
                return
            request = self._waiting[0]
            self._leader = request.thread
            request.leads = True
            del self._waiting[0]
        request.gate.release()

    def _take_along(self) -> list[_Request]:
        with self._mutex:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST - 1))]

    def _answer(self, requests: Sequence[_Request]) -> None:
        """Let each go on that is done; the others wait on, first in line, when what ran them was stopped."""
        left = [request for request in requests if not request.done]
        with self._mutex:
            self._waiting.extendleft(reversed(left))
        for request in requests:
            if request.done:
                request.gate.release()

    def _run_together(self, connection: apsw.Connection, requests: Sequence[_Request]) -> None:
        """Run all in one transaction; if that as a whole fails, each alone."""
        if self._commit(connection, requests):
            return
        for request in requests:
            self._commit(connection, (request,))
            request.done = True

    def _commit(self, connection: apsw.Connection, requests: Sequence[_Request]) -> bool:
        """Run some in one transaction; False when it failed as a whole."""
        from crowmem.drivers.sqlite_file import roll_back

        whole = ending = False
        try:
            connection.execute("begin immediate")
            if all(self._run_one(connection, request) for request in requests):
                ending = True
                connection.execute("commit")
                whole = True
        except FAILURES as error:
            ending = False
            for request in requests:
                request.error = translate(error, request.statement, self._file.name)
                request.error.__cause__ = error
        finally:
            # Ctrl-C in this thread is no concern of the others; one that came while it committed shows only afterwards
            whole = whole or (ending and not connection.in_transaction)
            for request in requests:
                request.done = whole
            roll_back(connection)
        return whole

    def _run_one(self, connection: apsw.Connection, request: _Request) -> bool:
        """Run a statement and note how it went; False when it took the whole transaction with it."""
        from crowmem.drivers.sqlite_file import execute

        began = connection.in_transaction
        request.rows, request.error = [], None
        try:
            request.rows = execute(connection, request.statement, request.params)
        except FAILURES as error:
            request.error = translate(error, request.statement, self._file.name)
            request.error.__cause__ = error
        except Exception as error:  # a value that cannot be bound; its own thread is told
            request.error = error
        return connection.in_transaction == began

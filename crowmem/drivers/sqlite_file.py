"""One SQLite file and this process's connections to it.

One connection writes; writers take turns (`Turn`) and begin with ``begin immediate``, so nothing is read first and
written later on a stale view. Readers have connections of their own and never wait for a writer. Every statement is
read to its end before its rows are handed out: no cursor stays open to hold the log back, and nothing is handed out
before it is committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import apsw

from crowmem.drivers.codec import record_maker
from crowmem.drivers.filesystems import shares_memory
from crowmem.drivers.sqlite_errors import FAILURES, translate, translated
from crowmem.drivers.sqlite_fork import follow, is_spoilt
from crowmem.drivers.sqlite_group import Group
from crowmem.drivers.sqlite_place import Place
from crowmem.drivers.sqlite_rank import install
from crowmem.drivers.turn import Turn, give_back, turn_for
from crowmem.errors import Busy, Closed, ConfigError, NotFound, SchemaMismatch, Unavailable, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from crowmem.statement import Statement

STATEMENT_CACHE = 400  # room for the whole catalogue
PROGRESS_STEPS = 20_000  # virtual machine steps between looks for Ctrl-C, some 1 ms
LOG_LIMIT_BYTES = 64 * 1024 * 1024  # the log file is cut back to this after a checkpoint
_DRIVERS = f"{os.path.dirname(__file__)}{os.sep}"  # noqa: PTH120  # as text: code objects name their files so
_PACKAGE = f"{os.path.dirname(os.path.dirname(__file__))}{os.sep}"  # noqa: PTH120  # as above
NAPS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005)  # SQLite's own naps grow to 100 ms, which starves


class SqliteFile:
    """The connections of one process to one file; follows a fork by opening its own."""

    def __init__(
        self,
        path: Path | None,
        *,
        read_only: bool = False,
        durability: str = "full",
        busy_timeout_s: float = 5.0,
        journal: str | None = None,
    ) -> None:
        """Remember how to open; nothing is opened yet.

        Args:
            path: the file; None for a private database in memory.
            read_only: open without the right to write.
            durability: "full" or "normal".
            busy_timeout_s: how long a writer waits for others.
            journal: a journal mode that overrides what the file system suggests.
        """
        self.path = path
        self.name = str(path) if path else ":memory:"
        self.read_only = read_only
        self.durability = durability
        self.busy_timeout_s = busy_timeout_s
        self.journal = journal
        self.journal_reason = ""
        self.on_connect = ""
        self.closed = False
        self.place = Place(self.name)
        self._reset()
        if path is not None:
            follow(self)

    def _reset(self) -> None:
        self.pid = os.getpid()
        self.real = os.path.realpath(self.name) if self.path else ""
        self.turn: Turn = turn_for(self.real) if self.path else Turn()
        self.group = Group(self)
        self._all: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._writer: apsw.Connection | None = None
        self._readers: list[apsw.Connection] = []
        self._lent: set[apsw.Connection] = set()
        self._mutex = threading.Lock()
        self.place.forget_log()

    # --- connections ---

    def check(self) -> None:
        """Raise Closed after close; in a forked child leave the parent's connections alone and start afresh."""
        if self.closed:
            raise Closed(f"the store {self.name} was closed; open it again")
        if self.pid != os.getpid():
            self._reset()

    def pause(self, until: float) -> bool:
        """Before a fork: wait until no connection reads, and let none begin; False when the time is up."""
        while self._mutex.acquire(timeout=max(0.0, until - time.monotonic())):
            if not self._lent:
                return True
            self._mutex.release()
            time.sleep(NAPS_S[0])
            if time.monotonic() >= until:
                break
        return False

    def resume(self) -> None:
        """After a fork: readers go on."""
        self._mutex.release()

    def inherited(self) -> list[apsw.Connection]:
        """In a forked child: the parent's connections, which are nobody's from now on."""
        found = [] if self.pid == os.getpid() else list(self._all)
        self._all.clear()
        return found

    def _connect(self, *, reader: bool) -> apsw.Connection:
        if self.path is None:
            connection = apsw.Connection(":memory:", statementcachesize=STATEMENT_CACHE)
        else:
            self.place.check()  # or this connection would belong to another store than the rest,
            self.place.check_log()  # or make a second log
            flags = apsw.SQLITE_OPEN_READONLY if self.read_only else apsw.SQLITE_OPEN_READWRITE
            connection = apsw.Connection(self.name, flags=flags, statementcachesize=STATEMENT_CACHE)
        self._all.add(connection)
        connection.convert_binding = as_json
        connection.set_busy_handler(_Patience(self.busy_timeout_s))
        connection.set_progress_handler(_go_on, PROGRESS_STEPS)
        if not self.read_only and not reader:
            self._set_journal(connection)
        connection.pragma("synchronous", "full" if self.durability == "full" else "normal")
        connection.pragma("foreign_keys", 1)
        connection.pragma("secure_delete", 1)
        connection.pragma("temp_store", "memory")
        install(connection)
        if self.on_connect:
            connection.execute(self.on_connect).fetchall()
        if self.path is not None:
            self.place.remember(connection)
        return connection

    def _set_journal(self, connection: apsw.Connection) -> None:
        """Write-ahead log, unless the file system cannot share memory between processes."""
        wanted = self.journal or "wal"
        if self.path and not self.journal:
            kind, fit = shares_memory(self.path)
            if not fit:
                wanted, self.journal_reason = "delete", f"file system {kind} cannot keep a write-ahead log coherent"
                import logging  # 3 ms, for what hardly ever happens

                logging.getLogger("crowmem").warning("%s: %s; using a rollback journal", self.name, self.journal_reason)
        connection.pragma("journal_mode", wanted)
        connection.pragma("journal_size_limit", LOG_LIMIT_BYTES)

    def connect(self) -> None:
        """Make the file if it is missing, and reach it once. Nothing is written to a file that may not be ours."""
        self.check()
        if self.path is not None and self.path.is_dir():  # SQLite calls it an I/O error
            raise ConfigError(f"{self.name} is a folder: name a file, such as {self.path / 'crow.db'}")
        self.create()
        if self.path is not None:
            with translated(None, self.name), self.reader():
                # SQLite reports one byte as none at all, for the sake of a file system that cannot lock an empty file
                if self.path.stat().st_size == 1:
                    raise SchemaMismatch(
                        f"{self.name}: a file of one byte is not a database, and was left as it is; name another file"
                    )

    def create(self) -> None:
        """Make the file and its folder, readable by this user only; an existing file is left as it is."""
        if self.path is None or self.read_only:
            return
        with translated(None, self.name):
            missing = [folder for folder in self.path.parents if not folder.exists()]
            for folder in reversed(missing):
                folder.mkdir(mode=0o700, exist_ok=True)
            # O_EXCL: an existing file is never opened here, closing it would drop the locks this process has on it
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def open_reader(self) -> apsw.Connection:
        """A reading connection for one thread's own use `using` it, which closes it."""
        with self._mutex:
            return self._connect(reader=True)

    @contextlib.contextmanager
    def using(self, connection: apsw.Connection) -> Iterator[apsw.Connection]:
        """A connection of a thread's own, while it runs something."""
        with self._mutex:
            self._lent.add(connection)
        try:
            yield connection
        finally:
            with self._mutex:
                self._lent.discard(connection)

    @property
    def writer(self) -> apsw.Connection:
        """The connection that writes; use it only while holding the turn."""
        if self._writer is None:
            self._writer = self._connect(reader=False)
        return self._writer

    @contextlib.contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection for one read."""
        connection = self.borrow()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def borrow(self) -> apsw.Connection:
        """A connection for one read, to be given back."""
        with self._mutex:
            if self._readers:
                connection = self._readers.pop()
            elif self.path is not None and self.read_only and not self.path.exists():
                raise NotFound(f"there is no store at {self.name}: check the path, or open it without read_only")
            else:
                with translated(None, self.name):
                    connection = self._connect(reader=True)  # within the lock, or a fork could fall into it
            self._lent.add(connection)
        return connection

    def give_back(self, connection: apsw.Connection) -> None:
        """End a read."""
        with self._mutex:
            self._lent.discard(connection)
            if self.closed:
                connection.close()
            else:
                self._readers.append(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """The writing connection, when it is this caller's turn."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.turn.release()

    def take(self, *, look: bool = True) -> apsw.Connection:
        """The writing connection, when it is this caller's turn; the turn is to be released.

        Args:
            look: see that the file is still there; False for whoever does so before the commit.
        """
        self.check()
        return self.take_checked(look=look)

    def take_checked(self, *, look: bool = True) -> apsw.Connection:
        """As `take`, for whoever made the `check` before."""
        turn = self.turn
        if is_spoilt(self.real):
            raise Unsupported(
                f"{self.name}: this process was forked while its parent was using the store, and can only read it; "
                "fork outside transactions, or open the store in a process that is not forked"
            )
        if not turn.acquire(self.busy_timeout_s) and not self._is_left_over():
            if turn.held:
                raise Busy(
                    f"{self.name}: this thread has a transaction open here, and would wait for itself; "
                    "inside the block use the Memory that transaction() gave"
                )
            raise Busy(f"{self.name}: other writers kept the store for {self.busy_timeout_s:g} s")
        try:
            if look:
                self.place.check()
            if self._writer is not None and not self.closed:
                return self._writer
            self.check()  # it may have been closed meanwhile
            with translated(None, self.name):
                return self.writer
        except BaseException:
            turn.release()
            raise

    def _is_left_over(self) -> bool:
        """Whether this thread still has the turn although nothing of its own is open: Ctrl-C came between two steps."""
        block = self.turn.block
        if not self.turn.held or (block is not None and block.open):
            return False
        if threading.current_thread() is not threading.main_thread() or _is_nested():
            return False  # Ctrl-C comes nowhere else
        if self._writer is not None:
            roll_back(self._writer)
        return True

    # --- statements ---

    def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement that commits alone."""
        self.check()  # first: the line of writers in a forked child is not its parent's
        if statement.writes or self.path is None:
            return self.group.run(statement, params)
        return self.run_reading(self.borrow(), statement, params)

    def run_writing(self, connection: apsw.Connection, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement on the writing connection that was taken."""
        try:
            return execute(connection, statement, params)
        except FAILURES as error:
            raise translate(error, statement, self.name) from error

    def run_reading(self, connection: apsw.Connection, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement on a connection that was borrowed, and give it back."""
        try:
            return execute(connection, statement, params)
        except FAILURES as error:
            raise translate(error, statement, self.name) from error
        finally:
            self.give_back(connection)

    def begin(self) -> apsw.Connection:
        """Take the turn and begin an immediate transaction, to be ended by `commit` or `abandon`."""
        connection = self.take(look=not self.place.has_log)  # nothing is kept before the commit, which looks
        try:
            connection.execute("begin immediate")
        except BaseException as error:
            with contextlib.suppress(apsw.ConnectionClosedError):
                self.abandon(connection)  # Ctrl-C may come when it has begun
            if isinstance(error, FAILURES):
                raise translate(error, None, self.name) from error
            raise
        return connection

    def commit(self, connection: apsw.Connection) -> None:
        """Commit and release the turn; when the commit fails nothing of the transaction is kept."""
        try:
            check_open(connection, self.name)
            self.place.check()
            connection.execute("commit")
        except BaseException as error:
            roll_back(connection)
            if isinstance(error, FAILURES):
                raise translate(error, None, self.name) from error
            raise
        finally:
            self.turn.release()

    def abandon(self, connection: apsw.Connection) -> None:
        """Roll back and release the turn."""
        try:
            roll_back(connection)
        finally:
            self.turn.release()

    def script(self, sql: str) -> None:
        """Run several statements outside a transaction."""
        with translated(None, self.name), self.writing() as connection:
            connection.execute(sql).fetchall()

    def use_on_connect(self, sql: str) -> None:
        """Run this script on every connection from now on, those that are open included."""
        self.on_connect = sql
        with translated(None, self.name):
            with self._mutex:
                idle, self._readers = self._readers, []
            for connection in idle:
                connection.close()
            if self._writer is None:
                self.place.forget_log()
            else:
                self._writer.execute(sql).fetchall()

    def interrupt(self, connection: apsw.Connection | None) -> None:
        """Stop what a connection is doing."""
        if connection is not None:
            with contextlib.suppress(apsw.ConnectionClosedError):
                connection.interrupt()

    def state(self) -> dict[str, Any]:
        """Journal mode, size of the log, durability."""
        self.check()
        log_bytes = 0
        if self.path is not None:
            with contextlib.suppress(OSError):
                log_bytes = os.stat(self.name + "-wal").st_size  # noqa: PTH116  # stat opens nothing
        with translated(None, self.name):
            place = self.writing if self.path is None else self.reader
            with place() as connection:
                journal = str(connection.pragma("journal_mode"))
        note = f"{journal} ({self.journal_reason})" if self.journal_reason else journal
        return {"journal": note, "log_bytes": log_bytes, "durability": self.durability, "pool": {}}

    def close(self) -> None:
        """Close every idle connection; a reader that is in use closes when it comes back."""
        if self.closed:
            return
        self.check()
        writer = self._writer
        waits = writer is not None and not self.turn.held
        if writer is not None and not waits and writer.in_transaction:
            raise Busy(f"{self.name}: a transaction is still open in this thread; end its block, then close")
        if waits and not self.turn.acquire(self.busy_timeout_s):
            raise Busy(f"{self.name}: another thread's transaction is still open after {self.busy_timeout_s:g} s")
        try:
            with self._mutex:
                self.closed = True
                connections, self._readers = self._readers, []
            for connection in connections:
                connection.close()
            if writer is not None:
                writer.close()
        finally:
            if waits:
                self.turn.release()
            if self.closed and self.path is not None:
                give_back(self.real, self.turn)


class _Patience:
    """Waits for a lock in short naps, so that no waiter starves; signals are seen between them."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since = 0.0

    def __call__(self, count: int) -> bool:
        now = time.monotonic()
        if count == 0:
            self._since = now
        if now - self._since >= self._timeout_s:
            return False
        time.sleep(NAPS_S[min(count, len(NAPS_S) - 1)])
        return True


def _go_on() -> bool:
    """Called every few steps of a long statement: Python sees Ctrl-C on the way."""
    return False


def execute(connection: apsw.Connection, statement: Statement, params: Mapping[str, Any]) -> list[Any]:
    """Run a statement to its end and make its rows records."""
    rows = connection.execute(statement.texts["sqlite"], params).fetchall()
    if statement.record is None:
        return rows
    if not rows:
        return rows
    make = record_maker(statement.record)
    return [make(row) for row in rows]


def execute_batch(connection: apsw.Connection, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Run a statement once for each set of parameters."""
    found = connection.executemany(statement.texts["sqlite"], rows).fetchall()
    if statement.record is None:
        return found
    make = record_maker(statement.record)
    return [make(row) for row in found]


def as_json(_cursor: apsw.Cursor, _number: int, value: Any) -> Any:
    """Lists and dicts travel as JSON text; apsw asks only about what it cannot bind itself."""
    if type(value) is list or type(value) is dict:
        return json.dumps(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be bound")


def check_open(connection: apsw.Connection, store: str) -> None:
    """Refuse to go on in a transaction that SQLite ended: each further statement would commit alone.

    It does so when a writing statement is interrupted, and when the disk is full or fails.
    """
    if not connection.in_transaction:
        raise Unavailable(
            f"{store}: the transaction was rolled back as a whole when one of its statements was stopped or failed; "
            "begin it again"
        )


def _is_nested() -> bool:
    """Whether this call comes from code that runs in the middle of another one: a signal handler, a callback."""
    frame: FrameType | None = sys._getframe()
    outside = False
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            outside = True
        elif outside and file.startswith(_DRIVERS):
            return True
        frame = frame.f_back
    return False


def roll_back(connection: apsw.Connection) -> None:
    """End a transaction that failed, if SQLite has not ended it already."""
    if connection.in_transaction:
        connection.execute("rollback")

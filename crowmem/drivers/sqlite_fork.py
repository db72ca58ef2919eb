"""What a fork does to open SQLite files: the child closes what it inherited before it opens a file again.

SQLite notes its locks on a file once for a process, in memory that a fork copies, while the locks themselves are not
inherited. Beside an inherited connection a child got no lock at all: the parent's last close removed the write-ahead
log under it, and what the child had committed was gone (measured). An idle connection can be closed in the child
without a trace, when it is told to leave the log alone; so a fork waits until all are idle. One that is in the midst of
something stays as it is, and the child must not write to that file.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowmem.drivers.sqlite_file import SqliteFile

WAIT_S = 1.0  # longest wait of a fork for statements and transactions of other threads

_files: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
_stopped: dict[int, list[Callable[[], object]]] = {}  # by the thread that forks: how to let the others go on
_spoilt: set[str] = set()


def follow(file: SqliteFile) -> None:
    """Care for a file's connections when this process forks."""
    _files.add(file)


def is_spoilt(path: str) -> bool:
    """Whether this process inherited connections to a file that it can neither use nor close."""
    return path in _spoilt


def _before() -> None:
    """Wait until no other thread uses a connection, and keep them from beginning."""
    until = time.monotonic() + WAIT_S
    stopped = _stopped[threading.get_ident()] = []
    files = [file for file in _files if file.pid == os.getpid() and not file.closed]
    for turn in {file.turn for file in files}:
        if not turn.held and turn.hold(max(0.0, until - time.monotonic())):
            stopped.append(turn.let_go)
    for file in files:
        if file.pause(until):
            stopped.append(file.resume)


def _in_parent() -> None:
    """Let the others go on."""
    for go_on in reversed(_stopped.pop(threading.get_ident(), [])):
        go_on()


def _in_child() -> None:
    """Close what is idle; the rest must never be finalised, not even at exit."""
    _stopped.clear()
    for file in list(_files):
        for connection in file.inherited():
            if not _closed(connection):
                _spoilt.add(file.real)
                _keep_for_ever(connection)


def _keep_for_ever(connection: apsw.Connection) -> None:
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _closed(connection: apsw.Connection) -> bool:
    try:
        if connection.in_transaction:
            return False
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()
    except apsw.ConnectionClosedError:  # by the parent, before the fork
        return True
    except apsw.Error:  # a thread that is not here was using it
        return False
    return True


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

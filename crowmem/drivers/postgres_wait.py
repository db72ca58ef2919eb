"""Hearing of changes that any process makes to a PostgreSQL store, and telling others of ours.

One thread a process has one connection outside the pool. It listens, asks once a second for all waiters in case a
word was lost (a pooler that shares sessions loses them all), and sends our own words: after the commit they are
about, in a transaction of its own that is not flushed, at most one a topic in 50 ms. Senders never wait for it.
"""

from __future__ import annotations

import contextlib
import select
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq

from crowmem.drivers.waiters import LINGER_S, POLL_S, Share, Watcher
from crowmem.statement import statement

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from crowmem.drivers.postgres_settings import Settings
    from crowmem.statement import Statement

LISTEN = statement("wait_listen")
NOTIFY = statement("wait_notify")

SPACING_S = 0.05  # between two words for one topic
ANSWER_S = 1.0  # a connection that takes longer than this to answer is taken for lost
RETRIES_S = (0.02, 0.1, 0.3, 1.0)  # pauses between tries to connect
TOLD = 100_000  # topics remembered for their spacing
UNFLUSHED = "-c synchronous_commit=off"  # a word need not survive a crash


class Listener(Share):
    """One store's way to wait and announce, from threads and from tasks."""

    def __init__(self, settings: Settings) -> None:
        super().__init__((settings.conninfo, settings.schema, settings.read_only), lambda: PostgresWatcher(settings))

    def announce(self, topic: str) -> None:
        """Wake those who wait for a topic, in every process; returns at once."""
        if not self._closed:
            self.watcher.tell(topic)


class PostgresWatcher(Watcher):
    """The listening thread of one database."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._untold: dict[str, float] = {}  # topic → when it may be told
        self._told: dict[str, float] = {}  # topic → when it may be told again

    def tell(self, topic: str) -> None:
        """Wake this process's waiters, and have the others told."""
        self.wake((topic,))
        if topic in self._untold:
            return
        with self.mutex:
            if len(self._told) >= TOLD:
                self._told.clear()
            self._untold[topic] = max(time.monotonic(), self._told.get(topic, 0.0))
            self.start()
        self.ring()

    def has_work(self) -> bool:
        """Whether there are words to send."""
        return bool(self._untold)

    def watch(self) -> None:
        """Listen, ask and tell until nobody needs it."""
        line = _Line(self._settings)
        try:
            self._watch(line)
        finally:
            line.close()

    def _watch(self, line: _Line) -> None:
        failures = 0
        quiet_since = time.monotonic()
        while True:
            if not self.is_idle or self._untold:
                quiet_since = time.monotonic()
            done = (self.closing and not self._untold) or time.monotonic() - quiet_since > LINGER_S
            if done and self.may_end():
                return
            try:
                self._turn(line)
                failures = 0
            except (psycopg.Error, TimeoutError):
                line.close()
                if self.closing:
                    return
                if failures:  # not a connection that just ended: let the waiters look for themselves meanwhile
                    self.wake_all()
                self.sleep(RETRIES_S[min(failures, len(RETRIES_S) - 1)])
                failures += 1

    def _turn(self, line: _Line) -> None:
        """One round: connect if need be, tell, hear, ask, sleep."""
        line.connect()
        if not self.is_idle:
            line.listen()
        self._send(line)
        self.wake(line.heard())
        if self.has_fresh or time.monotonic() >= line.next_look:
            everybody = time.monotonic() >= line.next_look
            due_s = POLL_S
            for look, topics in self.questions(everybody=everybody):
                due_s = min(due_s, self.answered(line.ask(look, topics)))
            now = time.monotonic()
            line.next_look = min(now + due_s, line.next_look if not everybody else now + POLL_S)
        wake_at = line.next_look if not self.is_idle else time.monotonic() + LINGER_S
        with self.mutex:
            wake_at = min([wake_at, *self._untold.values()])
        if not self.has_fresh and not self.closing:
            self.sleep(wake_at - time.monotonic(), line.file)

    def _send(self, line: _Line) -> None:
        now = time.monotonic()
        with self.mutex:
            topics = [topic for topic, when in self._untold.items() if when <= now or self.closing]
            for topic in topics:
                self._told[topic] = self._untold.pop(topic) + SPACING_S
        if topics:
            line.ask(NOTIFY, topics)


class _Line:
    """The connection of one watching thread. Every exchange has a time limit."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: psycopg.Connection[Any] | None = None
        self._listening = False
        self.next_look = 0.0

    def connect(self) -> None:
        """Connect if there is no connection; then everything is asked anew."""
        if self._connection is None:
            arguments = dict(self._settings.arguments)
            if self._settings.prepare:  # a pooler that shares sessions takes no options
                arguments["options"] = f"{arguments.get('options', '')} {UNFLUSHED}".strip()
            self._connection = psycopg.connect(**arguments)
            self._listening, self.next_look = False, 0.0

    def listen(self) -> None:
        """Have the server tell this connection."""
        if not self._listening:
            self._listening = True
            self.ask(LISTEN, None)

    @property
    def _wire(self) -> PGconn:
        if self._connection is None:
            raise psycopg.OperationalError("the connection is closed")
        return self._connection.pgconn

    @property
    def file(self) -> int:
        """The socket, to sleep on."""
        return self._wire.socket

    def heard(self) -> list[str]:
        """The topics that were announced since."""
        wire = self._wire
        wire.consume_input()
        topics = []
        while (word := wire.notifies()) is not None:
            topics.append(word.extra.decode(errors="replace"))
        return topics

    def ask(self, statement: Statement, topics: list[str] | None) -> list[tuple[str, int]]:
        """Run a statement over topics; its rows.

        Raises:
            TimeoutError: no answer in time.
            psycopg.Error: the connection is lost, or the server refused.
        """
        wire, limit = self._wire, time.monotonic() + ANSWER_S
        text = self._settings.sql(statement).encode()
        wire.send_query_params(text, None if topics is None else [_array(topics)])
        while wire.flush():
            self._ready(select.POLLIN | select.POLLOUT, limit)
            wire.consume_input()
        rows: list[tuple[str, int]] = []
        while (result := self._result(limit)) is not None:
            if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                raise psycopg.errors.error_from_result(result)
            if result.nfields == 2:
                for row in range(result.ntuples):
                    rows.append(((result.get_value(row, 0) or b"").decode(), int(result.get_value(row, 1) or 0)))
        return rows

    def _result(self, limit: float) -> Any:
        while self._wire.is_busy():
            self._ready(select.POLLIN, limit)
            self._wire.consume_input()
        return self._wire.get_result()

    def _ready(self, events: int, limit: float) -> None:
        poll = select.poll()
        poll.register(self._wire.socket, events)
        if not poll.poll(max(0.0, limit - time.monotonic()) * 1000):
            raise TimeoutError

    def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def _array(texts: list[str]) -> bytes:
    """A PostgreSQL array literal."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return ("{" + ",".join(f'"{text}"' for text in quoted) + "}").encode()

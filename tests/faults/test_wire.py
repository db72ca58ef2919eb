"""PostgreSQL that crashes, hangs, is cut off, turns read-only: typed errors, nothing acknowledged lost, and work goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pg_server import NoPostgresError, running
from tcp_proxy import Wire

from crowmem import Memory
from crowmem.errors import OutcomeUnknown, ReadOnly, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pg_server import OwnServer

pytestmark = pytest.mark.postgres
CUTS = [pytest.param(3, id="short"), pytest.param(50, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(3000)])]
LONG = [pytest.param(10, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(3000)])]


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with running(tcp=True) as found:
        Memory.open(found.url("postgres")).close()
        yield found


class Writers:
    """Threads that add until told to stop, and know what was acknowledged and what is unknown."""

    def __init__(self, memory: Memory, name: str, count: int = 4) -> None:
        self.memory = memory
        self.name = name
        self.known: set[str] = set()
        self.unknown: set[str] = set()
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        step = 0
        while not self._stop.is_set():
            word = f"{self.name}n{number}s{step}"
            try:
                self.memory.messages.add(f"{self.name}n{number}-1-1", {"role": "user", "content": word})
                self.known.add(word)
            except OutcomeUnknown:
                self.unknown.add(word)
            except Unavailable:
                continue  # nothing happened: the same word again
            except BaseException as error:  # kept for the assertion
                self.failures.append(error)
                return
            step += 1

    def wait_for(self, more: int) -> None:
        """Until so many more were acknowledged."""
        wanted = len(self.known) + more
        while len(self.known) < wanted and any(thread.is_alive() for thread in self._threads):
            self._stop.wait(0.01)

    def stop(self) -> None:
        """Let them end."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.failures == []

    def finish(self, tally: Callable[..., None], **tried: int) -> None:
        """Stop, then look: what was acknowledged is there once, what is unknown at most once, and nothing else."""
        self.stop()
        stored: list[str] = []
        for number in range(len(self._threads)):
            stored += [message["content"] for message in self.memory.messages.load(f"{self.name}n{number}-1-1")]
        lost, doubled = len(self.known - set(stored)), len(stored) - len(set(stored))
        tally(**tried, acknowledged=len(self.known), unknown=len(self.unknown), lost=lost, doubled=doubled)
        assert (lost, doubled) == (0, 0)
        assert set(stored) - self.known <= self.unknown


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("mode", ["reset", "lose", "hang", "refuse"])
def test_a_cut_wire(
    server: OwnServer, mode: Any, cuts: int, tally: Callable[..., None], sound: Callable[[Memory], None]
) -> None:
    name = f"{mode}{cuts}"
    with Wire(server.address) as wire, Memory.open(server.url("postgres", host=wire.host, port=wire.port)) as memory:
        writers = Writers(memory, name)
        for _ in range(cuts):
            writers.wait_for(20)
            wire.cut(mode)
            threading.Event().wait(0.3)
            wire.heal()
        writers.wait_for(20)
        writers.finish(tally, cuts=cuts)
        sound(memory)


def crash(server: OwnServer, how: str) -> None:
    """End a server and start it again; "kill" is kill -9 of its first process, whose children end a little later."""
    if how != "kill":
        server.restart(how)  # type: ignore[arg-type]
        return
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    for _ in range(100):
        try:
            server.start()
        except NoPostgresError:  # the shared memory of the one before is still in use
            continue
        return
    raise AssertionError("the server does not come back")


@pytest.mark.parametrize("restarts", [pytest.param(2, id="short"), *LONG])
@pytest.mark.parametrize("how", ["immediate", "fast", "kill"])
def test_a_server_that_crashes_and_comes_back(
    server: OwnServer, how: str, restarts: int, tally: Callable[..., None], sound: Callable[[Memory], None]
) -> None:
    with Memory.open(server.url("postgres")) as memory:
        writers = Writers(memory, f"{how}{restarts}")
        for _ in range(restarts):
            writers.wait_for(20)
            crash(server, how)
        writers.wait_for(20)
        writers.finish(tally, restarts=restarts)
        sound(memory)


def test_a_primary_that_turned_into_a_standby(server: OwnServer) -> None:
    """What a failover looks like to those whose address still leads to the old server."""
    with Memory.open(server.url("postgres")) as memory:
        memory.messages.add("failover-1-1", {"n": 1})
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("alter system set default_transaction_read_only = on")
            admin.execute("select pg_reload_conf()")
        try:
            while True:
                try:
                    memory.messages.add("failover-1-1", {"n": 2})
                except ReadOnly:
                    break
            before = memory.messages.load("failover-1-1")
            with pytest.raises(ReadOnly), memory.transaction() as tx:
                tx.mailbox.send("box", "x")
        finally:
            with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                admin.execute("set default_transaction_read_only = off")
                admin.execute("alter system reset default_transaction_read_only")
                admin.execute("select pg_reload_conf()")
        while True:
            try:
                memory.messages.add("failover-1-1", {"n": 3})
                break
            except ReadOnly:
                continue
        assert memory.messages.load("failover-1-1") == [*before, {"n": 3}]

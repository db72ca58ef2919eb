"""A primary that is killed and a standby that takes its place: with synchronous replication nothing acknowledged is lost."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from own_process import free_ports, private_folder, spawn
from pg_server import ENVIRONMENT, PREFIX, running
from test_wire import Writers

from crowmem import Memory
from crowmem.errors import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pg_server import OwnServer

pytestmark = pytest.mark.postgres
REPLICATED = {"wal_level": "replica", "max_wal_senders": "4"}


@contextmanager
def standby_of(primary: OwnServer) -> Iterator[OwnServer]:
    """A server that follows another, and that the other waits for."""
    program = primary.programs / "pg_basebackup"
    if not program.exists():
        pytest.skip("this PostgreSQL has no pg_basebackup")
    with private_folder(PREFIX, primary.folder.parent, primary.runs_as) as base:
        copy = spawn(
            [program, "-d", primary.url(), "-D", base / "data", "-X", "stream", "-R", "--checkpoint=fast"],
            folder=base,
            log=base / "log",
            env=ENVIRONMENT,
            who=primary.runs_as,
        )
        assert copy.wait() == 0, (base / "log").read_text("utf-8")
        [port] = free_ports(1)
        settings = {**primary.settings, "port": str(port), "unix_socket_directories": str(base)}
        standby = replace(primary, host=str(base), port=port, folder=base, settings=settings, process=None)
        standby.start()
        try:
            with psycopg.connect(primary.url(), autocommit=True) as admin:
                admin.execute("alter system set synchronous_standby_names = '*'")
                admin.execute("select pg_reload_conf()")
            yield standby
        finally:
            standby.stop("immediate")


def test_a_standby_takes_over(tally: Callable[..., None], sound: Callable[[Memory], None]) -> None:
    with running(REPLICATED, tcp=True) as primary:
        Memory.open(primary.url()).close()
        with standby_of(primary) as standby:
            both = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            with Memory.open(f"postgresql://postgres@{both}/postgres?target_session_attrs=read-write") as memory:
                writers = Writers(memory, "failover")
                writers.wait_for(50)
                with Memory.open(standby.url(), read_only=True) as replica:
                    assert len(replica.messages.load("failovern0-1-1")) > 0
                with Memory.open(standby.url()) as wrong, pytest.raises(ReadOnly):
                    wrong.messages.add("failover-1-1", {"n": 1})
                primary.process.kill()  # type: ignore[union-attr]
                with psycopg.connect(standby.url(), autocommit=True) as admin:
                    assert admin.execute("select pg_promote()").fetchone() == (True,)
                writers.wait_for(50)
                writers.finish(tally, failovers=1)
                sound(memory)
            primary.process.wait()  # type: ignore[union-attr]

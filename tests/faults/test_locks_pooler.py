"""Session locks and guarded writes through a transaction-pooling PgBouncer, beside clients that go straight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from test_leases import until
from test_locks import free_in_thread
from test_pgbouncer import PGBOUNCER, through  # noqa: F401  # a fixture

from crowmem import Memory
from crowmem.errors import LeaseLost

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed (Debian's package pgbouncer)"),
]
HOLDER = """
import sys, time
from crowmem import Memory
memory = Memory.open(sys.argv[1], prepare=False)
memory.sessions.lock("killed").__enter__()
print("held", flush=True)
time.sleep(1000)
"""


def test_one_holder_at_a_time_and_others_are_served(through: str) -> None:  # noqa: F811
    with Memory.open(through, prepare=False) as memory, Memory.open(through, prepare=False) as other:
        with memory.sessions.lock("s") as lock:
            assert not free_in_thread(other, "s")
            for number in range(20):  # the lock's own server session serves nobody else meanwhile
                other.tapes.append("pooled", [{"n": number}])
            assert not lock.must_stop
        assert free_in_thread(other, "s")
        assert other.tapes.length("pooled") == 20


def test_a_killed_holder_lets_go(through: str) -> None:  # noqa: F811
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, through], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    with Memory.open(through, prepare=False) as memory, memory.sessions.lock("killed", timeout_s=5):
        pass


def test_the_servers_end_is_noticed(through: str) -> None:  # noqa: F811
    with (
        Memory.open(through, prepare=False) as memory,
        pytest.raises(LeaseLost),
        memory.sessions.lock("ended") as lock,
    ):
        with psycopg.connect(through, prepare_threshold=None) as connection:
            connection.execute("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
        until(lambda: lock.must_stop)


def test_a_lease_needs_no_session(through: str) -> None:  # noqa: F811
    with Memory.open(through, prepare=False) as memory, memory.leases.hold("pooled", "a", lease_s=30) as held:
        with memory.transaction() as tx:
            tx.leases.check(held.lease)
            tx.tapes.append("guarded", [{"n": 1}])
        assert memory.leases.renew(held.lease).token == held.token

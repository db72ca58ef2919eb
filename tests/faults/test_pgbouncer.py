"""A transaction-pooling PgBouncer in between: no prepared statements, no session state, the same answers."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from own_process import free_ports, private_folder, spawn
from pg_server import running, server_user

from crowmem import AsyncMemory, Memory
from crowmem.errors import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed (Debian's package pgbouncer)"),
]

CONFIG = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
unix_socket_dir =
"""


@pytest.fixture(scope="module")
def through() -> Iterator[str]:
    """The URL of a store behind a PgBouncer that shares two server connections among everybody."""
    who = server_user()
    with running(tcp=True) as server, private_folder("crowbouncer-", who=who) as folder:
        [port] = free_ports(1)
        (folder / "ini").write_text(
            CONFIG.format(host=server.host, port=server.port, listen=port, folder=folder), "utf-8"
        )
        (folder / "users").write_text('"postgres" ""\n', "utf-8")
        for name in ("ini", "users"):
            (folder / name).chmod(0o644)
        log = folder / "log"
        process = spawn(
            [str(PGBOUNCER), str(folder / "ini")], folder=folder, log=log, env={"PATH": os.defpath}, who=who
        )
        try:
            url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            wait_until_up(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait()


def wait_until_up(url: str, process: Any, log: Path) -> None:
    while process.poll() is None:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            continue
        return
    raise RuntimeError(log.read_text("utf-8"))


@pytest.mark.parametrize("schema", ["public", "tenant-1"])
def test_everything_works_from_many_threads(through: str, schema: str) -> None:
    with Memory.open(through, prepare=False, schema=schema, pool_size=8) as memory:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                session = f"{schema}{number}"
                agent = memory.agents.create(f"{session}-1-1", session)
                for step in range(20):
                    memory.messages.add(agent.agent_id, {"role": "user", "content": f"word{number} step {step}"})
                with memory.transaction() as tx:
                    tx.messages.add(agent.agent_id, {"n": "in a transaction"})
                    tx.mailbox.send(session, "mail")
                assert len(memory.messages.load(agent.agent_id)) == 21
                assert len(memory.search.messages(f"word{number}", limit=50)) == 20
                assert [one.content for one in memory.mailbox.claim(session)] == ["mail"]
                assert memory.agents.fork(agent.agent_id).fork_idx == 2
            except BaseException as error:  # kept for the assertion
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(memory.messages.follow(0, limit=1000)) == 8 * 21
    with psycopg.connect(through, prepare_threshold=None) as connection:
        assert connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


def test_a_read_only_store_stays_so(through: str) -> None:
    with Memory.open(through, prepare=False) as memory:
        memory.messages.add("ro-1-1", {"n": 1})
    with Memory.open(through, prepare=False, read_only=True) as reader:
        assert reader.messages.load("ro-1-1") == [{"n": 1}]
        with pytest.raises(ReadOnly):
            reader.messages.add("ro-1-1", {"n": 2})
        with pytest.raises(ReadOnly), reader.transaction() as tx:
            tx.messages.add("ro-1-1", {"n": 3})
    with Memory.open(through, prepare=False) as memory:  # the session that was read-only is nobody else's
        memory.messages.add("ro-1-1", {"n": 4})
        assert memory.messages.load("ro-1-1") == [{"n": 1}, {"n": 4}]


def test_waiting_and_leasing_need_no_session(through: str) -> None:
    async def main() -> None:
        async with AsyncMemory.open(through, prepare=False, pool_size=4) as memory:
            waiting = asyncio.create_task(memory.mailbox.wait("bounced", timeout_s=30))
            await memory.mailbox.send("bounced", "hello")
            assert await waiting
            [leased] = await memory.mailbox.lease("bounced", "worker")
            await memory.mailbox.ack(leased)
            assert await memory.mailbox.claim("bounced") == []

    asyncio.run(main())

"""A holder on another machine whose network is gone: it knows that its lock is lost before somebody else can have it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pg_server import running

from crowmem import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pg_server import OwnServer

ROOT = Path(__file__).resolve().parents[2]
HERE, THERE = "10.203.77.1", "10.203.77.2"
HOLDER = """
import sys, time
from crowmem import Memory
memory = Memory.open(sys.argv[1])
lock = memory.sessions.lock("s")
lock.__enter__()
print("held", flush=True)
while not lock.must_stop:
    time.sleep(0.01)
print(time.monotonic(), flush=True)
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def link_of(machine: str) -> str:
    """Its end of the wire."""
    return machine.replace("crow", "cf")[:15]


@pytest.fixture
def other_machine() -> Iterator[str]:
    """A network namespace with one link to this one; its name."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and iproute2")
    name, near = f"crow{os.getpid()}", f"cn{os.getpid()}"[:15]
    far = link_of(name)
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no network namespace: {error.stderr.decode().strip()}")
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        ip("addr", "add", f"{HERE}/24", "dev", near)
        ip("-n", name, "addr", "add", f"{THERE}/24", "dev", far)
        ip("link", "set", near, "up")
        ip("-n", name, "link", "set", far, "up")
        yield name
    finally:
        ip("netns", "del", name)
        with contextlib.suppress(subprocess.CalledProcessError):  # it goes with its other end
            ip("link", "del", near)


@contextlib.contextmanager
def listening() -> Iterator[OwnServer]:
    """A server that the other machine can reach."""
    with running() as server:
        with (server.folder / "data" / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write(f"host all all {THERE}/32 trust\n")
        server.settings = {**server.settings, "listen_addresses": HERE}
        server.restart()
        yield server


@pytest.mark.slow
@pytest.mark.postgres
def test_a_holder_that_is_cut_off_knows_before_its_lock_is_free(other_machine: str) -> None:
    with listening() as server, Memory.open(server.url()) as memory:
        command = ["ip", "netns", "exec", other_machine, sys.executable, "-c", HOLDER, server.url(host=HERE)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
            try:
                assert holder.stdout is not None
                assert holder.stdout.readline() == "held\n"
                ip("-n", other_machine, "link", "set", link_of(other_machine), "down")
                began = time.monotonic()
                with memory.sessions.lock("s"):
                    freed = time.monotonic()
                stopped = float(holder.stdout.readline())
            finally:
                holder.kill()
        assert began < stopped < freed, f"stopped after {stopped - began:.1f} s, freed after {freed - began:.1f} s"
        print(f"stopped after {stopped - began:.1f} s, freed after {freed - began:.1f} s")

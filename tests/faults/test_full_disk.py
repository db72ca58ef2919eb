"""A disk that is full: one typed error, nothing acknowledged lost, and work goes on when there is room again."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import psycopg
import pytest
from pg_server import running
from psycopg.sql import SQL, Literal

from crowmem import Memory
from crowmem.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system in memory; skips where none may be mounted."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    with mounted(tmp_path / "small", "size=4m") as folder:
        yield folder


def fill(memory: Memory) -> list[int]:
    """Add until the store is full; the numbers that were acknowledged."""
    done: list[int] = []
    with pytest.raises(StoreFull, match=r"room|full|space"):
        for number in range(100_000):
            memory.messages.add("s-1-1", {"role": "user", "content": f"word{number} " + "x" * 2000, "n": number})
            done.append(number)
    return done


def test_a_full_disk_and_room_again(small: Path, tally: Callable[..., None]) -> None:
    ballast = small / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    with Memory.open(small / "crow.db") as memory:
        done = fill(memory)
        assert [message["n"] for message in memory.messages.load("s-1-1")] == done
        with pytest.raises(StoreFull):
            memory.messages.add_many("s-1-1", [{"n": -1, "content": "y" * 2000}] * 500)
        ballast.unlink()
        memory.messages.add("s-1-1", {"role": "user", "content": "room again", "n": -2})
        assert [message["n"] for message in memory.messages.load("s-1-1")] == [*done, -2]
        assert memory.check(deep=True) == []
        assert len(memory.search.messages("room again")) == 1
    tally(full=1, acknowledged=len(done), lost=0)


def test_a_full_database_and_room_again(tally: Callable[..., None], sound: Callable[[Memory], None]) -> None:
    """PostgreSQL's tables on a small file system, its log on another: a full log would end the server."""
    with running() as server:
        who = server.runs_as
        owner = f",uid={who.pw_uid},gid={who.pw_gid}" if who else ""
        with mounted(server.folder / "small", f"size=24m,mode=700{owner}") as folder:
            ballast = folder / "ballast"
            place = folder / "tables"
            place.mkdir(mode=0o700)
            if who:
                os.chown(place, who.pw_uid, who.pw_gid)
            with psycopg.connect(server.url(), autocommit=True) as admin:
                admin.execute(SQL("create tablespace small location {}").format(Literal(str(place))))
                admin.execute("create database small tablespace small")
            with Memory.open(server.url("small")) as memory:
                ballast.write_bytes(b"x" * 4_000_000)
                done = fill(memory)
                assert [message["n"] for message in memory.messages.load("s-1-1")] == done
                with pytest.raises(StoreFull):
                    memory.messages.add_many("s-1-1", [{"n": -1, "content": "y" * 2000}] * 5000)
                ballast.unlink()
                memory.messages.add("s-1-1", {"role": "user", "content": "room again", "n": -2})
                assert [message["n"] for message in memory.messages.load("s-1-1")] == [*done, -2]
                sound(memory)
            server.stop()
    tally(full=1, acknowledged=len(done), lost=0)


def test_a_store_with_a_page_limit(tmp_path: Path) -> None:
    """As a full disk, where nobody may mount one."""
    with Memory.open(tmp_path / "crow.db") as memory:
        with memory._driver.file.writing() as connection:  # type: ignore[attr-defined]
            pages = int(connection.pragma("page_count"))
            connection.pragma("max_page_count", pages + 200)
        done = fill(memory)
        assert len(done) > 20
        assert [message["n"] for message in memory.messages.load("s-1-1")] == done
        with memory._driver.file.writing() as connection:  # type: ignore[attr-defined]
            connection.pragma("max_page_count", 1 << 30)
        memory.messages.add("s-1-1", {"n": -2})
        assert [message["n"] for message in memory.messages.load("s-1-1")] == [*done, -2]
        assert memory.check(deep=True) == []

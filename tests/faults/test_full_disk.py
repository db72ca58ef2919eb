"""A disk that is full: one typed error, nothing acknowledged lost, and work goes on when there is room again."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from crowmem import Memory
from crowmem.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(memory: Memory) -> list[int]:
    """Add until the store is full; the numbers that were acknowledged."""
    done: list[int] = []
    with pytest.raises(StoreFull, match=r"room|full"):
        for number in range(100_000):
            memory.messages.add("s-1-1", {"role": "user", "content": f"word{number} " + "x" * 2000, "n": number})
            done.append(number)
    return done


def test_a_full_disk_and_room_again(small: Path) -> None:
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

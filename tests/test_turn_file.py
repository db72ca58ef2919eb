"""The line of writers of several processes: who has it may keep it for a moment, and never for longer."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

import pytest

from crowmem.drivers.turn_file import TurnFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[tuple[TurnFile, TurnFile]]:
    """Two descriptors of one file, which are strangers to each other as two processes are; the second one waited for
    the first, so it believes that others wait."""
    path = str(tmp_path / "crow.db")
    mine, other = TurnFile(path), TurnFile(path)
    assert mine.acquire(1)
    waiting = threading.Thread(target=other.acquire, args=(60,))
    waiting.start()
    while other._helper is None:
        continue
    mine.release()
    waiting.join()
    other._crowded_until = math.inf
    yield mine, other
    mine.close()
    other.close()


def test_a_process_that_kept_its_turn_gives_it_back_when_it_is_idle(strangers: tuple[TurnFile, TurnFile]) -> None:
    mine, other = strangers
    for _ in range(3):
        other._comes_back, other._since, other._kept_s = True, time.monotonic(), 0.05
        other.release()
        assert other._keeper is not None
        assert other._keeper._kept
        assert mine.acquire(60)
        assert not other._keeper._kept
        mine.release()
        assert other.acquire(60)
        other.release()
        assert other.acquire(60)  # taken back, or taken again
    other.release()


def test_a_process_that_stayed_away_after_its_last_write_keeps_nothing(strangers: tuple[TurnFile, TurnFile]) -> None:
    mine, other = strangers
    other.release()
    assert mine.acquire(0)
    mine.release()
    other._released = -math.inf
    assert other.acquire(0)
    other._kept_s = 3600.0  # but for its absence it would keep it for ever
    other.release()
    assert mine.acquire(0)
    mine.release()
    other._released = math.inf  # it came back at once
    assert other.acquire(0)
    other.release()
    assert not mine.acquire(0)
    assert other.acquire(0)
    other._kept_s = 0.0
    other.release()
    assert mine.acquire(60)


def test_whoever_ends_while_it_keeps_its_turn_leaves_it_to_others(strangers: tuple[TurnFile, TurnFile]) -> None:
    mine, other = strangers
    other._comes_back, other._kept_s = True, 3600.0
    other.release()
    assert not mine.acquire(0)
    other.close()
    assert mine.acquire(60)


def test_nobody_is_left_waiting_when_the_helper_ends(strangers: tuple[TurnFile, TurnFile]) -> None:
    mine, other = strangers
    before = threading.active_count()
    assert not mine.acquire(0.01)  # its thread goes on waiting
    assert threading.active_count() == before + 1
    mine.close()
    other.release()
    while threading.active_count() > before:
        time.sleep(0.0005)
    assert other.acquire(0)

"""Ctrl-C in the middle of long searches: the program goes on with the same store, and nothing is left behind."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crowmem import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SEARCHER = """
import signal, sys
from crowmem import Memory
memory = Memory.open(sys.argv[1])
for turn in range(int(sys.argv[2])):
    try:
        print("searching", flush=True)
        memory.search.messages("word1 word2 OR word3 word4* OR other*", limit=200)
        signal.pause()  # it was quicker than the signal
    except KeyboardInterrupt:
        pass
    memory.messages.add("turns-1-1", {"role": "user", "content": f"turn{turn}"})
    assert len(memory.search.messages(f"turn{turn}")) == 1
print("done", flush=True)
"""


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("turns", [pytest.param(8, id="short"), pytest.param(60, id="long", marks=pytest.mark.slow)])
def test_ctrl_c_in_a_long_search(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    dialect: str,
    turns: int,
    tally: Callable[..., None],
    sound: Callable[[Memory], None],
) -> None:
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    chance = random.Random(4)
    words = [f"word{number}" for number in range(50)] + [f"other{number}" for number in range(500)]
    with Memory.open(url) as memory:
        for session in range(8):
            texts = [" ".join(chance.choices(words, k=40)) for _ in range(500)]
            memory.messages.add_many(f"s{session}-1-1", [{"role": "user", "content": text} for text in texts])
        with subprocess.Popen(
            [sys.executable, "-c", SEARCHER, url, str(turns)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as searcher:
            assert searcher.stdout is not None
            while searcher.stdout.readline() == "searching\n":
                threading.Event().wait(random.random() * 0.05)
                searcher.send_signal(signal.SIGINT)
            _, errors = searcher.communicate()
            assert searcher.returncode == 0, errors
            assert "Traceback" not in errors  # psycopg's pool may log that it threw a connection away
        stored = [message["content"] for message in memory.messages.load("turns-1-1")]
        lost = turns - len(stored)
        tally(interrupts=turns, acknowledged=len(stored), lost=lost)
        assert stored == [f"turn{turn}" for turn in range(turns)]
        sound(memory)

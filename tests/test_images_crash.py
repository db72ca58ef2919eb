"""kill -9 at random moments of a loop that adds messages with images: nothing acknowledged is lost, nothing named is missing."""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pictures import picture, png

from crowmem import Memory
from crowmem.blobs import MinioStore

WRITER = """
import sys
sys.path[:0] = {paths!r}
from pictures import picture, png
from crowmem import Memory
from crowmem.blobs import FileStore, MinioStore
with Memory.open({url!r}, images={images}) as memory:
    for number in range(1_000_000):
        memory.messages.add({agent!r}, picture(png({start} + number % 7, 30_000), str(number)))
        print(number, flush=True)
        if number % 5 == 4:
            memory.images.put(png(number))
            memory.images.collect(grace_s=0)
"""


def crash(url: str, images: str, opened, rounds: int) -> None:
    """Start a writer, kill it, look; every round has an agent of its own."""
    chance = random.Random(rounds)
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    total = 0
    with opened() as memory:
        for turn in range(rounds):
            agent = f"s{turn}-1-1"
            code = WRITER.format(paths=paths, url=url, images=images, agent=agent, start=turn % 3)
            with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
                assert writer.stdout is not None
                seen = [writer.stdout.readline()]
                time.sleep(chance.uniform(0, 0.25))  # the moment is what the test is about
                writer.kill()
                seen += writer.stdout.readlines()
            acknowledged = sum(line.endswith("\n") for line in seen)
            expected = [picture(png(turn % 3 + number % 7, 30_000), str(number)) for number in range(acknowledged + 1)]
            stored = memory.messages.load(agent, hydrate=True)
            assert len(stored) in (acknowledged, acknowledged + 1), f"round {turn}"
            assert stored == expected[: len(stored)], f"round {turn}"
            total += acknowledged
        assert total >= rounds
        assert memory.check(deep=True) == []


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


ROUNDS = [pytest.param(5, id="5"), pytest.param(200, id="200", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_kill_with_a_folder(url, tmp_path, rounds):
    folder = tmp_path / "images"
    crash(url, f"FileStore({str(folder)!r})", lambda: Memory.open(url, images=folder), rounds)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_kill_with_a_bucket(url, s3_base, rounds):
    settings = (s3_base.endpoint, f"b-{secrets.token_hex(8)}", s3_base.access_key, s3_base.secret_key)
    crash(url, f"MinioStore(*{settings!r})", lambda: Memory.open(url, images=MinioStore(*settings)), rounds)

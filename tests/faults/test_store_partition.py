"""Writers on another machine whose network goes and comes: nothing acknowledged is lost, and they go on by themselves."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_locks_partition import HERE, ip, link_of, listening, other_machine  # noqa: F401  # fixtures too

from crowmem import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import json, sys
sys.path[:0] = ["tests", "tests/faults"]
from crowmem import Memory
from test_wire import Writers
with Memory.open(sys.argv[1]) as memory:
    writers = Writers(memory, "net")
    for line in sys.stdin:
        writers.wait_for(20)
        print("going", flush=True)
    writers.stop()
    print(json.dumps([sorted(writers.known), sorted(writers.unknown)]))
"""


@pytest.mark.postgres
@pytest.mark.parametrize(
    "lengths_s", [pytest.param([0.2], id="short"), pytest.param([0.1, 1, 6] * 4, id="long", marks=pytest.mark.slow)]
)
def test_writers_behind_a_link_that_is_cut(
    other_machine: str,  # noqa: F811
    lengths_s: list[float],
    tally: Callable[..., None],
    sound: Callable[[Memory], None],
) -> None:
    with listening() as server, Memory.open(server.url()) as memory:
        command = ["ip", "netns", "exec", other_machine, sys.executable, "-c", CODE, server.url(host=HERE)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writers:
            assert writers.stdin is not None
            assert writers.stdout is not None

            def wait_until_going() -> None:
                writers.stdin.write("go\n")  # type: ignore[union-attr]
                writers.stdin.flush()  # type: ignore[union-attr]
                assert writers.stdout.readline() == "going\n"  # type: ignore[union-attr]

            for length_s in lengths_s:
                wait_until_going()
                ip("-n", other_machine, "link", "set", link_of(other_machine), "down")
                threading.Event().wait(length_s)
                ip("-n", other_machine, "link", "set", link_of(other_machine), "up")
            wait_until_going()
            out, _ = writers.communicate()
        known, unknown = map(set, json.loads(out))
        stored = [one["content"] for number in range(4) for one in memory.messages.load(f"netn{number}-1-1")]
        lost, doubled = len(known - set(stored)), len(stored) - len(set(stored))
        tally(cuts=len(lengths_s), acknowledged=len(known), unknown=len(unknown), lost=lost, doubled=doubled)
        assert (lost, doubled) == (0, 0)
        assert set(stored) - known <= unknown
        sound(memory)

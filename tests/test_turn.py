"""The line of writers of one process: in order of arrival, a moment at a time."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from crowmem.drivers import turn as module
from crowmem.drivers.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_S = 3600.0


def until(true: Callable[[], object]) -> None:
    while not true():
        time.sleep(0.0005)


class Waiter(threading.Thread):
    """Waits for the turn, notes when it has it, and lets go of it when told to."""

    def __init__(self, turn: Turn, name: str, order: list[str], timeout_s: float = HOUR_S) -> None:
        super().__init__(name=name)
        self.turn, self.order, self.timeout_s = turn, order, timeout_s
        self.go_on = threading.Event()
        self.got: bool | None = None
        before = len(turn._waiting)
        self.start()
        until(lambda: len(turn._waiting) > before or self.got is not None)

    def run(self) -> None:
        if self.turn.hold(self.timeout_s):
            self.got = True
            self.order.append(self.name)
            self.go_on.wait()
            self.turn.let_go()
        else:
            self.got = False


@pytest.fixture
def turn() -> Turn:
    return Turn()


def test_in_order_of_arrival(turn: Turn) -> None:
    order: list[str] = []
    assert turn.hold(0)
    assert turn.held
    line = [Waiter(turn, name, order) for name in "abc"]
    for one in line:
        one.go_on.set()
    turn.let_go()
    assert not turn.held
    for one in line:
        one.join()
    assert order == ["a", "b", "c"]
    assert turn.hold(0)


def test_who_has_it_for_a_moment_comes_back_before_those_who_wait(turn: Turn) -> None:
    assert turn.hold(0)
    first = Waiter(turn, "a", [])
    turn._until = time.monotonic() + HOUR_S
    for _ in range(3):
        turn.let_go()
        late = Waiter(turn, "late", [], timeout_s=0)
        late.join()
        assert late.got is False  # it is kept for this thread
        assert turn.hold(0)
    assert first.got is None
    turn._until = 0.0
    turn.let_go()
    until(lambda: first.got)
    assert not turn.hold(0)
    first.go_on.set()
    first.join()
    assert turn.hold(0)


def test_who_does_not_come_back_loses_it_and_is_not_waited_for_again(turn: Turn) -> None:
    assert turn.hold(0)
    order: list[str] = []
    line = [Waiter(turn, name, order) for name in "ab"]
    turn._until = time.monotonic() + 0.02
    turn.let_go()
    until(lambda: line[0].got)
    assert time.monotonic() < turn._rest_until <= time.monotonic() + module.REST_S
    turn._until = turn._rest_until = time.monotonic() + HOUR_S
    line[0].go_on.set()
    until(lambda: line[1].got)
    line[1].go_on.set()
    for one in line:
        one.join()
    assert order == ["a", "b"]


def test_the_next_in_line_looks_when_the_first_is_stopped(turn: Turn) -> None:
    assert turn.hold(0)
    stopped = module._Gate()
    turn._waiting.append(stopped)
    second = Waiter(turn, "b", [])
    turn._until = time.monotonic() + 0.02
    turn.let_go()
    assert turn._leave(stopped)
    until(lambda: second.got)
    second.go_on.set()
    second.join()


def test_whose_time_runs_out_takes_what_is_only_kept(turn: Turn) -> None:
    assert turn.hold(0)
    first = Waiter(turn, "a", [], timeout_s=0.01)
    turn._until = time.monotonic() + HOUR_S
    turn.let_go()
    until(lambda: first.got)
    first.go_on.set()
    first.join()


def test_time_runs_out(turn: Turn) -> None:
    assert turn.hold(0)
    for timeout_s in (0.0, -1.0, 0.01):
        late = Waiter(turn, "a", [], timeout_s)
        late.join()
        assert late.got is False
    assert not turn._waiting
    turn.let_go()
    assert turn.hold(0)


@pytest.mark.parametrize("seed", range(4))
def test_never_two_and_never_forgotten(turn: Turn, seed: int) -> None:
    inside: list[int] = []
    done: list[int] = []
    chance = random.Random(seed)
    naps = [[chance.choice((0.0, 0.0, 0.0, 0.0001, 0.0003, 0.002)) for _ in range(150)] for _ in range(6)]

    def work(number: int) -> None:
        for nap in naps[number]:
            if not turn.hold(HOUR_S if number else 0.001):
                continue
            inside.append(number)
            assert inside == [number]
            if nap == 0.0001:
                time.sleep(nap)
            inside.remove(number)
            turn.let_go()
            if nap:
                time.sleep(nap)
        done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3, 4, 5]
    assert turn.hold(0)

"""Races of which exactly one call may win, many times each."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from crowmem import Memory
from crowmem.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from queues import Place


def run(place: Place, count: int) -> dict[str, int]:
    """How many races of each kind had not exactly one winner."""
    with Memory.open(place.url, durability="normal") as one, Memory.open(place.url, durability="normal") as two:
        wrong = dict.fromkeys(("finish/finish", "finish/cancel", "reopen/reopen", "lease/expiry/ack"), 0)
        for number in range(count):
            first, second = f"race-a-{number}", f"race-b-{number}"
            one.tasks.launch(first, f"owner{number}")
            one.tasks.launch(second, f"owner{number}")
            won = _race(lambda t=first: one.tasks.finish(t), lambda t=first: two.tasks.finish(t))
            wrong["finish/finish"] += sum(won) != 1
            won = _race(lambda t=second: one.tasks.finish(t), lambda t=second: two.tasks.cancel(t))
            mail = len(one.mailbox.pending(f"owner{number}"))
            wrong["finish/cancel"] += sum(won) != 1 or mail != 1 + won[0]
            won = _race(lambda t=first: one.tasks.reopen(t), lambda t=first: two.tasks.reopen(t))
            wrong["reopen/reopen"] += sum(won) != 1
            wrong["lease/expiry/ack"] += not _lease_race(one, two, f"race-{number}")
    return wrong


def _lease_race(one: Memory, two: Memory, box: str) -> bool:
    """A lease of 1 ms ends while its holder acknowledges and another leases: one of them has the item."""
    sent = one.mailbox.send(box, "x")
    [held] = one.mailbox.lease(box, "A", lease_s=0.001)
    acked, taken = _race(lambda: one.mailbox.ack(held), lambda: two.mailbox.lease(box, "B"))
    lost = isinstance(acked, LeaseLost)
    if acked is not None and not lost:
        raise acked
    if lost and not taken:  # it ended, and was given back but not yet taken
        taken = two.mailbox.lease(box, "B")
    good = lost == bool(taken) and (not taken or (taken[0].id == sent.id and taken[0].token > held.token))
    if not good:
        print(f"{box}: acked {acked!r}, taken {taken}, now {one.mailbox.get(sent.id)}", file=sys.stderr)
    return good


def _race(*calls: Callable[[], Any]) -> list[Any]:
    barrier = threading.Barrier(len(calls))
    found: list[Any] = [None] * len(calls)

    def go(place: int, call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            found[place] = call()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=go, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found

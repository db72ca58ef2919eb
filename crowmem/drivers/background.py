"""Work beside the caller's: a thread under plain calls, a task under an event loop; and the clock such work goes by."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    Step = Callable[[], Coroutine[Any, Any, float | None]]

MOMENT_S = 1.0  # a step that hangs on a dead wire must not hold up whoever is done
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_s() -> float:
    """Seconds on a clock that nobody sets and that runs on while the machine sleeps, where there is one."""
    return time.clock_gettime(_CLOCK)


class Background(Protocol):
    """A step that is taken again and again."""

    async def stop(self) -> None:
        """Take no further step, and give one that is being taken a moment to end."""


async def start(step: Step, first_s: float, *, blocking: bool, name: str) -> Background:
    """Take a step after ``first_s`` seconds, and again after as many as it returns, until it returns None.

    Args:
        step: a coroutine function over the driver; it raises nothing.
        first_s: seconds until the first step.
        blocking: whether its driver is a blocking one, whose coroutines end in one go.
        name: of the thread or task.
    """
    return _Thread(step, first_s, name) if blocking else _Task(step, first_s, name)


class _Thread:
    def __init__(self, step: Step, first_s: float, name: str) -> None:
        self._step = step
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(first_s,), name=name, daemon=True)
        self._thread.start()

    def _run(self, pause_s: float | None) -> None:
        while pause_s is not None and not self._stopped.wait(pause_s):
            step = self._step()
            try:
                step.send(None)
            except StopIteration as stop:
                pause_s = stop.value

    async def stop(self) -> None:
        self._stopped.set()
        self._thread.join(MOMENT_S)


class _Task:
    def __init__(self, step: Step, first_s: float, name: str) -> None:
        import asyncio

        self._step = step
        self._task: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run(first_s), name=name)

    async def _run(self, pause_s: float | None) -> None:
        import asyncio

        while pause_s is not None:
            await asyncio.sleep(pause_s)
            pause_s = await self._step()

    async def stop(self) -> None:
        import asyncio

        self._task.cancel()
        await asyncio.wait({self._task})  # awaiting the task itself would mistake our own cancellation for its
        if not self._task.cancelled():
            self._task.result()

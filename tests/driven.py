"""An async store used with plain calls, so that one test body serves both colours."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator


class Driven:
    """Wraps an AsyncMemory (or a part of it): calls run on the runner's loop until they have their result."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if inspect.iscoroutinefunction(value) or callable(value):
            return lambda *args, **kwargs: self._call(value, args, kwargs)
        plain = (str, int, float, bool, bytes, list, dict, tuple, type(None))
        return value if isinstance(value, plain) else Driven(value, self._runner)

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = function(*args, **kwargs)
        if hasattr(found, "__aenter__"):
            return self._block(found)
        return self._runner.run(_result(found)) if inspect.isawaitable(found) else found

    @contextlib.contextmanager
    def _block(self, manager: Any) -> Iterator[Any]:
        inner = self._runner.run(_result(manager.__aenter__()))
        try:
            yield Driven(inner, self._runner) if hasattr(inner, "_driver") else inner
        except BaseException as error:
            if not self._runner.run(_result(manager.__aexit__(type(error), error, error.__traceback__))):
                raise
        else:
            self._runner.run(_result(manager.__aexit__(None, None, None)))


async def _result(awaitable: Any) -> Any:
    return await awaitable

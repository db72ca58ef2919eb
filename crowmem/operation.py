"""One coroutine, two colours.

Every operation is written once, as ``async def``. A blocking driver never suspends, so a coroutine over it runs to
its end in a single step: `drive` takes that step and returns the result. Over an asyncio driver the same coroutine is
handed to the caller, who awaits it. `operation` picks the way by the repository it is called on and is typed for
both.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from crowmem.drivers import Driver
    from crowmem.statement import Statement
    from crowmem.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class Sync:
    """Marks a repository whose operations return values."""


class Async:
    """Marks a repository whose operations return awaitables."""


M = TypeVar("M", Sync, Async)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result.

    Raises:
        RuntimeError: it suspended, so some driver under it is not a blocking one.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # StopIteration.value is untyped
    coroutine.close()
    raise RuntimeError("a blocking driver suspended")


class Repository(Generic[M]):
    """A group of operations over one driver."""

    def __init__(self, driver: Driver, store: Store, *, blocking: bool) -> None:
        self._driver = driver
        self._store = store
        self._blocking = blocking

    async def _many(self, statement: Statement, /, **params: Any) -> list[Any]:
        """The rows of a statement: records when it is bound to one, tuples otherwise."""
        return await self._driver.run(statement, params)

    async def _one(self, statement: Statement, /, **params: Any) -> Any:
        """The first row, or None."""
        rows = await self._driver.run(statement, params)
        return rows[0] if rows else None

    async def _value(self, statement: Statement, /, **params: Any) -> Any:
        """The first column of the first row, or None."""
        rows = await self._driver.run(statement, params)
        return rows[0][0] if rows else None


class operation(Generic[P, T]):
    """Make an ``async def`` method callable in both colours."""

    def __init__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # an object stands in for the function
        self._name = function.__name__

    @overload
    def __get__(self, instance: None, owner: Any = None) -> operation[P, T]: ...
    @overload
    def __get__(self, instance: Repository[Sync], owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Repository[Async], owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind to a repository."""
        if instance is None:
            return self
        call = self._blocking(instance) if instance._blocking else functools.partial(self._function, instance)
        instance.__dict__[self._name] = call  # found first from now on: binding costs more than a call
        return call

    def _blocking(self, instance: Any) -> Callable[P, T]:
        function = self._function

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return drive(function(instance, *args, **kwargs))

        return call

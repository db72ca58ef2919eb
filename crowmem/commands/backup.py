"""``crowmem backup``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from crowmem.commands import opened
from crowmem.commands.output import counted, put_json, put_line
from crowmem.terminal import one_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to."""
    parser.add_argument("path", metavar="PATH", help="the file to write; must not exist")


def run(args: argparse.Namespace) -> None:
    """Copy a SQLite store, consistent while others write; only its owner may read the copy."""
    with opened(args) as memory:
        memory.backup(args.path)
    size = Path(args.path).expanduser().stat().st_size
    if args.json:
        put_json({"path": args.path, "bytes": size})
    else:
        put_line(f"{one_line(args.path)}: {counted(size, 'bytes')}")

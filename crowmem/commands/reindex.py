"""``crowmem reindex``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import opened
from crowmem.commands.output import counted, put_json, put_line
from crowmem.progress import Progress

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the new index holds."""
    parser.add_argument("--stem", choices=("on", "off"), help="index word stems, or whole words (default: as it is)")


def run(args: argparse.Namespace) -> None:
    """Build the search index again from the messages."""
    with opened(args, write=True) as memory:
        stem = None if args.stem is None else args.stem == "on"
        with Progress("indexing") as bar:
            count = memory.search.reindex(stem=stem, progress=bar.show)
    if args.json:
        put_json({"messages": count})
    else:
        put_line(counted(count, "messages", "indexed"))

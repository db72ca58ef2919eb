"""``crowmem gc``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import opened
from crowmem.commands.options import duration
from crowmem.commands.output import counted, put_json, put_line

if TYPE_CHECKING:
    import argparse

GRACE = "1d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How old."""
    parser.add_argument(
        "--grace",
        type=duration,
        default=GRACE,
        metavar="TIME",
        help=f"keep images put within this time, such as 90s, 30m, 12h, 7d (default {GRACE})",
    )


def run(args: argparse.Namespace) -> None:
    """Remove images that no message names, and finish what the search index leaves for later."""
    with opened(args, write=True) as memory:
        memory.search.optimize()  # first, since images that several stores share are not removed
        removed = memory.images.collect(grace_s=args.grace)
    if args.json:
        put_json({"removed": removed})
    else:
        put_line(counted(removed, "images", "removed"))

"""``crowmem check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import FAILED, OK, opened
from crowmem.commands.output import put_json, put_line, put_note
from crowmem.terminal import one_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How thoroughly."""
    parser.add_argument("--deep", action="store_true", help="read everything; takes as long as that takes")


def run(args: argparse.Namespace) -> int:
    """Print the problems of the store, one a line; exit code 1 when there are any."""
    with opened(args) as memory:
        problems = memory.check(args.deep)
    for problem in problems:
        if args.json:
            put_json({"problem": problem})
        else:
            put_line(one_line(problem))
    if not problems:
        put_note("no problems found")
    return FAILED if problems else OK

"""``crowmem init``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from crowmem.commands import UsageError
from crowmem.commands.options import add_yes, asked
from crowmem.commands.output import put_json, put_line, put_note
from crowmem.terminal import one_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where, and the answers to what it would ask."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="default ~/.agents/crow")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="where messages are kept (default sqlite)")
    parser.add_argument("--images", choices=("folder", "s3"), help="where images are kept (default folder)")
    parser.add_argument("--force", action="store_true", help="replace a config.yaml and compose.yaml that are there")
    add_yes(parser)


def run(args: argparse.Namespace) -> None:
    """Write config.yaml, .env with random passwords, and compose.yaml with servers for those who want them."""
    from crowmem.config import HOME
    from crowmem.setup import Answers, ask, init

    folder = HOME if args.folder is None else args.folder
    if args.yes or args.store or args.images:
        answers = Answers(args.store or "sqlite", args.images or "folder")
    elif sys.stdin.isatty():
        answers = ask(folder, asked)
    else:
        raise UsageError("nobody is here to answer its questions: give --yes for SQLite and a folder")
    done = init(folder, answers=answers, force=args.force)
    if args.json:
        put_json(done)
        return
    for name, what in done.items():
        put_line(f"{what:<9}  {one_line(folder)}/{name}")
    if "kept" in done.values():
        put_note("what was kept can be replaced with --force; .env never is, since the servers' data answers to it")

"""``crowmem images``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import add_action, add_actions, opened
from crowmem.commands.output import counted, put_json, put_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do with them."""
    actions = add_actions(parser)
    add_action(actions, "sync", "upload the images that wait in the folder since the bucket was away", sync)


def run(args: argparse.Namespace) -> int | None:
    """Do what was asked with images."""
    code: int | None = args.action(args)
    return code


def sync(args: argparse.Namespace) -> None:
    """Upload what waits."""
    with opened(args, write=True) as memory:
        uploaded = memory.images.sync()
    if args.json:
        put_json({"uploaded": uploaded})
    else:
        put_line(counted(uploaded, "images", "uploaded"))

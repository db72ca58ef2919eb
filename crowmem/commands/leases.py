"""``crowmem leases``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands import opened
from crowmem.commands.options import add_limit
from crowmem.commands.output import local_time, put_records
from crowmem.leasing import LOCK

if TYPE_CHECKING:
    import argparse

    from crowmem.records import Lease

TITLES = ("NAME", "OWNER", "TOKEN", "UNTIL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which leases."""
    add_limit(parser, 1000, "leases")


def run(args: argparse.Namespace) -> None:
    """List the leases that somebody has now; on SQLite also the locks on sessions."""
    with opened(args) as memory:
        found = memory.leases.list(limit=args.limit, offset=args.offset)
    put_records(args, found, TITLES, _cells, empty="no leases")


def _cells(lease: Lease) -> tuple[str | int, ...]:
    name = lease.name
    shown = f"session {name.removeprefix(LOCK)} (locked)" if name.startswith(LOCK) else name
    return shown, lease.owner, lease.token, local_time(lease.expires_at)

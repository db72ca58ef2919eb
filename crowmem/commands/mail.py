"""``crowmem mail``: the durable mailbox from a shell."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from crowmem.commands import FAILED, OK, UsageError, add_action, add_actions, opened
from crowmem.commands.options import duration, whole
from crowmem.commands.output import local_time, put_json, put_line, put_note, put_records
from crowmem.errors import NotFound
from crowmem.terminal import clean, one_line

if TYPE_CHECKING:
    import argparse

    from crowmem.records import Delivery, LeasedDelivery

MOST = 100_000
IDS = 2**63 - 1
DAY_S = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do with mail."""
    actions = add_actions(parser)
    sending = add_action(actions, "send", "put items into a mailbox", send)
    sending.add_argument("address", metavar="ADDRESS", help="which mailbox: any text, such as a session")
    sending.add_argument("contents", nargs="+", metavar="CONTENT", help="the items' texts; - reads one from stdin")
    sending.add_argument("--priority", default="low", metavar="WORD", help="low (default), high or another word")
    sending.add_argument("--delay", type=duration, default=0.0, metavar="TIME", help="hand it out no earlier: 90s, 2h")
    sending.add_argument("--key", metavar="KEY", help="send nothing while an unfinished item has the same key")
    sending.add_argument("--task", default="", metavar="TASK", help="the task it answers")
    claiming = add_action(actions, "claim", "take items out and finish them in one step", claim)
    _add_taking(claiming, "all there are")
    leasing = add_action(actions, "lease", "take items that come back unless they are acknowledged", lease)
    _add_taking(leasing, "1")
    leasing.add_argument("--worker", default="cli", metavar="NAME", help="who takes them (default cli)")
    leasing.add_argument("--for", dest="lease_s", type=duration, default=60.0, metavar="TIME", help="default 60s")
    acking = add_action(actions, "ack", "acknowledge a leased item: its work is done", ack)
    acking.add_argument("id", type=whole(1, IDS), metavar="ID", help="as lease printed it")
    acking.add_argument("token", type=whole(1, IDS), metavar="TOKEN", help="as lease printed it")
    for name, summary, run_it in (
        ("pending", "list what a mailbox has to hand out", pending),
        ("dead", "list items that had all their attempts", dead),
    ):
        listing = add_action(actions, name, summary, run_it)
        listing.add_argument("address", metavar="ADDRESS", help="which mailbox")
        listing.add_argument("--limit", type=whole(1, MOST), default=1000, metavar="N", help="at most (default 1000)")
    reviving = add_action(actions, "revive", "hand dead items out again, with all their attempts", revive)
    reviving.add_argument("ids", nargs="+", type=whole(1, IDS), metavar="ID", help="their numbers")
    counting = add_action(actions, "count", "count the items of a mailbox by status", count)
    counting.add_argument("address", metavar="ADDRESS", help="which mailbox")
    waiting = add_action(actions, "wait", "wait until a mailbox has something; exit 1 when the time is up", wait)
    waiting.add_argument("address", metavar="ADDRESS", help="which mailbox")
    waiting.add_argument("--timeout", type=duration, default=DAY_S, metavar="TIME", help="at most (default 1d)")


def _add_taking(parser: argparse.ArgumentParser, most: str) -> None:
    parser.add_argument("address", metavar="ADDRESS", help="which mailbox")
    parser.add_argument("--limit", type=whole(1, MOST), metavar="N", help=f"at most so many (default {most})")
    parser.add_argument("--priority", metavar="WORD", help="only items of this priority")


def run(args: argparse.Namespace) -> int | None:
    """Do what was asked with mail."""
    code: int | None = args.action(args)
    return code


def send(args: argparse.Namespace) -> None:
    """Put items into a mailbox, and print their numbers."""
    if args.key is not None and len(args.contents) > 1:
        raise UsageError("--key is of one item, and there are several contents: the others would not be sent")
    contents = [sys.stdin.read() if text == "-" else text for text in args.contents]
    options = {"priority": args.priority, "delay_s": args.delay, "key": args.key, "task_id": args.task}
    with opened(args, create=True) as memory, memory.transaction() as tx:
        sent = [tx.mailbox.send(args.address, content, **options) for content in contents]
    for one in sent:
        if args.json:
            put_json(one)
        else:
            put_line(str(one.id))


def claim(args: argparse.Namespace) -> None:
    """Print the contents of the items taken, one after the other."""
    with opened(args, write=True) as memory:
        for one in memory.mailbox.claim(args.address, priority=args.priority, limit=args.limit):
            if args.json:
                put_json(one)
            else:
                put_line(clean(one.content))


def lease(args: argparse.Namespace) -> None:
    """Print the items leased, with what `ack` needs."""
    with opened(args, write=True) as memory:
        found = memory.mailbox.lease(
            args.address, args.worker, limit=args.limit or 1, lease_s=args.lease_s, priority=args.priority
        )
    put_records(args, found, ("ID", "TOKEN", "ATTEMPT", "UNTIL", "CONTENT"), _leased_cells, empty="nothing to lease")


def ack(args: argparse.Namespace) -> None:
    """Acknowledge one item."""
    with opened(args, write=True) as memory:
        found = memory.mailbox.get(args.id)
        if found is None:
            raise NotFound(f"there is no delivery {args.id}; `crowmem mail lease` prints the numbers")
        memory.mailbox.ack(_lease_of(found, args.token))


def _lease_of(delivery: Delivery, token: int) -> LeasedDelivery:
    """What `lease` returned for this token, as far as an acknowledgement needs it."""
    from crowmem.records import LeasedDelivery

    columns = {field.name: getattr(delivery, field.name) for field in fields(delivery)}
    return LeasedDelivery(**columns, lease_token=token, lease_worker=None)


def pending(args: argparse.Namespace) -> None:
    """List what can be taken."""
    with opened(args) as memory:
        found = memory.mailbox.pending(args.address, limit=args.limit)
    put_records(args, found, ("ID", "SENT", "PRIORITY", "TASK", "CONTENT"), _pending_cells, empty="nothing to hand out")


def dead(args: argparse.Namespace) -> None:
    """List what was given up."""
    with opened(args) as memory:
        found = memory.mailbox.dead(args.address, limit=args.limit)
    put_records(args, found, ("ID", "SENT", "ATTEMPTS", "REASON", "CONTENT"), _dead_cells, empty="nothing is dead")


def revive(args: argparse.Namespace) -> int:
    """Hand dead items out again; exit 1 when one is not dead."""
    with opened(args, write=True) as memory:
        missed = [one for one in args.ids if not memory.mailbox.revive(one)]
    for one in missed:
        put_note(f"{one} is not dead")
    return FAILED if missed else OK


def count(args: argparse.Namespace) -> None:
    """Print how many items stand in each status."""
    with opened(args) as memory:
        found = memory.mailbox.count(args.address)
    if args.json:
        put_json(found)
        return
    for status, items in found.items():
        put_line(f"{status:9}  {items}")


def wait(args: argparse.Namespace) -> int:
    """Wait for mail."""
    with opened(args) as memory:
        return OK if memory.mailbox.wait(args.address, timeout_s=args.timeout) else FAILED


def _leased_cells(one: LeasedDelivery) -> tuple[str | int, ...]:
    until = local_time(one.due_at) if one.due_at else ""
    return one.id, one.lease_token, one.attempts, until, one_line(one.content)


def _pending_cells(one: Delivery) -> tuple[str | int, ...]:
    return one.id, local_time(one.created_at), one.priority, one.task_id, one_line(one.content)


def _dead_cells(one: Delivery) -> tuple[str | int, ...]:
    return one.id, local_time(one.created_at), one.attempts, one.last_error or "", one_line(one.content)

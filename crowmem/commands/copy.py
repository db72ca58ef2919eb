"""``crowmem copy``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from crowmem.commands import FAILED, OK, check_schema
from crowmem.commands.output import put_json, put_line, put_note
from crowmem.progress import Progress

if TYPE_CHECKING:
    import argparse

    from crowmem.copying import CopyReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """From where to where."""
    parser.add_argument("source", metavar="FROM", help="the store to read: a path or URL; an old crow.db will do")
    parser.add_argument("target", metavar="TO", help="the store to write: empty, or begun by an earlier copy")
    parser.add_argument("--source-images", metavar="FOLDER", help="where FROM keeps its images, when that is not usual")
    parser.add_argument("--target-images", metavar="FOLDER", help="where TO shall keep them, when that is not usual")
    parser.add_argument(
        "--target-schema", metavar="NAME", help="on PostgreSQL the schema of TO, when that is not FROM's (--schema)"
    )
    parser.add_argument("--no-verify", action="store_true", help="do not read both stores again to compare them")


def run(args: argparse.Namespace) -> int:
    """Copy a whole store, images included; a copy that was cut short goes on where it stopped."""
    from crowmem.copying import copy_store, opened_source
    from crowmem.memory import Memory
    from crowmem.urls import normalize

    into = args.schema if args.target_schema is None else args.target_schema
    if args.target_schema is not None or normalize(args.source).dialect == "sqlite":  # else --schema is FROM's
        check_schema(into, args.target, args.config)
    with (
        opened_source(args.source, config=args.config, images=args.source_images, schema=args.schema) as source,
        Memory.open(args.target, config=args.config, images=args.target_images, schema=into) as target,
        Progress("copying") as bar,
    ):
        report = copy_store(source, target, progress=bar.show, verify=not args.no_verify)
    if args.json:
        put_json(asdict(report))
    else:
        _print(report, verified=not args.no_verify)
    return FAILED if report.differences or report.missing_images else OK


def _print(report: CopyReport, *, verified: bool) -> None:
    for name, count in report.rows.items():
        put_line(f"{name:<18} {count:>12,}")
    put_line(f"{'images':<18} {report.images:>12,}")
    for key in report.missing_images:
        put_note(f"missing in the source's image store: {key}")
    for difference in report.differences:
        put_note(f"differs: {difference}")
    if verified and not report.differences:
        put_line("verified: both stores hold the same")

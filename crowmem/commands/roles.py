"""``crowmem roles``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands.output import put_json, put_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(args: argparse.Namespace) -> None:
    """Print the SQL that makes the roles crowmem_reader and crowmem_writer, for psql run by the store's owner."""
    from crowmem.opening import check_schema_name
    from crowmem.resources import sql_root
    from crowmem.statement import in_schema

    text = (sql_root() / "postgres" / "roles.sql").read_text(encoding="utf-8")
    sql = in_schema(text, check_schema_name(args.schema))
    if args.json:
        put_json({"schema": args.schema, "sql": sql})
    else:
        put_line(sql)

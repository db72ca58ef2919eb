"""``crowmem mcp``."""

from __future__ import annotations

import logging
import shlex
import sys
from typing import TYPE_CHECKING

from crowmem.commands import check_schema
from crowmem.commands.output import put_line, put_note
from crowmem.errors import Unsupported
from crowmem.mcp.clients import CLIENTS, command_line, settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

PACKAGES = ("mcp", "mcp_types", "anyio", "pydantic")  # of the SDK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to print instead of serving."""
    parser.add_argument(
        "--print-config", choices=list(CLIENTS), metavar="CLIENT", help=f"print settings for {', '.join(CLIENTS)}"
    )


def run(args: argparse.Namespace) -> None:
    """Serve the store to an agent, read-only, over stdin and stdout, until the client closes them.

    Raises:
        Unsupported: the MCP SDK is not installed.
        UsageError: a schema of a SQLite file.
    """
    check_schema(args.schema, args.db, args.config)
    if args.print_config:
        command = command_line(args.db, args.config, args.schema)
        put_line(settings(args.print_config, command))
        put_note("belongs into " + CLIENTS[args.print_config].format(command=shlex.join(command)))
        return
    if sys.stdin is not None and sys.stdin.isatty():
        put_note("crowmem mcp is started by an agent's client (see --print-config); Ctrl-C ends it")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)  # stdout belongs to the protocol
    if not args.debug:  # a call that is called off, or a server that is away, is told to the client
        logging.getLogger("psycopg").setLevel(logging.ERROR)
    _serve()(args.db, args.config, args.schema)


def _serve() -> Callable[[str | None, str | None, str], None]:
    try:
        from crowmem.mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise Unsupported(f"the MCP SDK is missing ({error}): pip install 'crowmem[mcp]'") from error
    return serve

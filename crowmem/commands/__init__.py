"""The commands of the command line, one module each.

A new command is one file here and one line in the list below. Its module has ``add_arguments(parser)`` and
``run(args)``; it is imported only when the command is used, and imports what costs time inside its functions. ``run``
opens the store with `opened`, prints with `crowmem.commands.output`, and returns an exit code (None is 0). It handles
no errors: `crowmem.cli` turns each into one line and an exit code. A command with actions of its own, such as
``crowmem mail send``, adds them with `add_actions` and `add_action`.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from crowmem.memory import Memory
    from crowmem.urls import Target

    Actions: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130


class Command(NamedTuple):
    """A command: its name, what the help says of it, and its module here where that has another name."""

    name: str
    summary: str
    file: str = ""

    def module(self) -> Any:
        """The command's module, imported now."""
        return import_module(f"crowmem.commands.{self.file or self.name}")


# In the order of the help: the daily ones first.
COMMANDS: tuple[Command, ...] = (
    Command("init", "write a config.yaml, and what starts servers for those who want them"),
    Command("import", "import the histories of other programs", "importing"),
    Command("sessions", "list sessions, the one used last first"),
    Command("search", "find messages by their words, best first"),
    Command("show", "print a session as a conversation"),
    Command("agents", "list the agents of a session, or of all"),
    Command("delete", "delete a session with everything it owns"),
    Command("mail", "send, take, acknowledge and count durable mail"),
    Command("tape", "list, print, import and export tapes"),
    Command("leases", "list the leases that somebody has now"),
    Command("status", "print how the store is doing"),
    Command("check", "look for damage"),
    Command("copy", "copy a store into another, of any kind"),
    Command("backup", "copy a SQLite store while others write to it"),
    Command("purge", "delete old sessions and finished mail"),
    Command("reindex", "build the search index again"),
    Command("gc", "remove images that no message names"),
    Command("images", "upload images that wait for the bucket"),
    Command("roles", "print SQL that makes a reading and a writing role on PostgreSQL"),
    Command("mcp", "serve the memory to an agent as MCP tools, read-only"),
    Command("version", "print the version of crowmem, with --json also what it stands on"),
)


class UsageError(Exception):
    """The command line is wrong in a way that its parser cannot see; exit code 2."""


@contextmanager
def opened(args: argparse.Namespace, *, write: bool = False, create: bool = False) -> Iterator[Memory]:
    """The store that the options name, closed at the end of the block.

    For reading it is opened read-only, which needs no right to write; only a store of an older schema is first brought
    up to date.

    Args:
        args: with ``db``, ``config`` and ``schema``.
        write: the command writes.
        create: the command may make a store that is not there; others leave none where a name was misspelt.

    Raises:
        NotFound: there is no such file, or no store in the database.
        UsageError: a schema of a SQLite file.
    """
    from crowmem.errors import SchemaTooOld
    from crowmem.memory import Memory

    check_schema(args.schema, args.db, args.config)
    if not create:
        _check_exists(args, write=write)
    try:
        memory = Memory.open(args.db, config=args.config, schema=args.schema, read_only=not (write or create))
    except SchemaTooOld:
        if write or create:
            raise
        memory = Memory.open(args.db, config=args.config, schema=args.schema)
    with memory:
        yield memory


def check_schema(schema: str, url: str | None, config: str | None) -> None:
    """Refuse a bad name, and a schema for a SQLite file, which has none: somebody else's store is meant."""
    if schema == "public":
        return
    from crowmem.opening import check_schema_name

    target = _target(url, config)
    if target.dialect == "sqlite":
        raise UsageError(f"{target.name} is a SQLite file, which has no schema {schema!r}: name a PostgreSQL database")
    check_schema_name(schema)


def _target(url: str | None, config: str | None) -> Target:
    import os

    from crowmem.config import load, resolve_url
    from crowmem.urls import normalize

    return normalize(resolve_url(url, os.environ, load(config)))


def _check_exists(args: argparse.Namespace, *, write: bool) -> None:
    from crowmem.errors import NotFound, SchemaTooOld
    from crowmem.jsonl import file_errors
    from crowmem.memory import Memory

    target = _target(args.db, args.config)
    if target.path is not None:
        with file_errors(target.path):
            there = target.path.exists()
        if not there:
            raise NotFound(f"there is no store at {target.name}: check --db, or make one with `crowmem import`")
    if write and target.dialect == "postgres":  # to open an empty database for writing makes a store in it
        with suppress(SchemaTooOld):
            Memory.open(args.db, config=args.config, schema=args.schema, read_only=True).close()


def add_global_options(parser: argparse.ArgumentParser) -> None:
    """The options that stand before a command or among its own."""
    from argparse import SUPPRESS

    options = parser.add_argument_group("options of every command")
    options.add_argument(
        "-c",
        "--db",
        metavar="URL",
        default=SUPPRESS,
        help="the store: a path, sqlite:///path or postgresql://user@host/database "
        "(default: $CROW_DB_URI, then config.yaml, then ~/.agents/crow/crow.db)",
    )
    options.add_argument("--config", metavar="PATH", default=SUPPRESS, help="config.yaml, or the folder that holds it")
    options.add_argument(
        "--schema", metavar="NAME", default=SUPPRESS, help="on PostgreSQL the schema that holds the store (public)"
    )
    options.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON, one object a line")
    options.add_argument("--debug", action="store_true", default=SUPPRESS, help="print tracebacks, and log to stderr")


def add_actions(parser: argparse.ArgumentParser) -> Actions:
    """Let a command have actions, such as ``send`` of ``mail``; ``args.action(args)`` runs the one that was chosen."""
    return parser.add_subparsers(metavar="ACTION", required=True, help="what to do; each has --help")


def add_action(
    actions: Actions, name: str, summary: str, run: Callable[[argparse.Namespace], int | None]
) -> argparse.ArgumentParser:
    """Add one action of a command.

    Args:
        actions: what `add_actions` returned.
        name: the action's.
        summary: one line for the help.
        run: what the action does.

    Returns:
        The action's parser, for its arguments.
    """
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    add_global_options(parser)
    parser.set_defaults(action=run)
    return parser

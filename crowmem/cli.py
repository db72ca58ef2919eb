"""The command line: a thin door on `Memory`, light to start and quiet when it fails.

Data goes to stdout, everything else to stderr. Only the standard library is imported at start; a command's module
comes when the command is used, the database's driver when the store is opened.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from crowmem import __version__
from crowmem.commands import COMMANDS, FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE, UsageError, add_global_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.commands import Command

DEFAULTS: dict[str, Any] = {"db": None, "config": None, "schema": "public", "json": False, "debug": False}


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, since scripts outlive them, and repeats an argument only cleaned."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """End with the usage and what is wrong with it."""
        from crowmem.terminal import one_line

        if message.startswith("unrecognized arguments: -"):
            message += " (words that begin with - stand after --)"
        super().error(one_line(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; None takes the process's own.

    Returns:
        0 done, 1 the command failed, 2 wrong usage or configuration, 3 the store could not be reached, 130 interrupted.
    """
    args = argparse.Namespace(**DEFAULTS)
    command: Command | None = None
    try:
        _prepare()
        command, args = parse(sys.argv[1:] if argv is None else argv)
        if args.debug:
            _log()
        code = command.module().run(args)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed its help or its complaint
        return stop.code if isinstance(stop.code, int) else OK
    except BrokenPipeError:  # the reader has seen enough
        _drop_output()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _failed(command.name if command else "", args, error)
    return OK if code is None else int(code)


def parse(argv: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """Find the command and read its arguments; only the chosen command's module is imported.

    Raises:
        SystemExit: the arguments are wrong, or ask for help or the version.
    """
    top = top_parser()
    if not argv:
        top.print_help(sys.stderr)
        raise SystemExit(USAGE)
    args = top.parse_args(argv, argparse.Namespace(**DEFAULTS))
    name, *rest = args.command
    command = next((one for one in COMMANDS if one.name == name), None)
    if command is None:
        near = difflib.get_close_matches(name, [one.name for one in COMMANDS], n=1)
        top.error(f"there is no command {name!r}; " + (f"did you mean {near[0]!r}?" if near else "see crowmem --help"))
    return command, command_parser(command).parse_args(rest, args)


def top_parser() -> argparse.ArgumentParser:
    """What stands before the command."""
    width = max(len(one.name) for one in COMMANDS)
    listed = "\n".join(f"  {one.name:<{width}}  {one.summary}" for one in COMMANDS)
    parser = Parser(
        prog="crowmem",
        usage="crowmem [--db URL] [--config PATH] [--schema NAME] [--json] COMMAND ...",
        description="Memory of AI agents in plain SQL, on SQLite or PostgreSQL.",
        epilog=f"commands:\n{listed}\n\n`crowmem COMMAND --help` tells more of each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_global_options(parser)
    parser.add_argument("--version", action="version", version=f"crowmem {__version__}")
    parser.add_argument("command", nargs=argparse.PARSER, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def command_parser(command: Command) -> argparse.ArgumentParser:
    """What stands after the command's name."""
    parser = Parser(prog=f"crowmem {command.name}", description=command.summary)
    add_global_options(parser)
    command.module().add_arguments(parser)
    return parser


def _prepare() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by our caller: print to nowhere, and leave no database its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what the terminal's alphabet lacks is shown by number, never an error
            stream.reconfigure(errors="backslashreplace")


def _log() -> None:
    import logging

    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)


def _failed(name: str, args: argparse.Namespace, error: Exception) -> int:
    """Say in one line what went wrong; the exit code that goes with it."""
    from crowmem.errors import ConfigError, CrowmemError, InvalidValue, Unavailable

    if isinstance(error, (CrowmemError, UsageError)):
        told = str(error)
    elif isinstance(error, OSError):  # of our own output: those of a store are typed
        told = error.strerror or str(error)
    else:
        told = f"this should not happen: {type(error).__name__}: {error} (--debug shows where)"
    if args.debug:
        import traceback

        told += "\n" + "".join(traceback.format_exception(error)).rstrip()
    _complain(name, told, args)
    if isinstance(error, Unavailable):
        return UNREACHABLE
    return USAGE if isinstance(error, (UsageError, InvalidValue, ConfigError)) else FAILED


def _complain(name: str, text: str, args: argparse.Namespace) -> None:
    from crowmem.terminal import clean, one_line

    for secret in _secrets(args):
        text = text.replace(secret, "***")
    shown = clean(text) if args.debug else one_line(text)
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed; the exit code still tells
        print(f"crowmem {name}: {shown}" if name else f"crowmem: {shown}", file=sys.stderr)


def _secrets(args: argparse.Namespace) -> list[str]:
    """Passwords in use. Errors of ours hide them; this is for what a library's own text may repeat."""
    from urllib.parse import unquote

    from crowmem.config import load
    from crowmem.errors import CrowmemError

    urls, found = [args.db, os.environ.get("CROW_DB_URI")], []
    with contextlib.suppress(CrowmemError):
        config = load(args.config)
        urls.append(config.db_uri)
        found.append(config.image_store.secret_key if config.image_store else "")
    for url in filter(None, urls):
        found.append(url.partition("://")[2].rpartition("@")[0].partition(":")[2])
        found += re.findall(r"password\s*=\s*([^&\s]+)", url)
    both = {*found, *map(unquote, found)}
    return sorted((secret for secret in both if len(secret) > 3), key=len, reverse=True)  # a shorter one is in any text


def _drop_output() -> None:
    """Let the interpreter's last flush go nowhere, instead of failing on the closed pipe."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    raise SystemExit(main())

"""Kinds of values that options take, checked while the command line is read, and options that commands share."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from crowmem.commands import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number within bounds."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ArgumentTypeError(f"{text!r} is no whole number from {low:,} to {high:,}")
        return value

    return read


def moment(text: str) -> str:
    """A time: ISO 8601, in this machine's zone when it names none, or how long ago, such as ``7d`` or ``30m``."""
    from datetime import UTC, datetime, timedelta

    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    try:
        if text[-1:] in units and text[:-1].isdecimal():
            return (datetime.now(UTC) - timedelta(**{units[text[-1]]: int(text[:-1])})).isoformat()
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        raise ArgumentTypeError(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31T12:00 or how long ago: 30m, 12h, 7d, 4w"
        ) from None


def duration(text: str) -> float:
    """A time span in seconds: a number with s, m, h, d or w behind it, seconds without."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    number = text[:-1] if text[-1:] in units else text
    try:
        seconds = float(number) * units.get(text[-1:], 1)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e10:  # NaN fails this too
        raise ArgumentTypeError(f"{text!r} is no time span: write 90s, 30m, 12h or 7d")
    return seconds


def folder(text: str) -> str:
    """A folder as sessions record it: absolute, ``~`` expanded; one of Windows, where this is none, as it is."""
    from pathlib import Path, PureWindowsPath

    if not text.startswith("/") and PureWindowsPath(text).is_absolute():
        return text
    try:
        return str(Path(text).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise ArgumentTypeError(f"{text!r} is no folder: {error}") from None


def add_limit(parser: argparse.ArgumentParser, default: int, what: str, *, most: int = 100_000) -> None:
    """``--limit`` and ``--offset``."""
    parser.add_argument(
        "-n", "--limit", type=whole(1, most), default=default, metavar="N", help=f"most {what} (default {default})"
    )
    parser.add_argument("--offset", type=whole(0, 2**62), default=0, metavar="N", help=f"{what} to pass over")


def add_yes(parser: argparse.ArgumentParser) -> None:
    """``--yes``, for what cannot be undone."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def agreed(args: argparse.Namespace, question: str) -> bool:
    """Whether to go on: ``--yes``, or the answer of the person at the terminal.

    Args:
        args: with ``yes``.
        question: without a terminal it cannot be asked.

    Raises:
        UsageError: nobody can be asked.
    """
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is here to answer: give --yes")
    try:
        return asked(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def asked(prompt: str) -> str:
    """A line from the person at the terminal; unlike `input` it keeps the prompt out of the data.

    Raises:
        EOFError: the input ended.
    """
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")

"""Kinds of values that options take, checked while the command line is read, and options that commands share."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

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


def add_limit(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """``--limit`` and ``--offset``."""
    parser.add_argument(
        "-n", "--limit", type=whole(1, 100_000), default=default, metavar="N", help=f"most {what} (default {default})"
    )
    parser.add_argument("--offset", type=whole(0, 2**62), default=0, metavar="N", help=f"{what} to pass over")

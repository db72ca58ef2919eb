"""``crowmem status``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crowmem.commands import opened
from crowmem.commands.output import put_json, put_line
from crowmem.terminal import Paint, one_line

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace) -> None:
    """Print how the store is doing: no secret is in it."""
    with opened(args) as memory:
        status = asdict(memory.status())
    if args.json:
        put_json(status)
        return
    paint = Paint.of(sys.stdout)
    warnings = status.pop("warnings")
    shown = {name: value for name, value in _flat(status) if value != ""}
    wide = max(map(len, shown), default=0)
    for name, value in shown.items():
        put_line(f"{paint(f'{name:<{wide}}', 'dim')}  {value}")
    label = paint("warning".ljust(wide), "red")
    for warning in warnings:
        put_line(f"{label}  {one_line(warning)}")


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and values, inner ones as ``rows.messages``."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        label = f"{prefix}{name}".replace("_", " ")
        found += _flat(value, f"{label}.") if isinstance(value, dict) else [(one_line(label), _shown(value))]
    return found


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return f"{value:,}" if isinstance(value, int) else one_line(str(value))

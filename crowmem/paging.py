"""Long output for people: through $PAGER when stdout is a terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NONE = ("", "cat")  # values of PAGER that ask for none


@contextmanager
def paged(wanted: bool = True) -> Iterator[None]:
    """Send what is printed in the block through a pager, if a person is looking; leaving the pager early is no error.

    Args:
        wanted: False prints straight on.
    """
    pager = _start(os.environ) if wanted and sys.stdout.isatty() and sys.stdin.isatty() else None
    if pager is None or pager.stdin is None:
        yield
        return
    try:
        with suppress(BrokenPipeError), redirect_stdout(pager.stdin):
            yield
    finally:
        with suppress(BrokenPipeError):
            pager.stdin.close()
        _wait(pager)


def _start(env: Mapping[str, str]) -> subprocess.Popen[str] | None:
    """The pager that PAGER names, else less; None when it asks for none or is not there."""
    try:
        command = shlex.split(env.get("PAGER", "less"))
    except ValueError:  # an open quote
        return None
    if " ".join(command) in NONE:
        return None
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env={"LESS": "FRX", **env},  # no paging of a short text, colours as colours, and the screen as it was
            text=True,
            encoding=sys.stdout.encoding,
            errors="backslashreplace",
        )
    except OSError:
        return None


def _wait(pager: subprocess.Popen[str]) -> None:
    """Wait until the reader leaves the pager, which takes Ctrl-C as a command of its own."""
    while True:
        try:
            pager.wait()
        except KeyboardInterrupt:
            continue
        return

"""Importers: other programs' conversation histories as messages of this memory.

A new format is one module with a ``FORMAT``, and one line in the list below. The list is in the order of asking: what
is told by marks of its own comes before what is told by shape alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.importers import (
    aider,
    anthropic_messages,
    antigravity,
    chatgpt,
    claude_ai,
    claude_code,
    cline,
    codex,
    copilot,
    crow_db,
    crow_images,
    cursor,
    droid,
    gemini,
    grok,
    hermes,
    inspect_ai,
    kimi,
    openai_chat,
    opencode,
    opencode_db,
    openhands,
    pi,
    question_sets,
    qwen,
    sharegpt,
    specstory,
    swe_agent,
    tape,
    toolbench,
    trae_agent,
)
from crowmem.importers.guard import ODD
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, StoreRow, Turn
from crowmem.importers.source import Head, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.places import Format

__all__ = [
    "FORMATS",
    "MAIN",
    "Item",
    "Mark",
    "SessionFacts",
    "Skip",
    "Source",
    "StoreRow",
    "Turn",
    "discover",
    "recognise",
]

FORMATS: tuple[Format, ...] = (
    codex.FORMAT,
    qwen.FORMAT,
    claude_code.FORMAT,
    tape.FORMAT,
    copilot.FORMAT,
    kimi.FORMAT,
    droid.FORMAT,
    pi.FORMAT,
    antigravity.FORMAT,
    grok.FORMAT,
    cursor.FORMAT,
    gemini.FORMAT,
    opencode.FORMAT,
    inspect_ai.FORMAT,
    chatgpt.FORMAT,
    claude_ai.FORMAT,
    hermes.FORMAT,
    swe_agent.FORMAT,
    openhands.FORMAT,
    trae_agent.FORMAT,
    toolbench.FORMAT,
    cline.FORMAT,
    sharegpt.FORMAT,
    question_sets.FORMAT,
    anthropic_messages.FORMAT,
    openai_chat.FORMAT,
    specstory.FORMAT,
    aider.FORMAT,
    crow_db.FORMAT,
    opencode_db.FORMAT,
    crow_images.FORMAT,
)


def recognise(path: Path, source: Source | None = None) -> Format | None:
    """The format of a file, by its content; None when it is none that is known.

    Args:
        path: the file.
        source: the same file about to be read; it is given what recognising parsed.

    Raises:
        OSError: the file cannot be read.
    """
    head = Head(path)
    form = next((found for found in FORMATS if _is(found, head)), None)
    if source is not None:
        source.begun = head.begun
    return form


def _is(form: Format, head: Head) -> bool:
    try:
        return form.sniff(head)
    except ODD:  # what looks like this format at first, and has another shape
        return False


def discover(home: Path, env: Mapping[str, str]) -> Iterator[tuple[Format, Path]]:
    """The places below a home folder where histories lie, each with the format that lives there."""
    for found in FORMATS:
        for path in found.discover(home, env):
            yield found, path

"""Factory's Droid: ``~/.factory/sessions/<id>.jsonl``, the frame of pi around Anthropic's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.importers import pi
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from crowmem.importers.source import Head


def sniff(head: Head) -> bool:
    """Its header; without one a file is read as pi's, whose command to resume would not know the session."""
    return any(record.get("type") == "session_start" and pi.is_record(record) for record in head.records[:1])


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The sessions of the user."""
    return below(home / ".factory" / "sessions")


FORMAT = Format(name="droid", title="Droid", sniff=sniff, read=pi.read, discover=discover)

"""Hermes: a session a file, ``{session_id, platform, model, messages}`` with OpenAI chat messages, which are kept as
they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.document import members
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.openai_chat import is_message
from crowmem.importers.places import Format, below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.source import Head, Source


def sniff(head: Head) -> bool:
    """A session with messages, and when it began."""
    return {"session_id", "session_start", "messages"} <= head.object.keys()


def read(source: Source) -> Iterator[Item]:
    """The turns of one session."""
    about: dict[str, Any] = {}
    with source.open() as stream:
        for member in members(stream):
            if member.broken:
                yield Skip(str(source.path), member.line, member.broken)
            elif member.key == "messages" and is_message(member.value):
                source.records += 1
                session = chat.text(about.get("session_id")) or source.path.stem
                keys = (f"{member.index}:{chat.digest(chat.compact(member.value))}",)
                created = chat.moment(member.value.get("timestamp"))
                model, cwd = chat.text(about.get("model")), _cwd(about)
                yield Turn(session, MAIN, keys, member.value, member.line, created, model=model, cwd=cwd)
            elif member.key is not None and member.index is None:
                about[member.key] = member.value
    yield SessionFacts(
        chat.text(about.get("session_id")) or source.path.stem,
        chat.text(about.get("title")),
        _cwd(about),
        model=chat.text(about.get("model")),
    )
    yield Mark(0, 0)


def _cwd(about: Mapping[str, Any]) -> str:
    config = about.get("model_config")
    return chat.text(config.get("cwd")) if isinstance(config, dict) else ""


def discover(home: Path, _env: Mapping[str, str]) -> list[Path]:
    """The sessions' folder."""
    return below(home / ".hermes" / "sessions")


FORMAT = Format(name="hermes", title="Hermes", sniff=sniff, read=read, discover=discover)

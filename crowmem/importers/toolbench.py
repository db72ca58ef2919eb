"""ToolBench answers: a search tree, and ``train_messages``, growing copies of one conversation; the longest is the
whole of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.conversations import Conversation, Said, read_conversations
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.items import Item
    from crowmem.importers.source import Head, Source


def sniff(head: Head) -> bool:
    """A generated answer with the messages it was trained with."""
    return _lists(head.object) is not None


def _lists(value: Any) -> list[list[Any]] | None:
    answer = value.get("answer_generation") if isinstance(value, dict) else None
    lists = answer.get("train_messages") if isinstance(answer, dict) else None
    return [one for one in lists if isinstance(one, list)] if isinstance(lists, list) else None


def read(source: Source) -> Iterator[Item]:
    """The turns of one answer."""
    yield from read_conversations(source, convert)


def convert(value: Any) -> Conversation | None:
    """An answer as a conversation."""
    lists = _lists(value)
    if not lists:
        return None
    messages = [message for message in max(lists, key=len) if isinstance(message, dict) and "role" in message]
    title = chat.text(value["answer_generation"].get("query"))
    return Conversation([Said(message) for message in messages], title=title)


FORMAT = Format(name="toolbench", title="ToolBench answers", sniff=sniff, read=read)

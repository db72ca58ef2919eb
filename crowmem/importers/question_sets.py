"""Question sets and model answers of evaluations, a JSON object a line: ``turns``, ``choices[0].turns``,
``query``/``response``.

An evaluation keeps questions and answers in two files; each file becomes sessions of its own, a line each.
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
    """Lines that are questions or answers."""
    return bool(head.records) and any(convert(record) is not None for record in head.records[:3])


def read(source: Source) -> Iterator[Item]:
    """The turns of one file."""
    yield from read_conversations(source, convert)


def convert(value: Any) -> Conversation | None:
    """A line as a conversation."""
    if not isinstance(value, dict):
        return None
    if "question_id" in value and isinstance(value.get("turns"), list):
        said = [Said({"role": "user", "content": _text(turn)}) for turn in value["turns"]]
        return Conversation(said, title=chat.text(value.get("category")))
    if "question_id" in value and isinstance(value.get("choices"), list) and value["choices"]:
        time = chat.moment(value.get("tstamp"))
        choice = value["choices"][0]
        turns = choice.get("turns") if isinstance(choice, dict) else None
        if not isinstance(turns, list):
            return None
        said = [Said({"role": "assistant", "content": _text(turn)}, time) for turn in turns]
        return Conversation(said, model=chat.text(value.get("model_id")))
    if isinstance(value.get("query"), str) and ("id" in value or "query_id" in value):
        asked = chat.text(value.get("prompted_query")) or value["query"]
        said = [Said({"role": "user", "content": asked})]
        if isinstance(value.get("response"), str):
            said.append(Said({"role": "assistant", "content": value["response"]}))
        return Conversation(said, records=1, title=chat.text(value.get("label")))
    return None


def _text(turn: Any) -> str:
    return chat.text(turn.get("content")) if isinstance(turn, dict) else chat.text(turn)


FORMAT = Format(name="question-set", title="Evaluation questions and answers", sniff=sniff, read=read)

"""Answers as Markdown, for people and for models: who said what and when, what was said as quotations.

Everything that was stored stands in quotations or on lines of its own marks, so that it cannot pass for what the server
itself says.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from crowmem.ids import build_agent_id
from crowmem.mcp.answers import SessionsAnswer
from crowmem.terminal import one_line
from crowmem.transcript import ANSWERED, CALLED, IMAGE, THOUGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.mcp.answers import Answer, Fault, Found, Piece, SessionLine, Shown


def markdown(answer: Answer) -> str:
    """An answer as Markdown."""
    if answer.error is not None:
        return _fault(answer.error)
    if isinstance(answer, SessionsAnswer):
        lines = list(map(_session, answer.sessions))
    else:
        shown: set[int] = set()
        lines = [line for number, found in enumerate(answer.messages, 1) for line in _found(number, found, shown)]
    notes = [f"*{note}*" for note in answer.notes]
    return "\n\n".join(filter(None, ("\n".join(lines).strip(), "\n".join(notes))))


def _fault(fault: Fault) -> str:
    return f"**{fault.kind}**: {fault.message}\n\n{fault.cure}"


def _session(line: SessionLine) -> str:
    counted = f"{_counted(line.message_count, 'message')}, {_counted(line.agent_count, 'agent')}"
    facts = [_code(line.session_id), _time(line.last_activity), counted, line.model, line.cwd]
    return f"- **{line.title or 'untitled'}**: " + ", ".join(filter(None, facts))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _found(number: int, found: Found, shown: set[int]) -> Iterator[str]:
    for message in found.before or ():
        yield from _neighbour(f"### before {number}:", message, shown)
    title = f" “{found.title}”" if found.title else ""
    yield from _heading(f"## {number}.", found, f" of {_code(found.session_id)}{title}")
    if found.snippet and (found.from_character or found.next_character or not found.parts):
        yield from (f"matches: {one_line(found.snippet)}", "")
    yield from _body(found)
    shown.add(found.id)
    for message in found.after or ():
        yield from _neighbour(f"### after {number}:", message, shown)


def _neighbour(mark: str, message: Shown, shown: set[int]) -> Iterator[str]:
    """A message beside one that was asked for; by its heading only where it was shown already."""
    if message.id in shown:
        yield from _heading(mark, message, " (shown above)")
        return
    shown.add(message.id)
    yield from _heading(mark, message)
    yield from _body(message)


def _heading(mark: str, message: Shown, more: str = "") -> Iterator[str]:
    who = one_line(message.role) or "message"
    if message.agent_id != build_agent_id(message.session_id, 1):
        who += f" of agent {_code(message.agent_id)}"
    told = ", ".join(filter(None, (who, _time(message.created_at), f"message {message.id}{more}")))
    yield from (f"{mark} {told}", "")


def _body(message: Shown) -> Iterator[str]:
    if message.from_character:
        yield from (f"*(from character {message.from_character})*", "")
    for piece in message.parts:
        yield from (f"> {line}".rstrip() for line in _lines(piece))
    if message.parts:
        yield ""
    if message.next_character is not None:
        left = message.characters - message.next_character
        yield from (f"*({left:,} more characters: from_character={message.next_character})*", "")


def _lines(piece: Piece) -> list[str]:
    text = piece.text.strip("\n")
    if piece.kind == CALLED:
        text = f"→ {one_line(piece.name or 'tool')} {text}"
    elif piece.kind == ANSWERED:
        text = f"{'✗' if piece.is_error else '←'} {text}"
    elif piece.kind == THOUGHT:
        text = f"(thinks) {text}"
    elif piece.kind == IMAGE:
        text = f"[image {text}]"
    return text.split("\n")


def _code(text: str) -> str:
    """A text as code, to be copied; what it holds of backticks does not end it."""
    shown = one_line(text)
    fence = "`"
    while fence in shown:
        fence += "`"
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"


def _time(text: str) -> str:
    """A time to the second; nothing for the stamp that stands for none."""
    moment = datetime.fromisoformat(text)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment.year > 1 else ""

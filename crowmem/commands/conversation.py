"""Messages as a conversation on a terminal: who speaks, what was said, tool calls and their answers in short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.commands.output import local_time
from crowmem.terminal import clean, cut, one_line
from crowmem.transcript import ANSWERED, CALLED, IMAGE, THOUGHT, visible_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.records import Message
    from crowmem.terminal import Paint
    from crowmem.transcript import Part

COLOURS = {"user": "cyan", "assistant": "green"}
OTHERS = "magenta"
FOLDED_LINES = 8  # of an answer, unless everything is to be shown
FOLDED_COLUMNS = 200  # of a call, or of one line of an answer


def conversation(messages: Iterator[Message], mode: str, paint: Paint) -> Iterator[str]:
    """The lines of a conversation.

    A heading stands where the speaker changes; what tools answer belongs to whoever called them.

    Args:
        messages: oldest first.
        mode: one of `crowmem.transcript.MODES`; "full" folds nothing.
        paint: for headings, calls and answers.
    """
    speaker = ""
    for message in messages:
        shown = visible_parts(message.data, mode)
        if not shown:
            continue
        role = _speaker(message.role, speaker)
        if role != speaker:
            speaker = role
            yield from ("", _heading(message, role, paint))
        for part in shown:
            yield from _lines(part, paint, fold=mode != "full")


def _speaker(role: str, current: str) -> str:
    return current or "tool" if role in ("tool", "function") else role


def _heading(message: Message, role: str, paint: Paint) -> str:
    name = message.data.get("name") if role not in COLOURS else None
    title = one_line(f"{role or 'message'} {name}" if isinstance(name, str) else role or "message")
    return f"{paint(title, 'bold', COLOURS.get(role, OTHERS))} {paint(local_time(message.created_at), 'dim')}"


def _lines(part: Part, paint: Paint, *, fold: bool) -> Iterator[str]:
    if part.kind == CALLED:
        text = cut(one_line(part.text), FOLDED_COLUMNS) if fold else clean(part.text)
        yield f"  {paint(f'→ {one_line(part.name)}', 'yellow')} {text}".rstrip()
    elif part.kind == ANSWERED:
        yield from _answer(part, paint, fold=fold)
    elif part.kind == IMAGE:
        yield paint(f"  [image {cut(one_line(part.text), FOLDED_COLUMNS)}]", "dim")
    elif part.kind == THOUGHT:
        yield from (paint(f"  | {line}", "dim") for line in clean(part.text).strip("\n").split("\n"))
    else:
        yield from clean(part.text).strip("\n").split("\n")


def _answer(part: Part, paint: Paint, *, fold: bool) -> Iterator[str]:
    lines = clean(part.text).strip("\n").split("\n")
    kept = lines[:FOLDED_LINES] if fold and len(lines) > FOLDED_LINES + 1 else lines
    first = "✗" if part.is_error else "←"
    for number, line in enumerate(kept):
        text = cut(line, FOLDED_COLUMNS) if fold else line
        yield paint(f"  {' ' if number else first} {text}".rstrip(), *(("red",) if part.is_error else ("dim",)))
    if len(kept) < len(lines):
        yield paint(f"    … {len(lines) - len(kept):,} more lines", "dim")

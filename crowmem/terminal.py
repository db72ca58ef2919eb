"""Text for a terminal: made harmless, measured in columns, painted, laid out.

Stored text comes from models, tools and web pages. None of it reaches a terminal as it is: an escape sequence could
retitle the window, move the cursor or answer on the keyboard's behalf, and a direction mark could reorder what is read.
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

# CSI with its parameters, OSC and the like with their text, two-character escapes; in 7-bit and 8-bit form. What is not
# closed loses its introducer only.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x90\x98\x9b-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
)
_UNSAFE = re.compile("\r\n?|[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_JSON_UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACES = re.compile(r"\s+")
TAB = 4
WIDEST = 48  # of a table's columns on a terminal; a name of thousands of letters must not hide the others

CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


def clean(text: str) -> str:
    """A text without anything a terminal would obey; line breaks stay, tabs become blanks.

    Escape sequences go, other control characters become their pictures, halves of characters U+FFFD.
    """
    if not text.isprintable():
        text = _UNSAFE.sub(_harmless, _SEQUENCE.sub("", text))
        text = text.expandtabs(TAB) if "\t" in text else text
    return text


def _harmless(found: re.Match[str]) -> str:
    code = ord(found[0][0])
    if code in (0x0D, 0x2028, 0x2029):
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "" if 0x202A <= code <= 0x2069 else "\ufffd"


def clean_json(text: str) -> str:
    """JSON text with what JSON allows and a terminal may obey escaped; it decodes to the same value."""
    return _JSON_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """A text cleaned, each run of white space a blank."""
    return _SPACES.sub(" ", clean(text)).strip()


def width(text: str) -> int:
    """Columns that a cleaned text takes: none for marks, two for wide characters."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The beginning of a cleaned text that fits, with ``…`` when something is left out."""
    if width(text) <= columns:
        return text
    kept, used = 0, 0
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        kept += 1
    return text[:kept] + "…"


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """A cleaned text filled up with blanks; ``right`` puts the text on the right."""
    blanks = " " * max(0, columns - width(text))
    return blanks + text if right else text + blanks


def colour_wanted(stream: TextIO) -> bool:
    """Colour is for people: on a terminal that can. NO_COLOR turns it off, FORCE_COLOR on for any stream."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Paint:
    """Puts colours around cleaned text, or leaves it alone."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted

    @classmethod
    def of(cls, stream: TextIO) -> Paint:
        """The paint for a stream."""
        return cls(colour_wanted(stream))

    def __call__(self, text: str, *styles: str) -> str:
        """The text in some styles, names of `CODES`."""
        if not (self.wanted and styles and text):
            return text
        return f"\x1b[{';'.join(CODES[style] for style in styles)}m{text}\x1b[0m"


def columns_of(stream: TextIO) -> int | None:
    """The columns of a terminal; None for anything else, where nothing needs to be cut."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str | int]], *, paint: Paint, columns: int | None
) -> list[str]:
    """Lines of a table. Numbers stand on the right; the last column is cut to the terminal's edge.

    Args:
        titles: a title for each column.
        rows: a value for each column; text is cleaned here.
        paint: for the titles.
        columns: of the terminal; None cuts nothing.
    """
    cells = [[f"{value:,}" if isinstance(value, int) else one_line(value) for value in row] for row in rows]
    numbers = [all(isinstance(row[place], int) for row in rows) for place in range(len(titles))]
    widths = [max(map(width, column)) for column in zip(titles, *cells, strict=True)]
    if columns is not None:
        widths[:-1] = [min(wide, WIDEST) for wide in widths[:-1]]
        widths[-1] = min(widths[-1], max(8, columns - sum(widths[:-1]) - 2 * (len(widths) - 1)))

    def line(values: Sequence[str]) -> str:
        fitted = zip(values, widths, numbers, strict=True)
        return "  ".join(pad(cut(value, wide), wide, right=right) for value, wide, right in fitted).rstrip()

    return [paint(line(titles), "dim"), *map(line, cells)]

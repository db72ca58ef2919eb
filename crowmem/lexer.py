"""One lexer for both databases: text → tokens → index rows.

Tokens come from SQLite's own ``unicode61`` tokenizer, through apsw, so what FTS5 would index is exactly what PostgreSQL
gets as the literal of a tsvector; PostgreSQL's own parser is never asked. Scripts written without spaces are spread
first: a blank around each character makes one token of each, and a query's run of them becomes a phrase, so that any
substring is found.

A message becomes one or more index rows, called documents, each within what a tsvector can hold (places up to 16,383,
256 of one word, 1 MB of words), so nothing a message holds can fail its insert. Tokens hold no ASCII punctuation, hence
a token in quotes needs no escapes in either query language.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from crowmem.scope import MARK
from crowmem.tokenizer import tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEXER = 1  # raised when the same text gives other tokens than before: an index of another number is made again

TOKEN_BYTES = 128  # a longer token is cut here, at a character's border, in texts and queries alike
DOCUMENT_TOKENS = 8192  # a document closes after so many tokens,
DOCUMENT_REPEATS = 256  # or before one word's 257th place,
DOCUMENT_BYTES = 900_000  # or before its tokens pass so many bytes, repeats counted as PostgreSQL does
MESSAGE_DOCUMENTS = 64  # what follows in a message is stored, not indexed

_PIECE = 1 << 18  # characters tokenized at once: a text of any size needs memory for a piece only
_ENTRY_BYTES = 6  # what a word and its first place take in a tsvector beside the word's own bytes

# kana, CJK in all planes, Thai, Lao, Tibetan, Myanmar, Khmer; not Hangul, which has spaces
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# unicode61 for ASCII: letters, small, and digits are tokens, all else separates them
_ASCII = "".join(char.lower() if char.isalnum() else " " for char in map(chr, range(128))).encode() + b" " * 128
_HALF = re.compile("[\ud800-\udfff]")


@functools.cache
def unspaced_run() -> re.Pattern[str]:
    """A run of characters of scripts without spaces. Made when first needed, as the next: they take 2 ms."""
    return re.compile(f"[{_UNSPACED}]+")


@functools.cache
def border() -> re.Pattern[str]:
    """A character before which a text can be cut without changing its tokens."""
    return re.compile(rf"[\0-/:-@\[-`{{-\x7f\s\u2000-\u2064\u3000-\u3004{_UNSPACED}]")


class Document(NamedTuple):
    """One index row: some tokens of a message, in order."""

    tokens: list[str]

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    @property
    def text(self) -> str:
        """The tokens joined by blanks, for FTS5: tokenized again they stay what they are."""
        return " ".join(self.tokens)

    @property
    def tsvector(self) -> str:
        """The literal of a tsvector: each token with its place, counted from 1.

        A repeated word stands there once for each place; the server puts them together, and so many short texts are
        joined ten times faster than Python counts them.
        """
        parts = [""] * (2 * len(self.tokens))
        parts[::2] = self.tokens
        parts[1::2] = _places()[: len(self.tokens)]
        return f"'{''.join(parts)[:-2]}"


class Documents:
    """The index rows of one message: none when it has no word, 64 at most.

    ``complete`` is False when the message has more words than these rows hold.
    """

    __slots__ = ("complete", "rows")

    def __init__(self, rows: tuple[Document, ...], complete: bool = True) -> None:
        self.rows = rows
        self.complete = complete

    def __iter__(self) -> Iterator[Document]:
        """The rows in order."""
        return iter(self.rows)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rows)


def documents(text: str, *, stem: bool = False) -> Documents:
    """The index rows of a text.

    Args:
        text: any text, NUL and half characters included, of any length.
        stem: reduce English words to their stems (Porter), as a stemming store does.
    """
    if len(text) <= _PIECE:
        found = tokens(text, stem=stem)
        if not found:
            return Documents(())
        if _fits(found):
            return Documents((Document(found),))
        pieces: Iterator[list[str]] = iter((found,))
    else:
        pieces = (tokens(piece, stem=stem) for piece in cut(text, _PIECE))
    return _divide(pieces)


def plain(text: str) -> str | None:
    """The only index row of a short ASCII text as FTS5 takes it, "" when it has no word; None for any other text.

    Its tokens are those of `documents`, with any number of blanks between them: nobody looked at them one by one.
    """
    if not text.isascii():
        return None
    found = text.encode().translate(_ASCII)
    most = (len(found) + 1) // 2 if len(found) < 2 * DOCUMENT_REPEATS else found.count(b" ") + 1
    if most > DOCUMENT_REPEATS:
        most -= found.count(b"  ")  # no token stands between those; there are two after most marks
    if most > DOCUMENT_REPEATS:
        # no word stands there 257 times if so many others do; the last of the piece may be half a word
        others = most - DOCUMENT_REPEATS
        if most > 4 * DOCUMENT_REPEATS or len(set(found[: 10 * others].split())) <= others + 1:
            return None
    if _holds_long(found):
        return None
    return "" if found.isspace() else found.decode()


def _holds_long(found: bytes) -> bool:
    """Whether one of the tokens between blanks is longer than 128 bytes; most are passed over."""
    start = 0
    while len(found) - start > TOKEN_BYTES:
        start = found.rfind(b" ", start, start + TOKEN_BYTES + 1) + 1
        if not start:
            return True
    return False


def tokens(text: str, *, stem: bool = False) -> list[str]:
    """The tokens of a text, each at most 128 bytes. Half characters separate words."""
    if text.isascii() and not stem:
        spaced = text.encode().translate(_ASCII)
        found = spaced.decode().split()
        return [token[:TOKEN_BYTES] for token in found] if _holds_long(spaced) else found
    found = tokenizer(stem)(spread(text).encode("utf-8", "replace"))
    if max(map(len, found), default=0) * 4 > TOKEN_BYTES:
        return [token if len(token) * 4 <= TOKEN_BYTES else _shorten(token) for token in found]
    return found


def spread(text: str) -> str:
    """The text with a blank on both sides of each character of a script written without spaces, and no `MARK` in it."""
    if text.isascii():
        return text
    return unspaced_run().sub(lambda run: f" {' '.join(run[0])} ", text.replace(MARK, " "))


def located(text: str, wanted: Callable[[str], bool], *, stem: bool = False) -> Iterator[tuple[str, int, int]]:
    """The wanted tokens of a text with the places of their first and past their last character."""
    start = 0
    for run in unspaced_run().finditer(text):
        yield from _located(text, start, run.start(), wanted, stem)
        for place in range(run.start(), run.end()):
            token = _alone(text[place])
            if token and wanted(token):
                yield token, place, place + 1
        start = run.end()
    yield from _located(text, start, len(text), wanted, stem)


@functools.lru_cache(maxsize=8192)
def _alone(character: str) -> str:
    """The token of a character that stands alone; "" when it is none. Such scripts have no stems."""
    return "".join(tokens(character))


def _located(
    text: str, start: int, end: int, wanted: Callable[[str], bool], stem: bool
) -> Iterator[tuple[str, int, int]]:
    encoded = _HALF.sub("?", text[start:end].replace(MARK, " ")).encode()
    place, read = start, 0
    for first, past, token in tokenizer(stem).located(encoded):
        token = token if len(token) * 4 <= TOKEN_BYTES else _shorten(token)
        if wanted(token):
            place += len(encoded[read:first].decode())
            length = len(encoded[first:past].decode())
            yield token, place, place + length
            place, read = place + length, past


def _shorten(token: str) -> str:
    encoded = token.encode()
    return token if len(encoded) <= TOKEN_BYTES else encoded[:TOKEN_BYTES].decode("utf-8", "ignore")


def cut(text: str, size: int) -> Iterator[str]:
    """Pieces of a long text, of some so many characters, cut where no token can be."""
    start = 0
    while start < len(text):
        found = border().search(text, start + size)
        end = found.start() if found else len(text)
        yield text[start:end]
        start = end


@functools.cache
def _places() -> list[str]:
    """What stands between one token of a tsvector and the next."""
    return [f"':{place} '" for place in range(1, DOCUMENT_TOKENS + 1)]


def _fits(found: list[str]) -> bool:
    """Whether tokens fit one document, without counting bytes: true of nearly every message."""
    if len(found) <= DOCUMENT_REPEATS:
        return True
    if len(found) * (TOKEN_BYTES + _ENTRY_BYTES) > DOCUMENT_BYTES:
        return False
    others = len(found) - DOCUMENT_REPEATS
    if others <= DOCUMENT_REPEATS and len(set(found[: 2 * others])) > others:
        return True  # so many different words that none can stand there 257 times; hardly so in a longer text
    return max(Counter(found).values()) <= DOCUMENT_REPEATS


def _divide(pieces: Iterator[list[str]]) -> Documents:
    """Close a document before it passes a limit, and stop at the last one a message may have."""
    rows: list[Document] = []
    current: list[str] = []
    seen: dict[str, int] = {}
    size = 0
    for piece in pieces:
        for token in piece:
            count = seen.get(token, 0)
            growth = len(token.encode()) + _ENTRY_BYTES
            if len(current) >= DOCUMENT_TOKENS or count >= DOCUMENT_REPEATS or size + growth > DOCUMENT_BYTES:
                rows.append(Document(current))
                if len(rows) == MESSAGE_DOCUMENTS:
                    return Documents(tuple(rows), complete=False)
                current, seen, size, count = [], {}, 0, 0
            current.append(token)
            seen[token] = count + 1
            size += growth
    if current:
        rows.append(Document(current))
    return Documents(tuple(rows))

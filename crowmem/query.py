"""What a query's text asks for, and how each database is asked.

Only quotes and a trailing ``*`` mean something; all else is words, whatever the text: agents write ``rm -rf`` and
``foo:bar AND (x``, and nothing may be a syntax error. Neither database reads the text: they get tokens in quotes, which
hold no ASCII punctuation, joined by the operators that `Syntax` writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from crowmem.lexer import tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

QUERY_TOKENS = 64  # what follows in a query is left out,
QUERY_PARTS = 4096  # and what follows so many of its parts, most of which are no words then
PREFIX_BYTES = 3  # a shorter prefix would read a large part of the index, and is a word
WORD_CHARACTERS = 1 << 16  # of one word or quotation; a token ends at 128 bytes anyhow

# English function words: an "any" search does not look for them while another word remains
_FUNCTION_WORDS = """
    a about an and any are as at be been but by can could did do does for from had has have he her his how i if in
    into is it its me my no not of on or our she should so some such than that the their them then there these they
    this to was we were what when where which who why will with would you your
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
_PARTS = re.compile(r'"([^"]*)"|([^\s"]+)')  # a quotation, or a word; a quote that nothing closes means nothing


class Phrase(NamedTuple):
    """Tokens that follow each other; with ``prefix`` the last is only the beginning of one."""

    tokens: tuple[str, ...]
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query.

    Attributes:
        terms: single tokens, each scored once.
        every: whether each term must occur (``match="all"``), or any one.
        must: phrases of two words or more that have to occur besides; they are not scored.
        unwanted: phrases that must not occur.
        mixed: whether quotations stand beside other words.
    """

    terms: tuple[Phrase, ...]
    every: bool
    must: tuple[Phrase, ...] = ()
    unwanted: tuple[Phrase, ...] = ()
    mixed: bool = False

    def unquoted(self) -> Query | None:
        """The query to try when this one finds nothing: quotations as words; None when that would be the same."""
        return replace(self, must=(), mixed=False) if self.mixed and self.must and not self.every else None


class _Word(NamedTuple):
    """One blank-separated word or one quotation, by its tokens."""

    tokens: tuple[str, ...]
    stems: tuple[str, ...]
    prefix: bool
    quoted: bool


def parse(text: str, *, match: str = "all", exclude: str = "", stem: bool = False) -> Query:
    """Read a query.

    Args:
        text: words; ``"a phrase"``; ``begin*``. A word of several tokens (``src/main.py``, ``20.04``) is a phrase under
            "all" and its tokens under "any".
        match: "all" or "any".
        exclude: words and phrases that must not occur.
        stem: whether the index holds stems.
    """
    every = match == "all"
    words = list(_words(text, stem))
    mixed = len({word.quoted for word in words}) > 1
    if not every:
        words = _meaningful(words)
    must = (Phrase(word.stems, word.prefix) for word in words if len(word.stems) > 1 and (every or word.quoted))
    terms = (
        Phrase((token,), word.prefix and place == len(word.stems))
        for word in words
        for place, token in enumerate(word.stems, 1)
    )
    unwanted = (Phrase(word.stems, word.prefix) for word in _words(exclude, stem))
    return Query(
        terms=tuple(dict.fromkeys(terms)),
        every=every,
        must=tuple(dict.fromkeys(must)),
        unwanted=tuple(dict.fromkeys(unwanted)),
        mixed=mixed,
    )


def _words(text: str, stem: bool) -> Iterator[_Word]:
    left = QUERY_TOKENS
    for part in islice(_PARTS.finditer(text), QUERY_PARTS):
        quoted = part[1] is not None
        piece = (part[1] if quoted else part[2])[:WORD_CHARACTERS]
        plain = tokens(piece)[:left]
        if not plain:
            continue
        stems = tokens(piece, stem=True)[:left] if stem else plain
        left -= len(plain)
        prefix = not quoted and part[2].endswith("*") and len(stems[-1].encode()) >= PREFIX_BYTES
        yield _Word(tuple(plain), tuple(stems), prefix, quoted)
        if not left:
            return


def _meaningful(words: list[_Word]) -> list[_Word]:
    """The words without function words and what is left of some (the t of don't), or all when they are nothing else."""
    kept = [word if word.quoted or word.prefix else _without_function_words(word) for word in words]
    return [word for word in kept if word.tokens] or words


def _without_function_words(word: _Word) -> _Word:
    several = len(word.tokens) > 1
    places = [
        place
        for place, token in enumerate(word.tokens)
        if token not in STOP_WORDS and not (several and len(token) == 1 and token.isascii() and token.isalpha())
    ]
    if len(places) == len(word.tokens):
        return word
    return word._replace(
        tokens=tuple(word.tokens[place] for place in places), stems=tuple(word.stems[place] for place in places)
    )


class Syntax:
    """How one database writes the same expression."""

    @staticmethod
    def of(dialect: str) -> Syntax:
        """The syntax of a dialect."""
        return Fts5() if dialect == "sqlite" else Tsquery()

    def phrase(self, phrase: Phrase) -> str:
        """Tokens that follow each other."""
        raise NotImplementedError

    def every(self, parts: Iterable[str]) -> str:
        """All parts hold; "" for none."""
        raise NotImplementedError

    def some(self, parts: Iterable[str]) -> str:
        """At least one part holds; "" for none."""
        raise NotImplementedError

    def without(self, part: str, unwanted: str) -> str:
        """The part holds and the unwanted does not; an empty unwanted changes nothing."""
        raise NotImplementedError

    def text(self, part: str) -> str:
        """The part, looked for in the text only."""
        raise NotImplementedError

    def scope(self, part: str) -> str:
        """The part, looked for among the scope words only."""
        raise NotImplementedError

    def word(self, word: str) -> str:
        """One word, such as a scope word."""
        return self.phrase(Phrase((word,)))


class Fts5(Syntax):
    """SQLite's FTS5."""

    def phrase(self, phrase: Phrase) -> str:
        """``"a b" *``."""
        return '"' + " ".join(phrase.tokens) + '"' + (" *" if phrase.prefix else "")

    def every(self, parts: Iterable[str]) -> str:
        """``(a AND b)``."""
        return _joined(parts, " AND ")

    def some(self, parts: Iterable[str]) -> str:
        """``(a OR b)``."""
        return _joined(parts, " OR ")

    def without(self, part: str, unwanted: str) -> str:
        """``(a NOT b)``."""
        return f"({part} NOT {unwanted})" if unwanted else part

    def text(self, part: str) -> str:
        """``text : (a)``."""
        return f"text : ({part})"

    def scope(self, part: str) -> str:
        """``scope : (a)``."""
        return f"scope : ({part})"


class Tsquery(Syntax):
    """PostgreSQL's tsquery."""

    def phrase(self, phrase: Phrase) -> str:
        """``('a' <-> 'b':*)``."""
        written = [f"'{token}'" for token in phrase.tokens]
        if phrase.prefix:
            written[-1] += ":*"
        return written[0] if len(written) == 1 else "(" + " <-> ".join(written) + ")"

    def every(self, parts: Iterable[str]) -> str:
        """``(a & b)``."""
        return _joined(parts, " & ")

    def some(self, parts: Iterable[str]) -> str:
        """``(a | b)``."""
        return _joined(parts, " | ")

    def without(self, part: str, unwanted: str) -> str:
        """``(a & !b)``."""
        return f"({part} & !{unwanted})" if unwanted else part

    def text(self, part: str) -> str:
        """The part itself: no text holds a scope word."""
        return part

    def scope(self, part: str) -> str:
        """The part itself."""
        return part


def _joined(parts: Iterable[str], operator: str) -> str:
    found: Sequence[str] = [part for part in parts if part]
    return found[0] if len(found) == 1 else f"({operator.join(found)})" if found else ""

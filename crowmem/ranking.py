"""The search itself: which words are looked for where, and when the answer is certain.

All index rows with a rare word of the query are scored. A common word alone can seldom lift a message over those: when
its weight proves that it cannot, the answer is complete; else the newest messages with the common words are scored too.
So the work is bounded, whatever the words and however large the store, and both databases do the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crowmem.indexing import catch_up
from crowmem.query import Syntax
from crowmem.scope import BUCKET, BUCKET_BITS, MARK
from crowmem.statement import statement
from crowmem.varints import varints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.drivers import Driver
    from crowmem.filters import Scope
    from crowmem.query import Phrase, Query

COUNTS = statement("search_counts")
RANK = statement("search_rank")

BUDGET = 50_000  # index rows scored for the rare words of a query
COUNTED = 50_001  # rows where the counting of a term ends
WINDOW = 4  # buckets of 16,384 messages: the newest 65,536 are looked at for common words
WIDER = 8  # how much larger the window becomes while it holds too few matches
MOST_BUCKETS = 256  # a window of more has no words for them: it is all messages
PAGE = 200  # windows are widened until they hold the messages of a whole number of these, so pages fit together

_K1 = 1.2
_LAGS, _NEWEST, _ROWS = -2, -1, 0  # places of search_counts

Ranked = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class _Counts:
    """How common things are: index rows in all, and those that hold each term."""

    newest: int
    rows: int
    terms: dict[Phrase, int]
    scope: int | None  # a bound of the scope's size, None when it is not small

    def weight(self, term: Phrase) -> float:
        """A term's largest share of a score."""
        count = self.terms[term]
        return (_K1 + 1) * max(math.log((max(self.rows - count, 0) + 0.5) / (count + 0.5)), 1e-6)


class Search:
    """One search over one driver.

    Args:
        driver: the driver.
        query: the parsed query.
        scope: what it is limited to.
        wanted: how many messages, offset included.
        stem: whether the index holds stems.
        exhaustive: score every match, however many there are.
    """

    def __init__(
        self, driver: Driver, query: Query, scope: Scope, wanted: int, *, stem: bool, exhaustive: bool
    ) -> None:
        self._driver = driver
        self._query = query
        self._scope = scope
        self._wanted = wanted
        self._stem = stem
        self._exhaustive = exhaustive
        self._syntax = Syntax.of(driver.dialect)
        must = self._syntax.every(map(self._syntax.phrase, query.must))
        self._must = self._syntax.text(must) if must else None

    async def run(self) -> Ranked:
        """The best messages, ``wanted`` at most: id and score, best first, newest first among equals."""
        counts = await self._count()
        living = [term for term in self._query.terms if counts.terms[term]]
        if not living or (self._query.every and len(living) < len(self._query.terms)):
            return []
        whole = self._exhaustive or (counts.scope is not None and counts.scope <= BUDGET)
        if self._query.every:
            whole = whole or min(counts.terms.values()) <= BUDGET
            expression = self._syntax.every(map(self._syntax.phrase, living))
            return _best(await (self._all if whole else self._newest)(expression, living, counts), self._wanted)
        if whole:
            return _best(await self._all(self._some(living), living, counts), self._wanted)
        return await self._any(living, counts)

    async def _any(self, living: list[Phrase], counts: _Counts) -> Ranked:
        """Rare words in full, common ones among the newest unless they cannot matter."""
        rare, common = _split(living, counts.terms)
        found: Ranked = []
        if rare:
            for expression in self._with_rare(rare, common):
                found += await self._all(expression, living, counts)
        best = _best(found, self._wanted)
        if not common:
            return best
        if len(best) == self._wanted and sum(map(counts.weight, common)) <= -best[-1][1]:
            return best
        found += await self._newest(self._some(living), living, counts)
        return _best(found, self._wanted)

    def _with_rare(self, rare: list[Phrase], common: list[Phrase]) -> list[str]:
        """Expressions that together give each row with a rare word once, its common words scored too.

        FTS5 scores the words that an expression names, and one named twice counts twice: hence two disjoint ones.
        """
        if self._driver.dialect == "postgres" or not common:
            return [self._some(rare)]
        return [
            self._syntax.every([self._some(rare), self._some(common)]),
            self._syntax.without(self._some(rare), self._some(common)),
        ]

    def _some(self, terms: Sequence[Phrase]) -> str:
        return self._syntax.some(map(self._syntax.phrase, terms))

    async def _count(self) -> _Counts:
        """How common the terms are; before that the index catches up with other programs."""
        terms = [self._syntax.phrase(term) for term in self._query.terms]
        groups = self._scope.counted()
        words = [self._syntax.word(word) for group in groups for word in group]
        places = await self._places(terms + words)
        if places[_LAGS] and not self._driver.read_only:
            await catch_up(self._driver, stem=self._stem)
            places = await self._places(terms + words)
        of_terms = {term: places[place] for place, term in enumerate(self._query.terms, 1)}
        place, sizes = len(terms) + 1, []
        for group in groups:
            sizes.append(sum(places[place + number] for number in range(len(group))))
            place += len(group)
        return _Counts(places[_NEWEST], places[_ROWS], of_terms, min(sizes, default=None))

    async def _places(self, terms: list[str]) -> dict[int, int]:
        found = await self._driver.run(COUNTS, {"terms": terms, "most": COUNTED})
        return {place: _number(number) for place, number in found}

    async def _all(self, expression: str, terms: list[Phrase], counts: _Counts) -> Ranked:
        """The best rows for an expression among all messages."""
        return await self._rank(expression, terms, counts, 0)

    async def _newest(self, expression: str, terms: list[Phrase], counts: _Counts) -> Ranked:
        """The best rows for an expression among the newest messages, as many as hold enough matches."""
        enough = -(-self._wanted // PAGE) * PAGE
        buckets = WINDOW
        while True:
            low = max(0, (counts.newest >> BUCKET_BITS) - buckets + 1) << BUCKET_BITS
            if buckets > MOST_BUCKETS:
                low = 0
            found = await self._rank(expression, terms, counts, low, enough)
            if not low or len({message_id for message_id, _ in found}) >= enough:
                return found
            buckets *= WIDER

    async def _rank(
        self, expression: str, terms: list[Phrase], counts: _Counts, low: int, enough: int | None = None
    ) -> Ranked:
        """The best rows for an expression, of enough different messages if there are so many."""
        wanted = enough or self._wanted
        unwanted = self._syntax.some(map(self._syntax.phrase, self._query.unwanted))
        match = self._scope.limit(self._syntax, self._syntax.without(expression, unwanted))
        if low and self._driver.dialect == "postgres":
            buckets = range(low >> BUCKET_BITS, (counts.newest >> BUCKET_BITS) + 1)
            match = self._syntax.every(
                [self._syntax.some(self._syntax.word(f"{MARK}{BUCKET}{bucket}") for bucket in buckets), match]
            )
        most = wanted + 16
        while True:
            found = await self._driver.run(
                RANK,
                {
                    "match": match,
                    "must": self._must,
                    "low": low,
                    "terms": [self._syntax.phrase(term) for term in terms],
                    "counts": [counts.terms[term] for term in terms],
                    "most": most,
                    **self._scope.columns(),
                },
            )
            if len(found) < most or len({message_id for message_id, _ in found}) >= wanted:
                return found
            most *= 4  # long messages have several rows


def _split(terms: list[Phrase], counts: dict[Phrase, int]) -> tuple[list[Phrase], list[Phrase]]:
    """The rarest terms while their rows are within the budget together, and the others."""
    rare: list[Phrase] = []
    rows = 0
    for term in sorted(terms, key=lambda term: counts[term]):
        rows += counts[term]
        if rows > BUDGET:
            break
        rare.append(term)
    return rare, [term for term in terms if term not in rare]


def _best(found: Ranked, wanted: int) -> Ranked:
    """The best row of each message, best first, the newer message first among equals."""
    best: dict[int, float] = {}
    for message_id, score in found:
        if score < best.get(message_id, math.inf):
            best[message_id] = score
    return sorted(best.items(), key=lambda item: (item[1], -item[0]))[:wanted]


def _number(value: int | bytes | None) -> int:
    """A count; FTS5 keeps the number of its rows as the first of a record, which is empty before the first row."""
    return next(iter(varints(value)), 0) if isinstance(value, bytes) else value or 0

"""The search itself: which words are looked for where, and when the answer is certain.

All index rows with a rare word of the query are scored. A common word alone can seldom lift a message over those: when
its weight proves that it cannot, the answer is complete; else the newest messages with the common words are scored too.
So the work is bounded, whatever the words and however large the store, and both databases do the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crowmem.errors import StoreCorrupt
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
    from crowmem.store import Store

COUNTS = statement("search_counts")
RANK = statement("search_rank")

BUDGET = 50_000  # index rows scored for the rare words of a query
COUNTED = 50_001  # rows where the counting of a term ends
WINDOW = 4  # buckets of 16,384 messages: the newest 65,536 are looked at for common words
WIDER = 8  # how much larger the window becomes while it holds too few matches
MOST_BUCKETS = 256  # a window of more has no words for them: it is all messages
SMALL = 64  # times as many rows as in the scope, and FTS5's counting of the words takes longer than all else
HEAVY = 2_000_000  # rows that FTS5 counts for its scores without a look at Ctrl-C, some 40 ms
ENOUGH = 200  # matching messages: a window of fewer is widened at once

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
        return (_K1 + 1) * self.idf(term)

    def idf(self, term: Phrase) -> float:
        """A term's inverse document frequency, as FTS5 computes it."""
        count = self.terms[term]
        found = math.log((max(self.rows - count, 0) + 0.5) / (count + 0.5))
        return found if found > 0 else 1e-6

    def given(self, terms: list[Phrase]) -> bool:
        """Whether the weights of terms are given to FTS5, which otherwise counts the words again by itself.

        It does so faster for each row found; but in a small scope the counting takes most of the time, and the counting
        of many common words hears no Ctrl-C. Of a very common prefix it alone knows the number.
        """
        if any(term.prefix and self.terms[term] >= COUNTED for term in terms):
            return False
        small = self.scope is not None and self.scope * SMALL <= self.rows
        return small or sum(self.terms[term] for term in terms) > HEAVY


class Search:
    """One search over one driver.

    Args:
        driver: the driver.
        store: the store's settings, and what is known of its words.
        query: the parsed query.
        scope: what it is limited to.
        wanted: how many messages, offset included.
        exhaustive: score every match, however many there are.
    """

    def __init__(
        self, driver: Driver, store: Store, query: Query, scope: Scope, wanted: int, *, exhaustive: bool
    ) -> None:
        self._driver = driver
        self._store = store
        self._query = query
        self._scope = scope
        self._wanted = wanted
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
            expression = self._syntax.every(map(self._syntax.phrase, living))
            if whole or min(counts.terms.values()) <= BUDGET:
                return _best(await self._all(expression, living, counts), self._wanted)
            return await self._newest(expression, living, counts, [])
        if whole:
            return _best(await self._all(self._some(living), living, counts), self._wanted)
        return await self._any(living, counts)

    async def _any(self, living: list[Phrase], counts: _Counts) -> Ranked:
        """Rare words in full, common ones among the newest unless they cannot matter."""
        rare, common = _split(living, counts.terms)
        found: Ranked = []
        if rare:
            for expression in self._with_rare(rare, common):
                found += await self._all(expression, [*rare, *common], counts)
        best = _best(found, self._wanted)
        if not common:
            return best
        if len(best) == self._wanted and sum(map(counts.weight, common)) <= -best[-1][1]:
            return best
        return await self._newest(self._some(living), living, counts, found)

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
        terms = {term: self._syntax.phrase(term) for term in self._query.terms}
        groups = [[self._syntax.word(word) for word in group] for group in self._scope.counted()]
        words = [*terms.values(), *(word for group in groups for word in group)]
        places, counts = await self._counted(words)
        if places[_LAGS] and not self._driver.read_only:
            await catch_up(self._driver, stem=self._store.stem)
            places, counts = await self._counted(words)
        sizes = [sum(counts[word] for word in group) for group in groups]
        of_terms = {term: counts[word] for term, word in terms.items()}
        return _Counts(places[_NEWEST], places[_ROWS], of_terms, min(sizes, default=None))

    async def _counted(self, words: list[str]) -> tuple[dict[int, int], dict[str, int]]:
        """What search_counts tells besides, and in how many rows each word stands: remembered, or counted now."""
        remembered = self._store.frequencies
        counts: dict[str, int] = {}
        likely = remembered.known(words)
        places = await self._places([word for word in words if word not in likely], counts)
        known = remembered.known(words, places[_ROWS]) | counts
        changed = [word for word in words if word not in known]
        if changed:
            places = await self._places(changed, known)
        return places, known

    async def _places(self, words: list[str], counts: dict[str, int]) -> dict[int, int]:
        """Count words, and remember what is worth it where counting is exact, but takes long."""
        found = await self._driver.run(COUNTS, {"terms": words, "most": COUNTED})
        places = {place: _number(number) for place, number in found}
        for place, word in enumerate(words, 1):
            counts[word] = places[place]
            if self._driver.dialect == "sqlite" and not word.endswith("*"):
                self._store.frequencies.learn(word, places[place], places[_ROWS])
        return places

    async def _all(self, expression: str, terms: list[Phrase], counts: _Counts) -> Ranked:
        """The best rows for an expression among all messages."""
        return await self._rank(expression, terms, counts, 0)

    async def _newest(self, expression: str, terms: list[Phrase], counts: _Counts, others: Ranked) -> Ranked:
        """The best of the newest messages and some others, then what older messages add to them, the newer first.

        How far each of these steps goes does not depend on how many messages are wanted: so pages fit together.
        """
        best: Ranked = []
        buckets = WINDOW
        while True:
            low = max(0, (counts.newest >> BUCKET_BITS) - buckets + 1) << BUCKET_BITS
            if buckets > MOST_BUCKETS:
                low = 0
            found = await self._rank(expression, terms, counts, low, max(ENOUGH, self._wanted))
            if not low or len({message_id for message_id, _ in found}) >= ENOUGH:
                before = {message_id for message_id, _ in best}
                best += [one for one in _best([*others, *found], self._wanted) if one[0] not in before]
                if not low or len(best) >= self._wanted:
                    return best[: self._wanted]
            buckets *= WIDER

    async def _rank(
        self, expression: str, terms: list[Phrase], counts: _Counts, low: int, enough: int | None = None
    ) -> Ranked:
        """The best rows for an expression, of enough different messages if there are so many.

        The terms are in the order of the expression.
        """
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
                    "weights": [0] * self._scope.words + list(map(counts.idf, terms)) if counts.given(terms) else None,
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
        if score is None:  # no number came out
            raise StoreCorrupt("the search index's counts of rows and words are damaged; run `crowmem reindex`")
        if score < best.get(message_id, math.inf):
            best[message_id] = score
    return sorted(best.items(), key=lambda item: (item[1], -item[0]))[:wanted]


def _number(value: int | bytes | None) -> int:
    """A count; FTS5 keeps the number of its rows as the first of a record, which is empty before the first row."""
    return next(iter(varints(value)), 0) if isinstance(value, bytes) else value or 0

"""In how many index rows common words stand, as one process remembers it.

SQLite's index keeps no such number: it is counted by reading the word's whole list, which at five million messages
takes longer than all else a search in one session does. So the count of a common word is kept until it may be wrong by
a hundredth; rare words, and those of small stores, are counted each time.
"""

from __future__ import annotations

SMALL_STORE = 20_000  # index rows of a store where nothing is remembered: counting them all takes a fraction of a ms
COMMON = 1000  # rows of a word that is worth remembering: counting fewer takes some 10 us
CHANGED = 0.01  # rows that may come or go before a word is counted again, as a share of those that have the word
MOST = 20_000  # words remembered; past it all are forgotten


class Frequencies:
    """Counts of common words, by word as the index is asked for it."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}  # the word's rows, and all rows when they were counted

    def known(self, words: list[str], rows: int | None = None) -> dict[str, int]:
        """The numbers of the words that are remembered.

        Args:
            words: any words.
            rows: index rows there are now; None: not known yet, every number will do.
        """
        found = {}
        for word in words:
            count, then = self._counts.get(word, (0, 0))
            if count and (rows is None or abs(rows - then) <= CHANGED * count):
                found[word] = count
        return found

    def learn(self, word: str, count: int, rows: int) -> None:
        """Remember a count if it is worth it."""
        if count > COMMON and rows > SMALL_STORE:
            if len(self._counts) >= MOST:
                self._counts.clear()
            self._counts[word] = (count, rows)

    def forget(self) -> None:
        """The index is made anew: count again."""
        self._counts.clear()

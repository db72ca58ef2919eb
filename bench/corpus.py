"""A made-up history of any size, the same on every machine: real words, Zipf's law, long and short messages, sessions.

The words are those of the shared transcripts and collections, the commonest first, then made-up ones, to 400,000; a
made-up vocabulary alone where that data is absent. Word r is drawn in proportion to 1 / (r + 2.7) ** 1.07, and a
quarter of the places of a message repeat an earlier word of it, as texts do. Lengths are lognormal, median 60 words;
four sessions are written at a time. A million messages take some minutes once and 1 GB in the cache folder.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 7
WORDS = 400_000
MEDIAN_WORDS, SPREAD, MOST_WORDS = 60, 1.3, 5000
LIVE_SESSIONS = 4
SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
_SYLLABLES = ("ba", "ko", "ti", "re", "su", "ma", "ne", "lo", "vi", "da", "shi", "par", "con", "qu", "zer", "mo", "in")
_WORD = re.compile(r"[a-z0-9]+")
_ESCAPE = re.compile(r"\\+(?:u[0-9a-f]{4}|.)")  # the files are JSON: an escape's letter is no word


class Line(NamedTuple):
    """One message of the corpus."""

    session: str
    role: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk.

    Attributes:
        path: one message a line: session, role and text, separated by tabs.
        count: messages.
        frequencies: word → number of messages that hold it, commonest first.
        text_bytes: the length of all texts.
    """

    path: Path
    count: int
    frequencies: dict[str, int]
    text_bytes: int

    def lines(self) -> Iterator[Line]:
        """The messages, in order."""
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                yield Line(*line.rstrip("\n").split("\t"))

    def near(self, share: float, number: int) -> list[str]:
        """The words whose share of the messages is nearest to a wanted one.

        Args:
            share: 0.01 for words in one of a hundred messages.
            number: how many words.
        """
        wanted = math.log(share * self.count)
        ranked = sorted(self.frequencies, key=lambda word: abs(math.log(self.frequencies[word]) - wanted))
        return sorted(ranked[:number])


def corpus(count: int) -> Corpus:
    """The corpus of so many messages, made when it is not in the cache yet."""
    folder = Path(os.environ.get("CROWMEM_BENCH_CACHE", "~/.cache/crowmem-bench")).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"corpus-{SEED}-{count}.tsv"
    about = path.with_suffix(".json")
    if not about.exists():
        draft = path.with_suffix(".part")
        found = _write(draft, count)
        draft.replace(path)
        about.write_text(json.dumps(found), encoding="utf-8")
    known = json.loads(about.read_text(encoding="utf-8"))
    return Corpus(path, count, known["frequencies"], known["text_bytes"])


def _write(path: Path, count: int) -> dict[str, Any]:
    rng = random.Random(SEED)
    words = _vocabulary()
    weights = list(accumulate(1 / (rank + 2.7) ** 1.07 for rank in range(1, WORDS + 1)))
    sessions = _sessions(rng)
    frequencies: Counter[str] = Counter()
    text_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            length = min(MOST_WORDS, max(1, round(rng.lognormvariate(math.log(MEDIAN_WORDS), SPREAD))))
            found = rng.choices(words, cum_weights=weights, k=length)
            for place in range(1, length):
                if rng.random() < 0.25:
                    found[place] = found[int(rng.random() * place)]
            frequencies.update(set(found))
            text = " ".join(found)
            text_bytes += len(text)
            role = rng.choice(("user", "assistant", "assistant", "tool"))
            file.write(f"{next(sessions)}\t{role}\t{text}\n")
    return {"frequencies": dict(frequencies.most_common()), "text_bytes": text_bytes}


def _sessions(rng: random.Random) -> Iterator[str]:
    """Session names: four are being written at any time, each until its lognormal size is reached."""
    started = 0
    live: list[list[int]] = []
    while True:
        while len(live) < LIVE_SESSIONS:
            live.append([started, max(2, int(rng.lognormvariate(math.log(100), 1.2)))])
            started += 1
        one = rng.choice(live)
        yield f"session-{one[0]}"
        one[1] -= 1
        if one[1] <= 0:
            live.remove(one)


def _vocabulary() -> list[str]:
    """Real words by frequency, then made-up ones."""
    counts: Counter[str] = Counter()
    for file in sorted(SHARED.rglob("*.json*")) if SHARED.is_dir() else []:
        text = file.read_text(encoding="utf-8", errors="replace").lower()
        counts.update(_WORD.findall(_ESCAPE.sub(" ", text)))
    words = dict.fromkeys(word for word, _ in counts.most_common(WORDS) if len(word) <= 24)
    number = 0
    while len(words) < WORDS:
        words[_made_up(number)] = None
        number += 1
    return list(words)


def _made_up(number: int) -> str:
    word = ""
    while True:
        number, syllable = divmod(number, len(_SYLLABLES))
        word += _SYLLABLES[syllable]
        if not number:
            return word
        number -= 1

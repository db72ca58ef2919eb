"""How good the answers are: nDCG@10 and recall@100 on three judged collections, for every mode, on both databases.

Run: python bench/relevance.py [--dialect sqlite] [--only cacm] [--out results.jsonl]
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from typing import TYPE_CHECKING, Any

from corpus import SHARED
from harness import NOTHING, OURS, Report, arguments, folder_on_disk, loopback, postgres

from crowmem import Memory
from crowmem.statement import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECTIONS = ("cranfield", "cacm", "cisi")
BARS = {  # least nDCG@10 of match="any": whole words, stems
    "cranfield": (0.52, 0.54),
    "cacm": (0.37, 0.42),
    "cisi": (0.29, 0.32),
}
MODES = ("any", "all")
APART = 0.00005  # nDCG of the two databases: equal to four decimals


def lines(name: str) -> list[dict[str, Any]]:
    """The objects of a file of the shared collections."""
    return [json.loads(line) for line in (SHARED / "ir" / name).read_text(encoding="utf-8").splitlines()]


def ndcg(found: list[int], relevant: dict[str, int], depth: int = 10) -> float:
    """Normalised discounted cumulative gain; a grade g gains 2 ** g - 1.

    Source: Burges et al., "Learning to Rank using Gradient Descent", 2005.
    """

    def gained(grades: list[int]) -> float:
        return sum((2**grade - 1) / math.log2(place + 2) for place, grade in enumerate(grades[:depth]))

    return gained([relevant.get(str(document), 0) for document in found]) / gained(
        sorted(relevant.values(), reverse=True)
    )


def recall(found: list[int], relevant: dict[str, int], depth: int = 100) -> float:
    """The share of the relevant documents among the first ones found."""
    return len({str(document) for document in found[:depth]} & set(relevant)) / len(relevant)


def measure(report: Report, name: str, dialect: str, memory: Memory, stem: bool) -> list[float]:
    """Store a collection and ask all its questions; nDCG@10 of each mode."""
    report.begins(f"{name}{' stems' if stem else ''} {dialect}")
    documents = lines(f"{name}.jsonl")
    ids = memory.messages.add_many(f"{name}-1-1", [{"role": "user", "content": one["text"]} for one in documents])
    of_message = dict(zip(ids, (one["id"] for one in documents), strict=True))
    if stem:
        memory.search.reindex(stem=True)
    queries = lines(f"{name}.queries.jsonl")
    values = []
    for mode in MODES:
        answers = [
            [of_message[hit.id] for hit in memory.search.messages(query["text"], match=mode, limit=100)]
            for query in queries
        ]
        pairs = list(zip(answers, (query["rel"] for query in queries), strict=True))
        value = statistics.mean(ndcg(found, relevant) for found, relevant in pairs)
        values.append(value)
        bar = BARS[name][stem] if mode == "any" else None
        empty = sum(not found for found in answers)
        report.row(
            f"{name} {mode}{' stems' if stem else ''}",
            f"{OURS} {dialect}",
            ndcg_10=round(value, 4),
            recall_100=round(statistics.mean(recall(found, relevant) for found, relevant in pairs), 4),
            empty=empty,
            queries=len(queries),
            **({} if bar is None else {"bar": bar, "holds": value >= bar and not empty}),
        )
    return values


def stores(report: Report, name: str, stem: bool) -> Iterator[tuple[str, Memory]]:
    """An empty store of each dialect."""
    if report.wants_dialect("sqlite"):
        with folder_on_disk() as folder, Memory.open(folder / "crow.db") as memory:
            yield "sqlite", memory
    if report.wants_dialect("postgres"):
        with postgres(report) as server, Memory.open(loopback(server, f"{name}_{int(stem)}")) as memory:
            yield "postgres", memory


def main() -> None:
    """Measure every collection, with whole words and with stems."""
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    if not (SHARED / "ir").is_dir():
        print(f"relevance: the judged collections are not at {SHARED / 'ir'}: left out", file=sys.stderr)
        raise SystemExit(NOTHING)
    report = Report("relevance", options)
    for name in COLLECTIONS:
        for stem in (False, True):
            if report.wants(name):
                found = [measure(report, name, dialect, memory, stem) for dialect, memory in stores(report, name, stem)]
                if len(found) == len(DIALECTS):
                    apart = max(abs(one - other) for one, other in zip(*found, strict=True))
                    report.row(f"{name}{' stems' if stem else ''}", "both", apart=apart, bar=APART, holds=apart < APART)
    report.table()


if __name__ == "__main__":
    main()

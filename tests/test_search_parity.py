"""Both databases give the same answer: the same messages, in the same order, with the same scores."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import apsw
import hostile
import psycopg
import pytest
from data import shared_data, transcript_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowmem import Memory, frequencies, ranking
from crowmem.filters import scope_of
from crowmem.lexer import documents
from crowmem.operation import drive
from crowmem.query import parse
from crowmem.scope import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crowmem.records import Hit

SCORES = 1e-9
QUICK = 1500  # queries of each kind of store
LONG = int(os.environ.get("CROWMEM_FUZZ_ROUNDS", "20000"))


class Pair:
    """The same messages in a SQLite and a PostgreSQL store."""

    def __init__(self, *stores: Memory) -> None:
        self.stores = stores
        self.texts: list[str] = []

    def add(self, texts: list[str], session: str = "s") -> None:
        """Add messages to both stores, the same ids in both."""
        for store in self.stores:
            store.messages.add_many(f"{session}-1-1", [{"role": "user", "content": text} for text in texts])
        self.texts += texts

    def find(self, **arguments: Any) -> list[list[Hit]]:
        """What each store finds."""
        return [store.search.messages(**arguments) for store in self.stores]

    def check(self, **arguments: Any) -> int:
        """Both find the same; how many hits."""
        one, two = self.find(**arguments)
        if one != two:  # scores may differ in the last bits, and the order of equals with them
            assert {hit.id for hit in one} == {hit.id for hit in two}, arguments
            scores = {hit.id: hit for hit in two}
            for hit, other in zip(one, two, strict=True):
                assert hit.score == pytest.approx(other.score, abs=SCORES), arguments
                assert hit.score == pytest.approx(scores[hit.id].score, abs=SCORES), arguments
                assert hit.snippet == scores[hit.id].snippet
        return len(one)


@pytest.fixture
def pair(tmp_path: Path, pg_clean: str) -> Iterator[Pair]:
    with Memory.open(tmp_path / "crow.db") as sqlite, Memory.open(pg_clean) as postgres:
        yield Pair(sqlite, postgres)


def ranked(
    store: Memory, stem: bool, session: str | None, query: str, match: str, exclude: str | None
) -> list[tuple[int, float]]:
    """What a search finds, without the messages: the giants take long to load."""
    asked = parse(query, match=match, exclude=exclude or "", stem=stem)
    scope = scope_of(session_id=session)
    search = ranking.Search(store.search._driver, store.search._store, asked, scope, 1000, exhaustive=False)
    return drive(search.run()) if asked.terms else []


def fuzz(pair: Pair, seed: int, count: int, stem: bool) -> None:
    """Random texts and random queries of every form."""
    rng = random.Random(seed)
    if stem:
        for store in pair.stores:
            store.search.reindex(stem=True)
    for place in range(70):
        pair.add([hostile.text(rng) for _ in range(10)], f"s{place}")
    pair.add(hostile.giants() + real_texts(200))
    found = 0
    for number in range(count):
        query = hostile.query(rng, pair.texts)
        session = rng.choice((None, None, None, f"s{rng.randrange(70)}"))
        one, two = (ranked(store, stem, session, **query) for store in pair.stores)
        assert dict(one) == pytest.approx(dict(two), abs=SCORES), query
        found += bool(one)
        if number % 20 == 0:
            pair.check(**query, limit=1000)
    assert found > count / 4  # else nothing was compared


def real_texts(count: int) -> list[str]:
    """Lines of the shared transcripts, as they are."""
    rng = random.Random(3)
    files = transcript_files("claude-code", "codex-rollout", "multilingual")
    lines = [
        line
        for path in rng.sample(files, min(len(files), 30))
        for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    ]
    return [line[:4000] for line in rng.sample(lines, min(len(lines), count))]


@pytest.mark.parametrize("stem", [False, True])
def test_random_queries_give_the_same_hits_and_scores(pair: Pair, stem: bool) -> None:
    fuzz(pair, 20 + stem, QUICK, stem)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stem", [False, True])
@pytest.mark.parametrize("seed", range(100, 102))
def test_twenty_thousand_random_queries_of_each_kind(pair: Pair, stem: bool, seed: int) -> None:
    fuzz(pair, seed, LONG // 2, stem)


def test_queries_that_hypothesis_makes_up(pair: Pair) -> None:
    rng = random.Random(31)
    pair.add([hostile.text(rng) for _ in range(300)])
    pieces = st.one_of(st.text(max_size=12), st.sampled_from(hostile.PIECES), st.sampled_from(hostile.COMMON))

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(st.lists(pieces, max_size=6), st.sampled_from(["", " ", '"', "*", '" "']), st.sampled_from(["all", "any"]))
    def check(words: list[str], glue: str, match: str) -> None:
        pair.check(query=glue.join(words), match=match, exclude=words[0] if len(words) > 3 else None, limit=1000)

    check()


def test_term_frequencies_up_to_256_are_read_from_ts_rank_exactly(pair: Pair) -> None:
    pair.add([" ".join(["word"] * count) + f" t{count}" for count in range(1, 256)] + ["other"] * 300)
    one, two = pair.find(query="word", limit=1000)
    assert [hit.id for hit in one] == [hit.id for hit in two]
    assert all(hit.score == pytest.approx(other.score, abs=1e-12) for hit, other in zip(one, two, strict=True))
    assert len({hit.score for hit in one}) == 255
    with psycopg.connect(pair.stores[1].status().where) as connection:
        for count in range(257):
            text = "'x':1" if not count else "'word':" + ",".join(map(str, range(1, count + 1)))
            [value] = connection.execute(
                "select coalesce(crowmem_share(%s::tsvector, 'word', false, 1, 1), 0)", (text,)
            ).fetchone() or [None]
            assert value == pytest.approx(count / (count + 1), abs=1e-12)


def test_prefixes_count_each_place_of_each_word(pair: Pair) -> None:
    pair.add(["conf " * 3 + "config " * 5 + "configure", "conf config", "confab " * 200 + "confer", "hay"])
    assert pair.check(query="conf*") == 3
    assert pair.check(query="conf* hay", match="any") == 4


@pytest.mark.parametrize("match", ["all", "any"])
def test_common_words_rank_the_newest_messages_on_both(pair: Pair, monkeypatch: pytest.MonkeyPatch, match: str) -> None:
    """As in a large store: with a small budget few words are rare, and the windows matter."""
    monkeypatch.setattr(ranking, "BUDGET", 40)
    rng = random.Random(33)
    words = [f"w{number}" for number in range(60)]
    weights = [1 / (number + 1) for number in range(60)]
    for session in range(10):
        pair.add([" ".join(rng.choices(words, weights, k=rng.randint(1, 30))) for _ in range(100)], f"s{session}")
    for _ in range(100):
        query = " ".join(rng.choices(words, weights, k=rng.randint(1, 4)))
        session = rng.choice([None, None, "s1", "s7"])
        for limit in (1, 10, 200):
            pair.check(query=query, match=match, limit=limit, session_id=session)
        pair.check(query=query, match=match, limit=10, offset=15, roles=["user"])
        whole, bounded = (
            pair.find(query=query, match=match, limit=1000, exhaustive=exhaustive)[0] for exhaustive in (True, False)
        )
        assert whole == bounded  # one bucket holds them all


@pytest.mark.parametrize("budget", [20, ranking.BUDGET])
def test_given_weights_score_as_fts5_does(pair: Pair, monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    """In a small scope, and for heavy words, FTS5 does not count the words itself: the scores are the same to the last bit."""
    monkeypatch.setattr(ranking, "BUDGET", budget)
    monkeypatch.setattr(ranking, "HEAVY", -1)
    rng = random.Random(37)
    for number in range(150):
        pair.add([hostile.text(rng) for _ in range(rng.randint(1, 6))], f"s{number}")
    found = 0
    for _ in range(200):
        query = hostile.query(rng, pair.texts)
        limits: dict[str, Any] = rng.choice(
            [
                {},
                {"session_id": f"s{rng.randrange(150)}"},
                {"agent_ids": [f"s{rng.randrange(150)}-1-1", f"s{rng.randrange(150)}-1-1"], "roles": ["user"]},
                {"session_id": f"s{rng.randrange(150)}", "agent_idx": 1, "include_forks": False, "injected": False},
            ]
        )
        limits["limit"] = rng.choice((1, 10, 1000))
        if limits["limit"] == 1000:
            found += pair.check(**query, **limits)
        given = pair.stores[0].search.messages(**query, **limits)
        with monkeypatch.context() as patched:
            patched.setattr(ranking, "SMALL", 1 << 40)
            patched.setattr(ranking, "HEAVY", 1 << 40)
            own = pair.stores[0].search.messages(**query, **limits)
        assert given == own, (query, limits)
    assert found > 100


def test_common_words_are_counted_again_when_they_may_have_changed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequencies, "SMALL_STORE", 100)
    monkeypatch.setattr(frequencies, "COMMON", 50)
    store = pair.stores[0]
    asked: list[list[str]] = []
    inner = store.search._driver

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        async def run(self, statement: Any, params: Any) -> Any:
            if statement is ranking.COUNTS:
                asked.append(params["terms"])
            return await inner.run(statement, params)

    def words() -> list[str]:
        asked.clear()
        store.search.messages("common rare", match="any", session_id="s7")
        return [word.strip('"').removeprefix(MARK) for some in asked for word in some]

    def equal() -> bool:
        return pair.check(query="common rare", match="any", session_id="s7", limit=100) > 0

    monkeypatch.setattr(store.search, "_driver", Watched())
    for number in range(100):
        pair.add(["common word", "common rare", "other", f"n{number}"], f"s{number}")
    assert words() == ["common", "rare", "ss7"]
    assert words() == ["ss7"]
    assert equal()
    pair.add(
        ["common"], "s7"
    )  # half a hundredth of the rows with the word, and all of a hundredth of those with the other
    assert words() == ["ss7"]
    pair.add(["common"] * 2, "s7")
    assert words() == ["ss7", "common", "rare"]
    assert equal()
    for both in pair.stores:
        both.agents.create("s3-1-1", "s3")
        assert both.sessions.delete("s3")
    assert words() == ["ss7", "common", "rare"]
    assert equal()
    store.search.reindex()
    assert words() == ["common", "rare", "ss7"]


def test_pages_fit_together_over_windows_of_the_newest(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of 40 windows' worth of ids: what is wanted must not decide which of them are ranked."""
    monkeypatch.setattr(ranking, "BUDGET", 40)
    rng = random.Random(38)
    words = [f"w{number}" for number in range(60)]
    weights = [1 / (number + 1) for number in range(60)]
    sqlite, postgres = (store.status().where for store in pair.stores)
    for number in range(1, 41):
        pair.add([" ".join(rng.choices(words, weights, k=rng.randint(1, 30))) for _ in range(50)], f"s{number}")
        apsw.Connection(sqlite).execute("update sqlite_sequence set seq = ? where name = 'messages'", (number << 14,))
        with psycopg.connect(postgres) as connection:
            connection.execute("select setval(pg_get_serial_sequence('messages', 'id'), %s)", (number << 14,))
    for query, match in (("w0", "all"), ("w3 w5", "all"), ("w10", "any"), ("w2 w4 w6", "all"), ("w1 w9 w50", "any")):
        whole = [[hit.id for hit in found] for found in pair.find(query=query, match=match, limit=700)]
        assert sorted(whole[0]) == sorted(whole[1])
        assert len(whole[0]) > 200, query
        for store, expected in zip(pair.stores, whole, strict=True):
            pages = [store.search.messages(query, match=match, limit=30, offset=first) for first in range(0, 700, 30)]
            assert [hit.id for page in pages for hit in page][: len(expected)] == expected, query
        for first in (0, 190, 270):
            pair.check(query=query, match=match, limit=30, offset=first)


def test_with_many_rows_counted_frequencies_give_equal_scores(pair: Pair) -> None:
    rng = random.Random(34)
    words = [f"w{number}" for number in range(2000)]
    weights = [1 / (number + 3) for number in range(2000)]
    texts = [" ".join(rng.choices(words, weights, k=8)) for _ in range(24_000)]
    pair.add(texts[:23_000])
    for store in pair.stores:
        store.search.optimize()
    for _ in range(100):
        query = " ".join(rng.choices(words, weights, k=rng.randint(1, 4)))
        for match in ("all", "any"):
            pair.check(query=query, match=match, limit=10)
    pair.add(texts[23_000:], "later")  # from now on frequencies are scaled, not counted
    same = 0
    for _ in range(100):
        query = " ".join(rng.choices(words, weights, k=rng.randint(1, 4)))
        one, two = pair.find(query=query, match="any", limit=10)
        same += len({hit.id for hit in one} & {hit.id for hit in two}) / max(1, len(one))
    assert same / 100 >= 0.95
    for store in pair.stores:
        store.search.optimize()
    for _ in range(50):
        query = " ".join(rng.choices(words, weights, k=rng.randint(1, 4)))
        pair.check(query=query, match="any", limit=10)


def test_every_piece_of_an_unspaced_text_finds_its_message(pair: Pair) -> None:
    """Chinese, Japanese, Thai: pieces of 1 to 6 characters from runs of such a script, drawn from 500 messages."""
    rng = random.Random(35)
    texts = unspaced_messages()
    rng.shuffle(texts)
    pair.add(texts[:500])
    assert len(pair.texts) == 500
    for number, text in enumerate(pair.texts, 1):
        run = rng.choice(runs(text))
        start = rng.randrange(len(run))
        piece = run[start : start + rng.randint(1, 6)]
        if not documents(piece).rows:
            continue  # a vowel sign alone
        one, two = pair.find(query=piece, limit=1000)
        assert number in {hit.id for hit in one}, piece
        assert {hit.id for hit in one} == {hit.id for hit in two}


THAI = "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอน ผู้ใช้ต้องการค้นหาข้อความด้วยคำใดก็ได้ในประโยค"


def unspaced_messages() -> list[str]:
    """The texts of the multilingual transcripts that hold a script without spaces, paragraph by paragraph."""
    found: list[str] = [THAI[start:] for start in range(0, 60, 3)]

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.extend(part for part in value.split("\n") if runs(part))
        else:
            for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                walk(inner)

    for path in sorted(shared_data("transcripts", "multilingual").glob("*.json*")):
        text = path.read_text(encoding="utf-8")
        for part in [text] if path.suffix == ".json" else text.splitlines():
            walk(json.loads(part))
    return list(dict.fromkeys(found))


def runs(text: str) -> list[str]:
    """The runs of a script written without spaces."""
    from crowmem.lexer import unspaced_run

    return unspaced_run().findall(text)

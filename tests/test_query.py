"""What a query means, how each database is asked, and the piece of text that is shown."""

import random

import hostile
import pytest

from crowmem.query import QUERY_TOKENS, STOP_WORDS, Fts5, Phrase, Tsquery, parse
from crowmem.snippet import LENGTH, Snippets


def words(query):
    return [" ".join(term.tokens) + "*" * term.prefix for term in query.terms]


def snippet(text, terms, *, stem=False):
    return Snippets(terms, stem=stem).of(text)


def phrases(query):
    return [" ".join(phrase.tokens) + "*" * phrase.prefix for phrase in query.must]


@pytest.mark.parametrize(
    ("text", "terms", "must"),
    [
        ("main src", ["main", "src"], []),
        ("src/main.py", ["src", "main", "py"], ["src main py"]),
        ("snake_case C++ 20.04", ["snake", "case", "c", "20", "04"], ["snake case", "20 04"]),
        ('"main src" main', ["main", "src"], ["main src"]),
        ('"main"', ["main"], []),
        ("conf* ab* 数*", ["conf*", "ab", "数*"], []),
        ("src/conf*", ["src", "conf*"], ["src conf*"]),
        ("悬空", ["悬", "空"], ["悬 空"]),
        ("rm -rf main", ["rm", "rf", "main"], []),
        ("foo:bar AND (x", ["foo", "bar", "and", "x"], ["foo bar"]),
        ('say "hello', ["say", "hello"], []),
        ('5" disk', ["5", "disk"], []),
        ("the commit", ["the", "commit"], []),
    ],
)
def test_all(text, terms, must):
    query = parse(text)
    assert (words(query), phrases(query), query.every) == (terms, must, True)


@pytest.mark.parametrize(
    ("text", "terms", "must"),
    [
        ("src/main.py", ["src", "main", "py"], []),
        ("why did the commit time out", ["commit", "time", "out"], []),
        ("to be or not to be", ["to", "be", "or", "not"], []),
        ('"to be" commit', ["to", "be", "commit"], ["to be"]),
        ('"commit" lock', ["commit", "lock"], []),
        ("I don't, e.g. t/nroff, the C compiler", ["don", "nroff", "c", "compiler"], []),
        ("数a-b", ["数"], []),
        ("e.g.", ["e", "g"], []),
        ("the*", ["the*"], []),
    ],
)
def test_any(text, terms, must):
    query = parse(text, match="any")
    assert (words(query), phrases(query), query.every) == (terms, must, False)


@pytest.mark.parametrize("text", ["", "  \n", "!!!", "''", "*", '"', '""', "\x00", "\ud83d", "\ue000", "- -- {"])
def test_nothing_to_look_for(text):
    assert parse(text).terms == parse(text, match="any").terms == ()


def test_a_query_keeps_64_tokens_and_cuts_each_at_128_bytes():
    query = parse(" ".join(f"w{number}" for number in range(1000)))
    assert len(query.terms) == QUERY_TOKENS
    assert words(parse("x" * 5000)) == ["x" * 128]
    assert words(parse("x" * 10_000_000)) == ["x" * 128]
    assert sum(len(phrase.tokens) for phrase in parse("a-b-c-d " * 50).must) <= QUERY_TOKENS


def test_a_query_of_anything_but_words_is_read_only_so_far():
    assert parse("! " * 4000 + "word").terms == parse("word").terms
    assert parse("! " * 4096 + "word").terms == ()


def test_stems_of_a_stemming_store():
    query = parse("running organizations* use* the", match="any", stem=True)
    assert words(query) == ["run", "organ*", "us"]  # a stem of two bytes is no prefix
    assert words(parse("were", match="any", stem=True)) == ["were"]


def test_only_failing_quotations_beside_other_words_are_tried_as_words():
    assert parse('"commit now" lock', match="any").unquoted() == parse("commit now lock", match="any")
    for text, match in (('"commit now"', "any"), ("commit now", "any"), ('"commit now" lock', "all")):
        assert parse(text, match=match).unquoted() is None


def test_exclusions_are_words_and_phrases():
    query = parse("lock", exclude='timeout "dead lock" src/main* the')
    assert query.unwanted == (
        Phrase(("timeout",)),
        Phrase(("dead", "lock")),
        Phrase(("src", "main"), prefix=True),
        Phrase(("the",)),
    )


def test_stop_words_are_plain_tokens():
    assert all(parse(word).terms == (Phrase((word,)),) for word in STOP_WORDS)


def test_both_databases_are_asked_the_same():
    one, two = Phrase(("a", "b"), prefix=True), Phrase(("c",))
    expected = {
        Fts5: '(("a b" * OR "c") NOT "c")',
        Tsquery: "((('a' <-> 'b':*) | 'c') & !'c')",
    }
    for kind, text in expected.items():
        syntax = kind()
        either = syntax.some([syntax.phrase(one), syntax.phrase(two)])
        assert syntax.without(either, syntax.phrase(two)) == text
        assert syntax.every([]) == syntax.some([]) == ""
        assert syntax.every([syntax.phrase(two)]) == syntax.phrase(two)
    assert Fts5().text('"c"') == 'text : ("c")'


def test_any_text_is_a_query():
    rng = random.Random(11)
    for _ in range(2000):
        for match in ("all", "any"):
            query = parse(hostile.text(rng)[:500], match=match, exclude=hostile.piece(rng))
            for phrase in (*query.terms, *query.must, *query.unwanted):
                assert phrase.tokens
                assert not any(set(token) & set("\"'\\\0 ") for token in phrase.tokens)


@pytest.mark.parametrize(
    ("text", "asked", "shown"),
    [
        ("Edit src/main.py, then mail", "main.py", "Edit src/«main».«py», then mail"),
        ("Le café est fermé. CAFE\u0301!", "cafe", "Le «café» est fermé. «CAFE\u0301»!"),
        ("重跑gen-itgc后50条悬空引用", "悬空 itgc", "重跑gen-«itgc»后50条«悬空»引用"),
        ("HTTPServer2 http httpd", "http*", "«HTTPServer2» «http» «httpd»"),
        ("a\x00b \ud83d z", "z", "a\ufffdb \ufffd «z»"),
        ("two\n\n  lines\tof text", "lines", "two «lines» of text"),
        ("subway bypass way", "way", "subway bypass «way»"),
        ("nothing here", "else", "nothing here"),
        ("", "else", ""),
    ],
)
def test_snippets(text, asked, shown):
    assert snippet(text, parse(asked).terms) == shown


def test_a_snippet_shows_the_place_with_the_most_words():
    text = "alpha " + "filler " * 100 + "alpha beta gamma " + "filler " * 100 + "alpha beta"
    shown = snippet(text, parse("alpha beta gamma").terms)
    assert "«alpha» «beta» «gamma»" in shown
    assert shown.startswith("…filler")
    assert shown.endswith("filler…")
    assert len(shown) <= LENGTH + 8


def test_a_snippet_of_stems_marks_the_words():
    assert snippet("He was running", parse("runs", stem=True).terms, stem=True) == "He was «running»"


def test_a_match_longer_than_a_snippet_is_cut():
    shown = snippet("x" * 5000 + " after", parse("x" * 5000).terms)
    assert shown == "«" + "x" * LENGTH + "»…"


def test_letters_within_other_words_are_looked_at_only_so_far():
    assert snippet("ha " * 3000 + "a", parse("a").terms).endswith("ha ha «a»")
    assert "«" not in snippet("ha " * 4000 + "a", parse("a").terms)
    assert snippet("ha " * 4000 + "needle", parse("needle").terms).endswith("ha «needle»")


def test_any_text_has_a_snippet():
    rng = random.Random(12)
    for text in [hostile.text(rng) for _ in range(500)] + hostile.giants():
        for stem in (False, True):
            shown = snippet(text, parse(hostile.text(rng)[:200], match="any", stem=stem).terms, stem=stem)
            assert "\n" not in shown
            shown.encode()

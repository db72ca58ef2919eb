"""The lexer: tokens, index rows and their limits."""

import multiprocessing
import random
import re
import sys
import threading
import unicodedata

import apsw
import hostile
import pytest
from data import shared_data

from crowmem import lexer
from crowmem.lexer import documents, located, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Edit src/main.py, HTTPServer2", ["edit", "src", "main", "py", "httpserver2"]),
        (
            "x = -5; v1.2.3 state-of-the-art foo_bar",
            ["x", "5", "v1", "2", "3", "state", "of", "the", "art", "foo", "bar"],
        ),
        ("Le café est fermé. CAFE\u0301!", ["le", "cafe", "est", "ferme", "cafe"]),
        ("重跑gen-itgc后50条", ["重", "跑", "gen", "itgc", "后", "50", "条"]),
        ("カタカナと ひらがな", list("カタカナとひらがな")),
        ("한국어 조선말", ["한국어", "조선말"]),
        ("nul\x00byte, lone \ud83d half", ["nul", "byte", "lone", "half"]),
        ("\ue000sx impostor", ["sx", "impostor"]),
        ("!!! '' \x00", []),
        ("", []),
    ],
)
def test_tokens(text, expected):
    assert tokens(text) == expected


def test_stems_are_those_of_porter():
    assert tokens("running organizations, the cafés", stem=True) == ["run", "organ", "the", "café".replace("é", "e")]


def test_each_letter_of_an_unspaced_script_is_a_token():
    lost = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if lexer.unspaced_run().match(character)
        and unicodedata.category(character)[0] in "LN"
        and not tokens(character)
    ]
    assert lost == []


def test_no_token_holds_what_a_query_language_would_read():
    rng = random.Random(5)
    for _ in range(300):
        for token in tokens(hostile.text(rng)):
            assert not re.search(r"[\0-/:-@\[-`{-\x7f\ue000\s]", token), token
            assert 0 < len(token.encode()) <= lexer.TOKEN_BYTES


def test_tokens_joined_by_blanks_stay_themselves_in_sqlite():
    connection = apsw.Connection(":memory:")
    fts5 = connection.fts5_tokenizer("unicode61", [])
    rng = random.Random(6)
    for text in [hostile.text(rng) for _ in range(300)] + hostile.giants():
        for stem in (False, True):
            for document in documents(text, stem=stem):
                again = fts5(
                    document.text.encode(),
                    apsw.FTS5_TOKENIZE_DOCUMENT,
                    None,
                    include_offsets=False,
                    include_colocated=False,
                )
                assert again == document.tokens


def test_ascii_has_the_tokens_that_sqlite_finds():
    fts5 = apsw.Connection(":memory:").fts5_tokenizer("unicode61", [])
    rng = random.Random(8)
    every = [chr(code) for code in range(128)]
    texts = [f"a{char}B{char}{char}9" for char in every] + ["".join(rng.choices(every, k=200)) for _ in range(300)]
    for text in texts:
        reason = apsw.FTS5_TOKENIZE_DOCUMENT
        assert tokens(text) == fts5(text.encode(), reason, None, include_offsets=False, include_colocated=False)


def test_a_token_is_cut_at_128_bytes_between_characters():
    assert tokens("x" * 5000 + " after") == ["x" * 128, "after"]
    assert tokens("x" * 127 + "é") == ["x" * 127 + "e"]
    assert tokens("ж" * 3000) == ["ж" * 64]
    assert tokens("x" * 127 + "ж") == ["x" * 127]


def test_a_usual_message_is_one_document_and_an_empty_one_none():
    [document] = documents("to be or not to be")
    assert document.length == 6
    assert document.text == "to be or not to be"
    assert document.tsvector == "'to':1 'be':2 'or':3 'not':4 'to':5 'be':6"
    assert len(documents("... \n")) == 0
    assert documents("...").complete


@pytest.mark.parametrize("text", hostile.giants())
@pytest.mark.parametrize("stem", [False, True])
def test_documents_keep_every_limit_and_lose_nothing_before_the_last(text, stem):
    found = documents(text, stem=stem)
    assert len(found) <= lexer.MESSAGE_DOCUMENTS
    for document in found:
        counts = {}
        for token in document.tokens:
            counts[token] = counts.get(token, 0) + 1
        assert document.length <= lexer.DOCUMENT_TOKENS
        assert max(counts.values()) <= lexer.DOCUMENT_REPEATS
        assert sum(len(token.encode()) for token in document.tokens) <= lexer.DOCUMENT_BYTES
    joined = [token for document in found for token in document.tokens]
    whole = tokens(text, stem=stem)
    assert joined == whole if found.complete else joined == whole[: len(joined)]
    assert found.complete == (len(joined) == len(whole))


def test_a_repeated_word_closes_a_document():
    assert [document.length for document in documents("the " * 300 + "quick fox")] == [256, 46]


def test_what_no_message_may_index_is_left_out_and_told():
    found = documents("0 " * 100_000)
    assert (len(found), found.complete) == (64, False)
    assert all(document.length == 256 for document in found)


def test_a_long_text_is_cut_only_where_no_token_is():
    rng = random.Random(8)
    texts = [hostile.text(rng) for _ in range(200)]
    text = "".join(texts)
    whole = tokens(text)
    pieces = list(lexer.cut(text, 50))
    assert "".join(pieces) == text
    assert len(pieces) > 100
    assert [token for piece in pieces for token in tokens(piece)] == whole


def test_every_border_separates():
    wrong = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if lexer.border().match(character)
        and not lexer.unspaced_run().match(character)
        and tokens(f"a{character}b") != ["a", "b"]
    ]
    assert wrong == []


def test_places_of_tokens_are_those_in_the_text():
    text = "Le cafe\u0301 重跑gen \ud83d nul\x00 x🤖y ภาษา \ue000s HTTPServer2"
    found = [(token, text[start:end]) for token, start, end in located(text, bool)]
    assert [token for token, _ in found] == tokens(text)
    assert ("cafe", "cafe\u0301") in found
    assert ("httpserver2", "HTTPServer2") in found
    assert ("跑", "跑") in found


def test_places_of_tokens_of_any_text():
    rng = random.Random(9)
    for _ in range(200):
        text = hostile.text(rng)
        found = list(located(text, bool))
        assert [token for token, _, _ in found] == tokens(text)
        for token, start, end in found:
            assert tokens(text[start:end]) == [token]


def test_many_threads_tokenize_at_once():
    texts = [f"thread {number} reads café {'數據 ' * number}" for number in range(8)]
    expected = [tokens(text) for text in texts]
    wrong = []

    def work(text, wanted):
        wrong.extend(text for _ in range(300) if tokens(text) != wanted)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(texts, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _child(queue):
    queue.put(tokens("a child's café", stem=True))


def test_a_forked_child_tokenizes_with_connections_of_its_own():
    tokens("the parent has tokenizers already", stem=True)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == tokens("a child's café", stem=True)
    child.join()
    assert child.exitcode == 0


def test_the_index_of_unspaced_scripts_is_no_larger_than_plain_unicode61s(tmp_path):
    import json

    texts = []
    for name in ("ja-mt-bench-answer-gpt-4o.jsonl", "zh-sharegpt-toolcalls-001-046.json"):
        texts += _strings(shared_data("transcripts", "multilingual", name).read_text(encoding="utf-8"), json)
    sizes = {}
    for name in ("plain", "spread"):
        connection = apsw.Connection(str(tmp_path / name))
        connection.execute("create virtual table t using fts5(text, content='', contentless_delete=1)")
        with connection:
            for text in texts:
                for row in [text.replace("\0", " ")] if name == "plain" else [one.text for one in documents(text)]:
                    connection.execute("insert into t (text) values (?)", (row.encode("utf-8", "replace").decode(),))
        connection.execute("insert into t (t) values ('optimize')")
        sizes[name] = connection.execute("select sum(length(block)) from t_data").get
    assert sizes["spread"] <= sizes["plain"]


def _strings(text, json):
    """Every string of a file of JSON values."""
    found = []

    def walk(value):
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    try:
        walk(json.loads(text))
    except ValueError:
        for line in text.splitlines():
            walk(json.loads(line))
    return found


def test_a_plain_row_has_the_tokens_of_the_only_document():
    rng = random.Random(9)
    every = [chr(code) for code in range(128)]
    texts = ["".join(rng.choices(every, k=rng.randint(0, 900))) for _ in range(200)]
    few, many = [f"w{number}" for number in range(4)], [f"w{number}" for number in range(400)]
    texts += [" ".join(rng.choices(words, k=k)) for words in (few, many) for k in (250, 257, 300, 400, 600, 1000, 1100)]
    texts += [" ".join(["w"] * count + many[:rest]) for count in (255, 256, 257) for rest in (0, 1, 2, 50, 200, 400)]
    texts += [" ".join(many[:rest] + ["w"] * count) for count in (255, 256, 257) for rest in (0, 1, 2, 50, 200, 400)]
    texts += [" " * start + "x" * length + " end" for start in range(70) for length in (127, 128, 129, 130, 200)]
    texts += ["", " ", "--", "a " * 255, "a " * 256, "a " * 257, "a" * 128, "a" * 129, "é", "x " * 300]
    taken = 0
    for text in texts:
        row = lexer.plain(text)
        if row is not None:
            taken += 1
            assert [row.split()] == [document.tokens for document in documents(text)] or row == ""
            assert (row == "") == (len(documents(text)) == 0)
    assert 100 < taken < len(texts)

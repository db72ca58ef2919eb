"""Search by words: what is found, in which order, within which limits. Every body runs on four backends."""

# ruff: noqa: RUF001  # a full-width comma is meant

from datetime import UTC, datetime, timedelta

import pytest

from crowmem.errors import InvalidValue

MESSAGES = [  # session, text; ids count from 1
    (1, "Edit src/main.py, then mail user@example.com about HTTPServer2"),
    (1, "x = -5; y = 1e5; version 1.2.3; state-of-the-art foo_bar"),
    (1, "Le caf\u00e9 est ferm\u00e9. CAFE\u0301!"),
    (2, "重跑gen-itgc后50条悬空引用清零，修复已验证"),
    (2, "nul\x00byte, lone \ud83d surrogate, robot 🤖 end"),
    (2, "x" * 5000 + " after"),
    (2, " ".join(f"w{number}" for number in range(40_000)) + " needleatend"),
    (3, "the " * 300 + "quick fox"),
    (3, " ".join(f"{number:060d}" for number in range(30_000))),
    (3, ""),
    (3, "commit failed: lock timeout"),
    (4, "commit the lock, then commit again; commit"),
    (4, "rollback only"),
    (4, "\ue000s1 impostor"),
]


@pytest.fixture
def awkward(memory):
    """The messages above; ids as places in that list, counted from 1."""
    ids = [memory.messages.add(f"s{session}-1-1", {"role": "user", "content": text}) for session, text in MESSAGES]
    places = {message_id: place for place, message_id in enumerate(ids, 1)}

    def find(query, match="all", **limits):
        return [places[hit.id] for hit in memory.search.messages(query, match=match, **limits)]

    return find


AWKWARD = [
    ("src/main.py", "all", {}, [1]),
    ("main.py", "all", {}, [1]),
    ("example", "any", {}, [1]),
    ('"main src"', "all", {}, []),
    ('"main src"', "any", {}, []),
    ("1.2.3", "all", {}, [2]),
    ("cafe ferme", "all", {}, [3]),
    ("悬空", "all", {}, [4]),
    ("itgc", "any", {}, [4]),
    ("byte robot", "all", {}, [5]),
    ("x" * 5000, "all", {}, [6]),
    ("x" * 200, "all", {}, [6]),
    ("needleatend", "all", {}, [7]),
    ('"w8191 w8192"', "all", {}, []),
    ('"w8192 w8193"', "all", {}, [7]),
    ('"quick fox"', "all", {}, [8]),
    ("the fox", "all", {}, [8]),
    ("000*", "any", {}, [9]),
    ("why did the commit time out", "all", {}, []),
    ("why did the commit time out", "any", {}, [12, 11]),
    ("commit", "any", {}, [12, 11]),
    ("commit", "any", {"session_id": "s4"}, [12]),
    ("impostor", "all", {"session_id": "s1"}, []),
    ("impostor", "all", {"session_id": "s4"}, [14]),
    ("lock", "any", {"exclude": "timeout"}, [12]),
    ("lock", "all", {"exclude": '"the lock"'}, [11]),
    ('"commit now" lock', "any", {}, [12, 11]),
    ("rm -rf main", "any", {}, [1]),
    ("foo:bar AND (x", "any", {}, [2]),
    ("!!! ''", "any", {}, []),
    ("AND OR NOT", "any", {}, []),
    ("", "all", {}, []),
    ("", "any", {}, []),
]


def test_awkward_texts(awkward):
    for query, match, limits, expected in AWKWARD:
        assert awkward(query, match, **limits) == expected, (query, match, limits)


_EVERYDAY = """
pre-edit src/main.py 20.04 it's C++ c# key:value fooAND NOTx (foo "foo * -foo { } [ ^ ~ \\ ' '' "" "a "a" b" a* *a :* a:* a<->b
!a & | && || <> %s %% ? :a $1 NEAR(a,b) "a"* text:a scope:a {text}:a \x00 a\x00b \ud83d \ue000s1 - -- ; -- /* */ \u200b
"""
EVERYDAY = [*_EVERYDAY.split(), "", "   ", "\n", "foo AND", "NOT x", "(foo OR bar"]


def test_no_text_is_an_error(awkward):
    for query in EVERYDAY:
        for match in ("all", "any"):
            awkward(query, match)
            awkward("commit", match, exclude=query)
            awkward(query + " commit", match)
            awkward("AND " + query, match)


def test_a_hit_has_everything(memory):
    message = {"role": "assistant", "content": "a Needle in hay", "extra": [1, None]}
    new_id = memory.messages.add("run-2-3", message, created_at="2026-02-03T04:05:06.000007+00:00")
    [hit] = memory.search.messages("needle")
    assert (hit.id, hit.agent_id, hit.session_id, hit.agent_idx, hit.fork_idx) == (new_id, "run-2-3", "run", 2, 3)
    assert (hit.role, hit.data, hit.snippet) == ("assistant", message, "a «Needle» in hay")
    assert hit.created_at == datetime(2026, 2, 3, 4, 5, 6, 7, UTC)
    assert hit.score < 0


def test_parts_of_a_message_that_are_searched(memory):
    memory.messages.add(
        "s-1-1",
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "visible"},
                {"type": "image_url", "image_url": {"url": "data:unseen"}},
            ],
            "reasoning_content": "pondering",
            "tool_calls": [{"function": {"name": "run_shell", "arguments": '{"command": "ls -la\\nwhoami"}'}}],
        },
    )
    for word in ("visible", "pondering", "run_shell", "command", "whoami", '"ls la"'):
        assert len(memory.search.messages(word)) == 1, word
    assert memory.search.messages("unseen") == []


def test_best_first_then_newest_and_pages_fit_together(memory):
    for number in range(60):
        memory.messages.add("s-1-1", {"role": "user", "content": "needle " * (1 + number % 3) + "hay " * (number % 5)})
    found = memory.search.messages("needle", limit=60)
    assert len(found) == 60
    assert [(hit.score, -hit.id) for hit in found] == sorted((hit.score, -hit.id) for hit in found)
    assert len({hit.score for hit in found}) < 60
    pages = [hit for offset in range(0, 70, 7) for hit in memory.search.messages("needle", limit=7, offset=offset)]
    assert pages == found
    assert memory.search.messages("needle", offset=60) == []


def test_a_message_of_many_rows_is_one_hit(memory):
    long = memory.messages.add("s-1-1", {"role": "user", "content": "needle hay " * 2000})
    short = memory.messages.add("s-1-1", {"role": "user", "content": "needle"})
    for limit in (1, 2, 20):
        found = [hit.id for hit in memory.search.messages("needle", limit=limit)]
        assert found == [long, short][:limit]


def test_an_exclusion_concerns_the_row_it_stands_in(memory):
    memory.messages.add("s-1-1", {"role": "user", "content": "needle timeout"})
    kept = memory.messages.add("s-1-1", {"role": "user", "content": "needle"})
    assert [hit.id for hit in memory.search.messages("needle", exclude="timeout")] == [kept]
    assert memory.search.messages("needle", exclude="needle") == []
    assert [hit.id for hit in memory.search.messages("needle", exclude="...")] == [kept, kept - 1]


@pytest.fixture
def team(memory):
    """Messages of several agents that all hold the word common, each named by what is special about it."""
    base = datetime(2026, 3, 1, tzinfo=UTC)
    memory.agents.create("a-1-1", "a", cwd="/srv/one", model_identifier="m1")
    memory.agents.create("a-2-1", "a", agent_idx=2, cwd="/srv/one", model_identifier="m2")
    memory.agents.create("b-1-1", "b", cwd="/srv/two", model_identifier="m1")
    names = {}

    def add(name, agent_id, days, **message):
        message = {"role": "user", "content": "common", **message}
        injected = message.pop("injected", False)
        stamp = base + timedelta(days=days)
        names[memory.messages.add(agent_id, message, created_at=stamp, injected=injected)] = name

    add("first", "a-1-1", 0)
    add("answer", "a-1-1", 1, role="assistant")
    add("tool", "a-1-1", 2, role="assistant", tool_calls=[{"function": {"name": "bash", "arguments": "{}"}}])
    add("wrapper", "a-1-1", 3, injected=True)
    add("compacted", "a-2-1", 10)
    fork = memory.agents.fork("a-1-1")
    add("forked", fork.agent_id, 20)
    add("other", "b-1-1", 400)
    add("old", "b-1-1", -4000)
    add("wild", "b-1-1", -400_000)
    add("ahead", "b-1-1", 100_000)

    def find(**limits):
        return {names[hit.id] for hit in memory.search.messages("common", **limits)}

    find.fork = fork.agent_id
    return find


EVERYONE = {"first", "answer", "tool", "wrapper", "compacted", "forked", "other", "old", "wild", "ahead"}


LIMITS = [
    ({}, EVERYONE),
    ({"session_id": "a"}, {"first", "answer", "tool", "wrapper", "compacted", "forked"}),
    ({"session_id": "none"}, set()),
    ({"agent_ids": ["a-1-1"]}, {"first", "answer", "tool", "wrapper"}),
    ({"agent_ids": ["a-2-1", "b-1-1"]}, {"compacted", "other", "old", "wild", "ahead"}),
    ({"agent_ids": ["a-1-2"]}, {"forked"}),
    ({"agent_ids": []}, set()),
    ({"agent_ids": ["a-1-1", *(f"none-{number}-1" for number in range(1000))]}, {"first", "answer", "tool", "wrapper"}),
    ({"agent_idx": 2}, {"compacted"}),
    ({"agent_idx": 1}, EVERYONE - {"compacted"}),
    ({"session_id": "a", "agent_idx": 1}, {"first", "answer", "tool", "wrapper", "forked"}),
    ({"session_id": "a", "include_forks": False}, {"first", "answer", "tool", "wrapper", "compacted"}),
    ({"roles": ["assistant"]}, {"answer", "tool"}),
    ({"roles": ["assistant", "user"], "session_id": "b"}, {"other", "old", "wild", "ahead"}),
    ({"roles": []}, set()),
    ({"tools": ["bash", "none"]}, {"tool"}),
    ({"injected": False, "session_id": "a"}, {"first", "answer", "tool", "compacted", "forked"}),
    ({"cwd": "/srv/one", "agent_idx": 1}, {"first", "answer", "tool", "wrapper", "forked"}),
    ({"cwd": "/srv/none"}, set()),
    ({"model": "m1", "session_id": "b"}, {"other", "old", "wild", "ahead"}),
    ({"model": "m2"}, {"compacted"}),
    ({"cwd": "/srv/two", "model": "m2"}, set()),
    ({"after": "2026-03-02T00:00:00+00:00", "before": "2026-03-04T00:00:00+00:00"}, {"tool"}),
    ({"after": "2026-03-02T23:59:59+00:00"}, {"tool", "wrapper", "compacted", "forked", "other", "ahead"}),
    ({"before": "2026-03-02T00:00:00+00:00"}, {"first", "old", "wild"}),
    ({"before": datetime(2000, 1, 1, tzinfo=UTC)}, {"wild"}),
    ({"after": datetime(2100, 1, 1, tzinfo=UTC)}, {"ahead"}),
    ({"after": "2026-03-03T00:00:00+00:00", "before": "2026-03-03T00:00:00+00:00"}, set()),
    ({"after": "1990-01-01T00:00:00+00:00", "before": "2030-01-01T00:00:00+00:00"}, EVERYONE - {"wild", "ahead"}),
]


def test_limits(team):
    for limits, expected in LIMITS:
        assert team(**limits) == expected, limits
        assert team(**limits, match="any", exhaustive=True) == expected, limits


def test_a_limit_counts_matches_within_the_scope(memory):
    for number in range(40):
        memory.messages.add("loud-1-1", {"role": "user", "content": "common " * 5})
        if number % 4 == 0:
            memory.messages.add("quiet-1-1", {"role": "user", "content": "common and a lot of other words besides"})
    assert len(memory.search.messages("common", session_id="quiet", limit=7)) == 7
    assert len(memory.search.messages("common", session_id="quiet")) == 10


def test_a_forks_prefix_is_found_once_under_the_trunk(memory):
    memory.agents.create("s-1-1", "s")
    first = memory.messages.add("s-1-1", {"role": "user", "content": "shared needle"})
    fork = memory.agents.fork("s-1-1")
    memory.messages.add(fork.agent_id, {"role": "user", "content": "own hay"})
    assert [hit.id for hit in memory.search.messages("needle")] == [first]


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": None},
        {"query": 5},
        {"query": b"bytes"},
        {"query": "x", "match": "some"},
        {"query": "x", "exclude": 5},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": -1},
        {"query": "x", "limit": 1001},
        {"query": "x", "limit": "5"},
        {"query": "x", "offset": -1},
        {"query": "x", "session_id": 5},
        {"query": "x", "session_id": "a\x00"},
        {"query": "x", "agent_idx": "1"},
        {"query": "x", "agent_ids": "a-1-1"},
        {"query": "x", "roles": "user"},
        {"query": "x", "after": "yesterday"},
        {"query": "x", "before": 5},
        {"query": "x", "tools": [5]},
        {"query": "x", "cwd": 5},
    ],
)
def test_what_is_refused(memory, arguments):
    with pytest.raises(InvalidValue):
        memory.search.messages(**arguments)


def test_a_transaction_sees_its_own_messages(memory):
    memory.messages.add("s-1-1", {"role": "user", "content": "before"})
    with memory.transaction() as tx:
        tx.messages.add("s-1-1", {"role": "user", "content": "within needle"})
        assert len(tx.search.messages("needle")) == 1
    assert len(memory.search.messages("needle")) == 1


def test_accents_case_and_the_empty_store(memory):
    assert memory.search.messages("anything") == memory.search.messages("anything", match="any") == []
    memory.messages.add("s-1-1", {"role": "user", "content": "Naïve ÉCOLE"})
    assert len(memory.search.messages("NAIVE ecole")) == 1


def test_a_stemming_store_finds_other_forms(memory):
    memory.messages.add("s-1-1", {"role": "user", "content": "The connections were running"})
    assert memory.search.messages("connected runs") == []
    assert memory.search.reindex(stem=True) == 1
    [hit] = memory.search.messages("connected runs")
    assert hit.snippet == "The «connections» were «running»"
    assert len(memory.search.messages('"were running"')) == 1
    memory.messages.add("s-1-1", {"role": "user", "content": "a later connection"})
    assert len(memory.search.messages("connected")) == 2
    assert memory.search.reindex(stem=False) == 2
    assert memory.search.messages("connected") == []


@pytest.mark.parametrize("size", [4 << 20, pytest.param(64 << 20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("unit", ["word ", "x", "数", "base64+/" * 8, "a-\x00"])
def test_any_text_is_stored_and_found_by_its_first_words(memory, unit, size):
    text = "unmistakable beginning " + unit * (size // len(unit.encode()))
    new_id = memory.messages.add("s-1-1", {"role": "user", "content": text})
    assert [hit.id for hit in memory.search.messages("unmistakable beginning")] == [new_id]
    assert memory.messages.get(new_id).data["content"] == text

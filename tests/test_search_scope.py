"""Scope words: what a message carries, and what a limited search asks for."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from crowmem.filters import FEW, scope_of
from crowmem.lexer import tokens
from crowmem.query import Fts5, Tsquery
from crowmem.scope import MARK, MOST_TOOLS, MOST_WEEKS, scope_words, week_word, weeks

STAMP = "2026-03-02T00:00:00.000000+00:00"


def words(agent_id: str = "s-1-1", role: str = "user", **more: object) -> list[str]:
    session = agent_id.rsplit("-", 2)[0]
    return [word.removeprefix(MARK) for word in scope_words(session, agent_id, role, created_at=STAMP, **more)]  # type: ignore[arg-type]


def test_a_first_agents_message_carries_its_session_role_and_week() -> None:
    assert words() == ["ss", "ruser", "w1366"]


def test_other_agents_forks_and_wrappers_carry_more() -> None:
    plain = words()
    assert words("s-2-1") == [*plain, "n", words("s-2-1")[4], "y", "x2"]
    assert words("s-1-3") == [*plain, "n", words("s-1-3")[4], "f"]
    assert words("s-2-1")[4] != words("s-1-3")[4]
    assert words(injected=True) == [*plain, "i"]
    assert words(tools=["bash", "bash", "read"]) == [*plain, "tbash", "tread"]
    assert len(words(tools=[f"tool{number}" for number in range(1000)])) == len(plain) + MOST_TOOLS


@pytest.mark.parametrize("name", ["a-b", "A", "é", "x" * 2600, "", "\ue000s1", "abcdefghijkl", "\ud800"])
def test_any_name_becomes_a_word_that_no_tokenizer_changes(name: str) -> None:
    for word in scope_words(name, f"{name}-7-7", name, created_at=STAMP, tools=[name]):
        assert word[0] == MARK
        assert tokens(word[1:]) == [word[1:]]
        assert len(word) <= 16


def test_names_are_told_apart() -> None:
    names = ["a", "b", "A", "a-b", "a_b", "ab", *(f"session {number}" for number in range(10_000))]
    assert len({scope_words(name, "x", "x", created_at=STAMP)[0] for name in names}) == len(names)


def test_weeks_hold_every_stamp_of_a_range() -> None:
    rng = random.Random(1)
    now = datetime.now(UTC)

    def moment() -> datetime:
        return rng.choice(
            (
                now - timedelta(days=rng.uniform(0, 3000)),
                now + timedelta(days=rng.uniform(-5, 5)),
                datetime(1999, 12, 20, tzinfo=UTC) + timedelta(days=rng.uniform(0, 30)),
                datetime(rng.randint(1, 9999), 1, 1, tzinfo=UTC),
            )
        )

    for _ in range(5000):
        stamp, after, before = moment(), rng.choice((None, moment())), rng.choice((None, moment()))
        if (after is None or stamp > after) and (before is None or stamp < before):
            inside, outside = weeks(after, before)
            assert inside is None or week_word(stamp) in inside, (stamp, after, before)
            assert week_word(stamp) not in outside, (stamp, after, before)
            assert len(inside or []) <= MOST_WEEKS + 1
            assert len(outside) <= MOST_WEEKS


def test_a_short_range_is_few_weeks() -> None:
    inside, outside = weeks(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC))
    assert inside is not None
    assert len(inside) == 4  # the wild ones, and three
    assert outside == []
    assert weeks(None, None) == (None, [])


def test_both_databases_are_limited_alike() -> None:
    scope = scope_of(session_id="s", agent_ids=["s-1-1", "t-2-1"], include_forks=False, injected=False)
    other = scope_words("t", "t-2-1", "user", created_at=STAMP)[4]
    assert scope.limit(Fts5(), '"a"') == (
        f'((scope : (("{MARK}ss" AND (("{MARK}ss" NOT "{MARK}n") OR "{other}"))) AND text : ("a"))'
        f' NOT scope : (("{MARK}f" OR "{MARK}i")))'
    )
    assert scope.limit(Tsquery(), "'a'") == (
        f"((('{MARK}ss' & (('{MARK}ss' & !'{MARK}n') | '{other}')) & 'a') & !('{MARK}f' | '{MARK}i'))"
    )


def test_nothing_is_in_the_scope_of_an_empty_list() -> None:
    for limits in ({"agent_ids": []}, {"roles": []}, {"tools": []}):
        assert scope_of(**limits).empty  # type: ignore[arg-type]
    assert not scope_of().empty


def test_many_agents_are_compared_one_by_one() -> None:
    many = [f"s-{number}-1" for number in range(FEW + 1)]
    assert scope_of(agent_ids=many).columns()["agent_ids"] == many
    assert scope_of(agent_ids=many[1:]).columns()["agent_ids"] is None
    assert not scope_of(agent_ids=many[1:]).columns()["filtered"]

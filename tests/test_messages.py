"""Messages: what goes in comes out, in order, on every backend."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from crowmem.errors import InvalidValue

NESTED = {
    "role": "assistant",
    "z": 1,
    "content": [{"type": "text", "text": "héllo 🤖 悬空"}, {"b": [1, 2.5, None, True, {"c": -0.0}]}],
    "a": {"unknown": {"deep": [[], {}, ""]}},
    "big": 2**200,
    "small": 1e-300,
}


def test_a_message_loads_equal_and_in_key_order(memory: Any) -> None:
    given = json.loads(json.dumps(NESTED))
    new_id = memory.messages.add("s-1-1", given)
    assert given == NESTED
    [loaded] = memory.messages.load("s-1-1")
    assert loaded == NESTED
    assert json.dumps(loaded) == json.dumps(NESTED)
    assert json.loads(memory.messages.load_json("s-1-1")) == [NESTED]
    message = memory.messages.get(new_id)
    assert (message.id, message.agent_id, message.fork_idx, message.role, message.data) == (
        new_id,
        "s-1-1",
        1,
        "assistant",
        NESTED,
    )
    assert abs(datetime.now(UTC) - message.created_at) < timedelta(minutes=10)


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "\\u0000",
        "x\ud83d",
        "\udc81",
        "\ude00\ud83d",
        "x\U0001f600",
        "\ue000s1",
        "",
        " ",
        "'",
        "%s $1 :x",
        "\r\n\u2028",
    ],
)
def test_any_text_survives_as_value_and_as_key(memory: Any, text: str) -> None:
    message = {"role": "user", "content": text, "k" + text: [text]}
    memory.messages.add("s-1-1", message)
    assert memory.messages.load("s-1-1") == [message]
    assert json.loads(memory.messages.load_json("s-1-1")) == [message]


def test_integers_go_as_far_as_python_reads_them(memory: Any) -> None:
    message = {"role": "user", "content": [10**4299, -(10**4300 - 1)]}
    memory.messages.add("s-1-1", message)
    assert memory.messages.load("s-1-1") == [message]
    for number in (10**4300, -(10**5000)):
        with pytest.raises(InvalidValue, match=r"message\.content\[0\] is an integer of more than 4,300 digits"):
            memory.messages.add("s-1-1", {"role": "user", "content": [number]})
        with pytest.raises(InvalidValue, match="after_id"):
            memory.messages.follow(number)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "message.content[1].score is nan"),
        (math.inf, "message.content[1].score is inf"),
        (b"x", "message.content[1].score is of type bytes"),
        ({1: 2}, "message.content[1].score has the key 1"),
        ((1, 2), "message.content[1].score is of type tuple"),
        ({None: 1}, "message.content[1].score has the key None"),
        (datetime.now(UTC), "message.content[1].score is of type datetime"),
        ("😀 \ud83d\ude00", "message.content[1].score holds two halves of a character at position 2"),
        ({"k\ud83d\ude00": 1}, r"the key 'k\ud83d\ude00' of message.content[1].score holds two halves"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_place(memory: Any, value: Any, place: str) -> None:
    with pytest.raises(InvalidValue, match="^" + re.escape(place)):
        memory.messages.add("s-1-1", {"role": "user", "content": ["x", {"score": value}]})
    with pytest.raises(InvalidValue, match=r"messages\[1\]"):
        memory.messages.add_many("s-1-1", [{"a": 1}, {"score": value}])
    assert memory.messages.load("s-1-1") == []
    assert memory.status().rows["messages"] == 0


def test_a_message_nested_too_deep_is_refused_not_crashed_on(memory: Any) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidValue, match="nested more than 200 deep"):
        memory.messages.add("s-1-1", deep)
    while deep:
        deep = deep["a"]


@pytest.mark.parametrize(
    "agent_id",
    ["", "s", "s-1", "s-1-x", "-1-1", "s-1-1\0", "s-1-\u0661", "s-1-99999999999", None, 7, "x" * 3000 + "-1-1"],
)
def test_a_malformed_agent_id_is_refused_before_anything_is_written(memory: Any, agent_id: Any) -> None:
    with pytest.raises(ValueError, match="agent_id"):
        memory.messages.add(agent_id, {"role": "user"})
    assert memory.status().rows["messages"] == 0


def test_the_two_part_id_of_the_old_schema_is_malformed(memory: Any) -> None:
    with pytest.raises(ValueError, match=r"^malformed agent_id"):
        memory.messages.add("s-1", {"role": "user"})


def test_role_usage_and_time_are_kept(memory: Any) -> None:
    stamp = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "other": "x"}
    first = memory.messages.add("s-1-1", {"content": "no role"}, usage=usage, created_at=stamp)
    second = memory.messages.add("s-1-1", {"role": None}, created_at="2026-01-02T05:04:05+02:00")
    one, two = memory.messages.get(first), memory.messages.get(second)
    assert (one.role, one.prompt_tokens, one.completion_tokens, one.total_tokens) == ("", 10, 2, 12)
    assert one.created_at == stamp
    assert (two.role, two.prompt_tokens) == ("", None)
    assert two.created_at == datetime(2026, 1, 2, 3, 4, 5, 0, UTC)
    assert memory.messages.get(second + 1) is None


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"usage": {"prompt_tokens": -1}}, "prompt_tokens"),
        ({"usage": {"prompt_tokens": 2**40}}, "prompt_tokens"),
        ({"usage": {"prompt_tokens": 1.5}}, "prompt_tokens"),
        ({"usage": 7}, "usage"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": 12}, "created_at"),
    ],
)
def test_bad_arguments_name_themselves(memory: Any, arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidValue, match=word):
        memory.messages.add("s-1-1", {"role": "user"}, **arguments)
    assert memory.messages.load("s-1-1") == []


@pytest.mark.parametrize("message", [None, [], "text", 7])
def test_a_message_is_an_object(memory: Any, message: Any) -> None:
    with pytest.raises(InvalidValue, match="expected a dict"):
        memory.messages.add("s-1-1", message)


def test_add_many_is_all_or_nothing_and_in_order(memory: Any) -> None:
    messages = [{"role": "user", "n": number} for number in range(500)]
    ids = memory.messages.add_many("s-1-1", messages, created_ats=[None] * 499 + ["2026-01-01"], usages=None)
    assert ids == sorted(ids)
    assert len(set(ids)) == 500
    assert memory.messages.load("s-1-1") == messages
    with pytest.raises(InvalidValue):
        memory.messages.add_many("s-1-1", [{"n": 1}, {"n": math.nan}])
    with pytest.raises(InvalidValue, match="usages has 1 items for 2 messages"):
        memory.messages.add_many("s-1-1", [{}, {}], usages=[None])
    assert memory.messages.add_many("s-1-1", []) == []
    assert len(memory.messages.load("s-1-1")) == 500


def test_query_filters_pages_and_orders(memory: Any) -> None:
    for number in range(6):
        agent = ("a-1-1", "a-2-1", "b-1-1")[number % 3]
        if memory.agents.get(agent) is None:
            memory.agents.create(agent, agent[0])
        memory.messages.add(
            agent, {"role": ("user", "tool")[number % 2], "n": number}, created_at=f"2026-01-0{number + 1}"
        )

    def numbers(**filters: Any) -> list[int]:
        return [message.data["n"] for message in memory.messages.query(**filters)]

    assert numbers() == [0, 1, 2, 3, 4, 5]
    assert numbers(order="desc", limit=2, offset=1) == [4, 3]
    assert numbers(session_id="a") == [0, 1, 3, 4]
    assert numbers(agent_idx=2) == [1, 4]
    assert numbers(agent_ids=["b-1-1", "nobody-1-1"]) == [2, 5]
    assert numbers(agent_ids=[]) == []
    assert numbers(agent_ids=[f"x{number}-1-1" for number in range(40_000)] + ["b-1-1"]) == [2, 5]
    assert numbers(roles=["tool"]) == [1, 3, 5]
    assert numbers(after="2026-01-02", before="2026-01-05") == [2, 3]
    third = memory.messages.query(limit=1, offset=2)[0].id
    assert numbers(after_id=third) == [3, 4, 5]
    assert numbers(after_id=third, order="desc") == [1, 0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": 2**70},
        {"offset": -1},
        {"order": "up"},
        {"roles": "user"},
        {"limit": "5"},
        {"limit": True},
    ],
)
def test_query_refuses_bad_bounds(memory: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        memory.messages.query(**arguments)


def test_two_stores_see_each_others_commits(backend: Any) -> None:
    one, two = backend.open(), backend.open()
    one.messages.add("s-1-1", {"n": 1})
    assert two.messages.load("s-1-1") == [{"n": 1}]
    two.messages.add("s-1-1", {"n": 2})
    assert one.messages.load("s-1-1") == [{"n": 1}, {"n": 2}]


def test_last_assistant_text(memory: Any) -> None:
    assert memory.messages.last_assistant_text("s-1-1", fallback="none") == "none"
    memory.messages.add(
        "s-1-1", {"role": "assistant", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    )
    memory.messages.add("s-1-1", {"role": "assistant", "content": "  "})
    memory.messages.add("s-1-1", {"role": "assistant", "content": None})
    memory.messages.add("s-1-1", {"role": "user", "content": "later"})
    assert memory.messages.last_assistant_text("s-1-1", fallback="none") == "one two"


def test_a_follower_gets_everything_once(memory: Any) -> None:
    ids = memory.messages.add_many("s-1-1", [{"n": number} for number in range(5)])
    first = memory.messages.follow(0, limit=2)
    rest = memory.messages.follow(first[-1].id)
    assert [message.id for message in [*first, *rest]] == ids
    assert memory.messages.follow(ids[-1]) == []


def test_a_follower_does_not_skip_a_row_that_commits_late(backend: Any) -> None:
    follower, early, late = backend.open(), backend.blocking(), backend.blocking()
    if backend.dialect == "sqlite":
        with early.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 1})
            assert follower.messages.follow(0) == []
        late.messages.add("s-1-1", {"n": 2})
    else:
        with early.transaction() as tx:
            tx.messages.add("s-1-1", {"n": 1})
            late.messages.add("t-1-1", {"n": 2})
            assert follower.messages.follow(0) == []
    assert [message.data["n"] for message in follower.messages.follow(0)] == [1, 2]

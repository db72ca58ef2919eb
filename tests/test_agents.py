"""Agents and forks on every backend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from crowmem.errors import Conflict, InvalidValue, NotFound
from crowmem.ids import build_agent_id, parse_agent_id, wire_session_id


def test_ids_join_and_split_from_the_right() -> None:
    assert build_agent_id("s", 1) == "s-1-1"
    assert build_agent_id("my-long-name", 3, 2) == "my-long-name-3-2"
    assert parse_agent_id("my-long-name-3-2") == ("my-long-name", 3, 2)
    assert wire_session_id("s-1-1") == "s"
    assert wire_session_id("s-2-3") == "s-2-3"


@pytest.mark.parametrize(
    "text", [None, "", "s", "s-1", "s-1-", "s--1", "-1-1", "s-1-1x", "s-\u0661-1", "s-1-" + "9" * 5000, 12, b"s-1-1"]
)
def test_a_malformed_id_says_so(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^malformed agent_id"):
        parse_agent_id(text)


def test_defaults(memory: Any) -> None:
    agent = memory.agents.create("s-1-1", "s")
    assert (agent.agent_idx, agent.fork_idx, agent.cwd, agent.system_prompt, agent.status) == (
        1,
        1,
        "/tmp",
        "",
        "active",
    )
    assert (agent.tool_definitions, agent.request_params, agent.model_identifier) == ([], {}, "")
    assert (agent.forked_at, agent.prompt_id, agent.prompt_args, agent.mcp_servers) == (None, None, None, None)
    assert agent.created_at.tzinfo == UTC
    assert memory.agents.get("s-1-1") == agent
    assert memory.agents.get("t-1-1") is None


def test_every_field_comes_back(memory: Any) -> None:
    given: dict[str, Any] = {
        "agent_idx": 2,
        "fork_idx": 3,
        "forked_at": 7,
        "cwd": "/wörk\n",
        "prompt_id": "p",
        "prompt_args": {"b": 1, "a": [None]},
        "system_prompt": "x" * 100_000,
        "tool_definitions": [{"z": 1, "a": 2}],
        "mcp_servers": [],
        "request_params": {"temperature": 0.1},
        "model_identifier": "m",
        "status": "done",
        "created_at": "2026-01-01T00:00:00.5+01:00",
    }
    agent = memory.agents.create("s-2-3", "s", **given)
    expected = {**given, "forked_at": "7", "created_at": datetime(2025, 12, 31, 23, 0, 0, 500_000, UTC)}
    assert {name: getattr(agent, name) for name in given} == expected
    assert list(agent.tool_definitions[0]) == ["z", "a"]
    assert memory.agents.get("s-2-3") == agent


def test_a_second_agent_with_the_same_id_is_a_conflict(memory: Any) -> None:
    memory.agents.create("s-1-1", "s", cwd="/one")
    with pytest.raises(Conflict, match="s-1-1"):
        memory.agents.create("s-1-1", "s", cwd="/two")
    assert memory.agents.get("s-1-1").cwd == "/one"
    with pytest.raises(TypeError):
        memory.agents.create("t-1-1", "t", colour="red")


@pytest.mark.parametrize(
    ("agent_id", "session_id", "arguments"),
    [
        ("s-1-1", "t", {}),
        ("s-1-1", "s", {"agent_idx": 2}),
        ("s-1-2", "s", {"fork_idx": 1}),
        ("s-1-1", "s", {"agent_idx": 0}),
        ("s-1-1", "s", {"forked_at": "junk"}),
        ("s-1-1", "s", {"forked_at": -1}),
        ("", "s", {}),
        ("s-1-1", "", {}),
        ("s\0-1-1", "s\0", {}),
        ("s-1-1", "s", {"cwd": "a\ud800"}),
        ("s-1-1", "s", {"prompt_args": {"a": float("nan")}}),
        ("s-1-1", "s", {"tool_definitions": "text"}),
        ("s-1-1", "s", {"created_at": "noon"}),
    ],
)
def test_what_does_not_fit_is_refused(memory: Any, agent_id: str, session_id: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        memory.agents.create(agent_id, session_id, **arguments)
    assert memory.agents.list() == []


def test_lists_and_highest_indexes(memory: Any) -> None:
    for agent_id in ("b-1-1", "a-2-1", "a-1-1", "a-1-2", "a-3-2"):
        memory.agents.create(agent_id, agent_id[0])
    assert [agent.agent_id for agent in memory.agents.list("a")] == ["a-1-1", "a-1-2", "a-2-1", "a-3-2"]
    assert [agent.agent_id for agent in memory.agents.list(limit=2, offset=3)] == ["a-3-2", "b-1-1"]
    assert memory.agents.list("nobody") == []
    assert memory.agents.max_agent_idx("a") == 2
    assert memory.agents.max_agent_idx("a", fork_idx=2) == 3
    assert memory.agents.max_agent_idx("a", fork_idx=None) == 3
    assert memory.agents.max_agent_idx("nobody") == 1
    assert memory.agents.max_fork_idx("a", 1) == 2
    assert memory.agents.max_fork_idx("a", 2) == 1
    assert memory.agents.max_fork_idx("nobody", 9) == 1


def test_a_fork_shares_its_prefix_and_nothing_later(memory: Any) -> None:
    memory.agents.create(
        "s-1-1", "s", cwd="/w", model_identifier="m", tool_definitions=[{"a": 1}], mcp_servers=[{"n": 1}]
    )
    ids = memory.messages.add_many("s-1-1", [{"n": 1}, {"n": 2}, {"n": 3}])
    fork = memory.agents.fork("s-1-1", at=ids[1])
    assert (fork.agent_id, fork.fork_idx, fork.forked_at, fork.cwd, fork.model_identifier) == (
        "s-1-2",
        2,
        str(ids[1]),
        "/w",
        "m",
    )
    assert (fork.tool_definitions, fork.mcp_servers) == ([{"a": 1}], [{"n": 1}])
    memory.messages.add("s-1-2", {"n": "3b"})
    memory.messages.add("s-1-1", {"n": 4})
    assert memory.messages.load("s-1-2") == [{"n": 1}, {"n": 2}, {"n": "3b"}]
    assert memory.messages.load("s-1-1") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert memory.agents.max_agent_idx("s") == 1


def test_a_fork_of_now_does_not_grow_with_its_trunk(memory: Any) -> None:
    memory.agents.create("s-1-1", "s")
    memory.messages.add("s-1-1", {"n": 1})
    fork = memory.agents.fork("s-1-1")
    memory.messages.add("s-1-1", {"n": 2})
    assert memory.messages.load(fork.agent_id) == [{"n": 1}]
    empty = memory.agents.fork("s-1-1", at=0)
    assert memory.messages.load(empty.agent_id) == []


def test_a_fork_of_a_fork_sees_both_parents(memory: Any) -> None:
    memory.agents.create("s-1-1", "s")
    memory.messages.add_many("s-1-1", [{"n": 1}, {"n": 2}])
    first = memory.agents.fork("s-1-1")
    own = memory.messages.add_many(first.agent_id, [{"n": "3a"}, {"n": "4a"}])
    second = memory.agents.fork(first.agent_id, at=own[0])
    memory.messages.add(second.agent_id, {"n": "4b"})
    memory.messages.add(first.agent_id, {"n": "5a"})
    assert memory.messages.load(second.agent_id) == [{"n": 1}, {"n": 2}, {"n": "3a"}, {"n": "4b"}]
    assert memory.messages.load(first.agent_id) == [{"n": 1}, {"n": 2}, {"n": "3a"}, {"n": "4a"}, {"n": "5a"}]
    third = memory.agents.fork(second.agent_id)
    assert (third.agent_id, third.forked_from) == ("s-1-4", "s-1-3")
    assert memory.messages.load(third.agent_id) == memory.messages.load(second.agent_id)
    unborn = memory.agents.fork(memory.agents.fork("s-1-1").agent_id)
    assert memory.messages.load(unborn.agent_id) == [{"n": 1}, {"n": 2}]


def test_a_fork_row_without_anchor_shares_the_whole_trunk(memory: Any) -> None:
    memory.agents.create("s-1-1", "s")
    memory.agents.create("s-1-2", "s")
    memory.messages.add("s-1-1", {"n": 1})
    memory.messages.add("s-1-2", {"n": 2})
    memory.messages.add("s-1-1", {"n": 3})
    assert memory.messages.load("s-1-2") == [{"n": 1}, {"n": 3}, {"n": 2}]


def test_forking_nobody_and_nonsense(memory: Any) -> None:
    with pytest.raises(NotFound, match="s-1-1"):
        memory.agents.fork("s-1-1")
    with pytest.raises(ValueError, match="malformed agent_id"):
        memory.agents.fork("s")
    memory.agents.create("s-1-1", "s")
    with pytest.raises(InvalidValue):
        memory.agents.fork("s-1-1", at=-1)
    newest = memory.messages.add("s-1-1", {"n": 1})
    with pytest.raises(InvalidValue, match=rf"at is {newest + 1}, and the newest message is {newest}"):
        memory.agents.fork("s-1-1", at=newest + 1)
    assert [agent.agent_id for agent in memory.agents.list("s")] == ["s-1-1"]


def test_models_and_servers(memory: Any) -> None:
    memory.agents.create("s-1-1", "s", mcp_servers=[{"b": 1, "a": 2}])
    memory.agents.create("s-2-1", "s")
    memory.agents.create("s-1-2", "s", mcp_servers=[])
    memory.agents.set_model("s-1-1", "new")
    assert memory.agents.get("s-1-1").model_identifier == "new"
    assert memory.agents.mcp_servers("s") == [{"b": 1, "a": 2}]
    assert memory.agents.mcp_servers("s-1-2") == []
    assert memory.agents.mcp_servers("nobody") == []
    memory.agents.set_mcp_servers("s-2-1", [])
    assert memory.agents.mcp_servers("s") == []
    memory.agents.set_mcp_servers("s-2-1", None)
    assert list(memory.agents.mcp_servers("s")[0]) == ["b", "a"]
    for call in (lambda: memory.agents.set_model("x-1-1", "m"), lambda: memory.agents.set_mcp_servers("x-1-1", [])):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(ValueError, match="x-1-1"):
        memory.agents.set_model("x-1-1", "m")


def test_the_ids_of_a_session_come_without_its_prompts(memory: Any) -> None:
    for number in (1, 2):
        memory.agents.create(f"s-{number}-1", "s", system_prompt="p" * 1000)
    fork = memory.agents.fork("s-1-1")
    memory.agents.create("other-1-1", "other")
    assert memory.agents.ids("s") == ["s-1-1", fork.agent_id, "s-2-1"]
    assert memory.agents.ids("s", include_forks=False) == ["s-1-1", "s-2-1"]
    assert memory.agents.ids("s", agent_idx=2) == ["s-2-1"]
    assert memory.agents.ids("s", limit=1) == ["s-1-1"]
    assert memory.agents.ids("nobody") == []
    with pytest.raises(InvalidValue, match="limit is 0"):
        memory.agents.ids("s", limit=0)

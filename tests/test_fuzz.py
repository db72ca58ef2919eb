"""Every public operation with hostile text, numbers and JSON: a result or one typed error, on both databases alike."""

from __future__ import annotations

import enum
import inspect
import math
import os
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from crowmem import Memory
from crowmem.errors import Busy, CrowmemError, DatabaseError, OutcomeUnknown, StoreCorrupt, Unavailable
from crowmem.operation import Repository, operation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS = [
    pytest.param(2500, id="short"),
    pytest.param(
        int(os.environ.get("CROWMEM_FUZZ_ROUNDS", "150000")),
        id="long",
        marks=[pytest.mark.slow, pytest.mark.timeout(3000)],
    ),
]
SEED = int(os.environ.get("CROWMEM_FUZZ_SEED", "20261130"))
SECONDS = float(os.environ.get("CROWMEM_FUZZ_SECONDS", "inf"))  # when a run is to end before its rounds do
UNEXPECTED = (Busy, DatabaseError, OutcomeUnknown, StoreCorrupt, Unavailable)  # nobody disturbs these stores
APART = {"lock", "follow_forever", "wait"}  # contexts and waits; wait is called with a short time below


class Colour(enum.StrEnum):
    RED = "red"


class Odd:
    """Equal to nothing, textless, and in nobody's schema."""

    def __str__(self) -> str:
        return "odd\0\ud800"


TEXTS = [
    "", " ", "s", "s-1-1", "s-1-2", "t-1-1", "s1", "\0", "a\0b", "\ud800", "x\udfff", "\ue000s1", "x" * 3000, "é" * 2000, "'", '"', "\\", "%s", "$1", ":x",
    "'; drop table messages; --", "../x", "/etc/passwd", "C:\\x", "2026-01-01", "noon", "NaN", "asc", "desc", "all", "any", "high", "low", "pending",
    "completed", "user", "tool", '"', '"a', "a*", "*", "AND OR NOT", "(", "NEAR(a b)", "悬空", "🤖", "\u202e", "task-1", "9" * 400, "-1", "1e999",
]  # fmt: skip
NUMBERS = [
    0,
    1,
    2,
    -1,
    7,
    1000,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**400,
    0.0,
    -0.5,
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    True,
    False,
]
OTHERS = [
    None, b"", b"x", [], {}, (), set(), ["s-1-1"], ["\0"], [1], [None], [[]], {"a": 1}, {1: 2}, {"a": math.nan}, {"a": b"x"}, Odd(), object(), Colour.RED, int,
    datetime.fromisoformat("2026-01-01"), datetime(1, 1, 1, tzinfo=UTC), datetime.fromisoformat("9999-12-31T23:59:59"), [{"role": "user", "content": "x"}], [{}] * 3, {"role": "\0"}, {"role": 7},
    {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!"}}]}, {"content": [{"type": "image_ref", "path": "../../x"}]},
    {"content": ["a", None, {"text": 7}, {"type": "text", "text": "b"}], "tool_calls": [None, {"function": {"name": 1, "arguments": "\\"}}]},
    {"prompt_tokens": 2**40}, {"kind": "message", "payload": {}}, [{"kind": "anchor", "anchor_type": "handoff", "payload": {}}],
]  # fmt: skip


def sensible(name: str, chance: random.Random) -> Any:
    """A value that the parameter may well take, so that calls get past the first check."""
    if name in ("message", "payload", "entry", "request_params", "prompt_args", "extra", "plugin_states"):
        return {"role": "user", "content": chance.choice(TEXTS), "n": chance.choice([1, 2.5, "x", None])}
    if name in ("messages", "entries", "contents"):
        return [{"role": "user", "content": chance.choice(TEXTS)} for _ in range(chance.randrange(4))]
    if name.endswith(("_s", "timeout")):
        return chance.choice([0.0, 0.01, 0.05])
    if name in (
        "limit",
        "offset",
        "keep",
        "start",
        "stop",
        "at",
        "agent_idx",
        "fork_idx",
        "after_id",
        "message_id",
        "delivery_id",
    ):
        return chance.choice([0, 1, 2, 3, 10])
    if name in ("agent_id", "wire_id"):
        return chance.choice(["s-1-1", "s-1-2", "t-1-1"])
    if "time" in name or name in ("after", "before", "created_at", "finished_before"):
        return chance.choice(["2026-01-01", datetime(2026, 1, 1, tzinfo=UTC), None])
    return chance.choice(["s", "t", "s1", "high", "low", "any", "all", "x"])


def operations(memory: Memory) -> list[tuple[str, Any, list[str]]]:
    """Name, bound operation and parameter names of every public operation."""
    found = []
    for group in Memory.__annotations__:
        repository = getattr(memory, group)
        if not isinstance(repository, Repository) or group == "imports":
            continue
        for name in dir(type(repository)):
            if (
                name.startswith("_")
                or name in APART
                or not isinstance(inspect.getattr_static(type(repository), name), operation)
            ):
                continue
            call = getattr(repository, name)
            found.append(
                (
                    f"{group}.{name}",
                    call,
                    [one for one in inspect.signature(call).parameters if one not in ("self", "progress")],
                )
            )
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


def calls(seed: int, memory: Memory, rounds: int) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    chance = random.Random(seed)  # the same calls in every run
    known = operations(memory)
    assert len(known) > 70
    for _ in range(rounds):
        name, call, parameters = chance.choice(known)
        arguments = {}
        for parameter in parameters:
            roll = chance.random()
            if roll < 0.35:
                arguments[parameter] = sensible(parameter, chance)
            elif roll < 0.7:
                arguments[parameter] = chance.choice(chance.choice([TEXTS, NUMBERS, OTHERS]))
        yield name, call, arguments


def run(url: str, rounds: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """How each call ended, and those that ended as none should."""
    outcomes: list[str] = []
    wrong: dict[str, str] = {}
    with Memory.open(url, images=folder / "images", busy_timeout_s=5) as memory:
        until = time.monotonic() + SECONDS
        for name, call, arguments in calls(SEED, memory, rounds):
            if time.monotonic() > until:
                break
            try:
                inspect.signature(call.__wrapped__).bind(memory, **arguments)  # which takes self first
            except TypeError:
                continue  # a required argument is missing, which Python itself says
            try:
                call(**arguments)
                outcomes.append(sys.intern(f"{name} ok"))
            except Exception as error:  # this is what the test is for
                outcomes.append(sys.intern(f"{name} {type(error).__name__}"))
                if not isinstance(error, CrowmemError) or isinstance(error, UNEXPECTED) or not str(error):
                    wrong.setdefault(outcomes[-1], f"{arguments!r:.300} -> {error!s:.200}")
        assert memory.check(deep=True) == []
        memory.messages.add("after-1-1", {"role": "user", "content": "still works"})
        assert len(memory.search.messages("still works")) >= 1
    return outcomes, wrong


@pytest.mark.parametrize("rounds", ROUNDS)
def test_every_operation_gives_a_result_or_a_typed_error(
    url: str, rounds: int, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)  # paths are among the values
    outcomes, wrong = run(url, rounds, tmp_path)
    print(f"{len(outcomes):,} calls: {sorted(Counter(outcome.split()[1] for outcome in outcomes).items())}")
    assert sum(outcome.endswith(" ok") for outcome in outcomes) > len(outcomes) / 20
    assert not wrong, "\n".join(f"{key}: {value}" for key, value in sorted(wrong.items()))


def test_both_databases_give_the_same_answer_to_the_same_input(tmp_path: Path, pg_clean: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, _ = run(str(tmp_path / "crow.db"), 6000, tmp_path / "one")
    two, _ = run(pg_clean, 6000, tmp_path / "two")
    assert [(first, second) for first, second in zip(one, two, strict=True) if first != second] == []

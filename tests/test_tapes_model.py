"""Tapes against a model: plain lists, whatever is cut, forked, restored and deleted, and nothing left over at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from backends import Backend
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from test_tapes import branches, count, handoff, stored

from crowmem import Memory
from crowmem.entries import is_handoff

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


class Tapes(RuleBasedStateMachine):
    """Every operation that moves a tape, beside a dict of lists."""

    memory: Memory
    backend: Backend

    tapes = Bundle("tapes")
    checkpoints = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.saved: dict[str, tuple[str, list[dict[str, Any]], int]] = {}
        self.left: dict[str, list[list[dict[str, Any]]]] = {}
        self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    @rule(target=tapes)
    def begin(self) -> str:
        name = f"t{self.next()}"
        self.lists[name], self.left[name] = [{"n": self.next()}], []
        self.memory.tapes.append(name, self.lists[name])
        return name

    @rule(tape=tapes, size=st.integers(1, 4), anchor=st.booleans())
    def append(self, tape: str, size: int, anchor: bool) -> None:
        if tape in self.lists:
            entries = [handoff()] * anchor + [{"n": self.next()} for _ in range(size)]
            length = self.memory.tapes.append(tape, entries, expected_length=len(self.lists[tape]))
            self.lists[tape] += entries
            assert length == len(self.lists[tape])

    @rule(tape=tapes, keep=st.integers(0, 12))
    def truncate(self, tape: str, keep: int) -> None:
        kept = self.lists.get(tape, [])[:keep]
        assert self.memory.tapes.truncate(tape, keep) == len(kept)
        if tape in self.lists:
            self.lists[tape] = kept

    @rule(target=tapes, tape=tapes, part=st.floats(0, 1))
    def fork(self, tape: str, part: float) -> Any:
        if tape not in self.lists:
            return multiple()
        name, at = f"f{self.next()}", round(part * len(self.lists[tape]))
        assert self.memory.tapes.fork(tape, name, at=at) == name
        self.lists[name], self.left[name] = self.lists[tape][:at], []
        return name

    @rule(target=checkpoints, tape=tapes)
    def save(self, tape: str) -> Any:
        if tape not in self.lists:
            return multiple()
        name = self.memory.checkpoints.save(tape).checkpoint_id
        self.saved[name] = (tape, list(self.lists[tape]), self.next())
        return name

    @rule(checkpoint=checkpoints)
    def restore(self, checkpoint: str) -> None:
        if checkpoint in self.saved:
            tape, entries, moment = self.saved[checkpoint]
            old = self.lists[tape]
            assert self.memory.checkpoints.restore(checkpoint).entries == entries
            if entries[: len(old)] != old:
                self.left[tape].append(old)
            self.lists[tape] = list(entries)
            self.saved = {name: found for name, found in self.saved.items() if found[0] != tape or found[2] <= moment}

    @rule(checkpoint=consumes(checkpoints))
    def forget_checkpoint(self, checkpoint: str) -> None:
        assert self.memory.checkpoints.delete(checkpoint) == (self.saved.pop(checkpoint, None) is not None)

    @rule(tape=tapes)
    def forget_lines(self, tape: str) -> None:
        assert self.memory.tapes.forget_lines(tape) == len(self.left.get(tape, []))
        self.left[tape] = []

    @rule(tape=consumes(tapes))
    def delete(self, tape: str) -> None:
        assert self.memory.tapes.delete(tape) == (tape in self.lists)
        self.lists.pop(tape, None)
        self.left.pop(tape, None)
        self.saved = {name: found for name, found in self.saved.items() if found[0] != tape}

    @precondition(lambda self: self.lists)
    @invariant()
    def all_is_as_in_the_lists(self) -> None:
        assert self.memory.tapes.list() == sorted(self.lists)
        for name, entries in self.lists.items():
            assert self.memory.tapes.load(name) == entries
            window = self.memory.tapes.window(name)
            start = max((place for place, entry in enumerate(entries) if is_handoff(entry)), default=0)
            assert (window.window_start, window.entries) == (start, entries[start:])
            assert [line.length for line in self.memory.tapes.lines(name)] == [len(old) for old in self.left[name]]

    def teardown(self) -> None:
        for name, (_, entries, _) in self.saved.items():
            assert self.memory.checkpoints.load(name).entries == entries
        for name, old in self.left.items():
            for line, entries in zip(self.memory.tapes.lines(name), old, strict=True):
                assert self.memory.tapes.load(self.memory.tapes.fork(name, line=line.line)) == entries
        for name in self.memory.tapes.list():
            self.memory.tapes.delete(name)
        left = [count(self.backend, table) for table in ("tapes", "tape_lines", "checkpoints")]
        assert [*left, stored(self.backend), branches(self.backend)] == [0] * 5


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_tapes_are_lists(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    with Memory.open(url, durability="normal") as memory:
        machine = type("Machine", (Tapes,), {"memory": memory, "backend": Backend(dialect, "sync", url)})
        run_state_machine_as_test(machine, settings=SETTINGS)

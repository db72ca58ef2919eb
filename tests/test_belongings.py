"""What belongs to a session goes with it, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_tapes import count, messages, stored

from crowmem.errors import LockTimeout

if TYPE_CHECKING:
    from backends import Backend


def fill(memory: Any, session_id: str) -> None:
    memory.agents.create(f"{session_id}-1-1", session_id)
    memory.messages.add(f"{session_id}-1-1", {"role": "user", "content": session_id})
    memory.payloads.save(session_id, {"of": session_id})
    for name in (session_id, f"{session_id}-1-1"):
        memory.leases.acquire(name, "a")
        memory.tapes.append(name, messages(0, 1))
    memory.checkpoints.save(session_id, checkpoint_id=f"of {session_id}")
    memory.checkpoints.save("shared", checkpoint_id=f"for {session_id}", session_id=session_id)


def test_a_deleted_session_leaves_nothing_and_takes_nothing_else(memory: Any, backend: Backend) -> None:
    memory.tapes.append("shared", messages(5, 6))
    for session_id in ("s", "s-1", "other"):
        fill(memory, session_id)
    old = memory.leases.get("s").token
    memory.tapes.fork("s", "kept")
    deleted = memory.sessions.delete("s")
    assert {name: deleted.counts[name] for name in ("session_payloads", "leases", "tapes", "checkpoints")} == {
        "session_payloads": 1,
        "leases": 2,
        "tapes": 2,
        "checkpoints": 2,
    }
    assert memory.payloads.list() == ["other", "s-1"]
    assert [lease.name for lease in memory.leases.list()] == ["other", "other-1-1", "s-1", "s-1-1-1"]
    assert memory.tapes.list() == ["kept", "other", "other-1-1", "s-1", "s-1-1-1", "shared"]
    assert memory.tapes.load("kept") == messages(0, 1)
    assert [info.checkpoint_id for info in memory.checkpoints.list("shared")] == ["for s-1", "for other"]
    assert memory.leases.acquire("s", "a").token > old, "tokens grow across the deletion too"
    for name in ("kept", "shared"):
        memory.tapes.delete(name)
    for session_id in ("s-1", "other"):
        memory.sessions.delete(session_id)
    assert stored(backend) == 0
    for table in ("tapes", "tape_branches", "tape_lines", "checkpoints", "session_payloads"):
        assert count(backend, table) == 0


def test_the_holder_of_a_session_can_delete_it(memory: Any, backend: Backend) -> None:
    memory.agents.create("s-1-1", "s")
    with memory.sessions.lock("s") as lock:
        memory.sessions.delete("s")
        lock.check()
        with pytest.raises(LockTimeout), backend.blocking().sessions.lock("s", timeout_s=0):
            pass
    assert memory.sessions.get("s") is None
    assert count(backend, "leases") == 0

"""What belongs to a session goes with it, and nothing else does."""

from __future__ import annotations

from pathlib import Path
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


def test_what_belongs_to_an_agent_without_a_row_goes_with_its_session(memory: Any, backend: Backend) -> None:
    memory.messages.add("s-2-2", {"role": "user", "content": "a quokka"})
    memory.leases.acquire("s-2-2", "a")
    memory.tapes.append("s-2-2", messages(0, 1))
    memory.mailbox.send("s-2-2", "mail")
    memory.tasks.launch("t", "s-2-2")
    memory.checkpoints.save("s-2-2", checkpoint_id="c", session_id="s-2-2")
    counts = memory.sessions.delete("s").counts
    assert {name for name, number in counts.items() if number == 1} == {
        "messages",
        "tasks",
        "task_deliveries",
        "leases",
        "tapes",
        "checkpoints",
    }
    tables = ("messages", "tasks", "task_deliveries", "leases", "tapes", "checkpoints")
    for table in (*tables, "stray_agents", "session_summaries", "message_index", "message_index_gone"):
        assert count(backend, table) == 0
    memory.close()
    if backend.dialect == "sqlite":
        for path in Path(backend.url).parent.glob(f"{Path(backend.url).name}*"):
            assert b"quokka" not in path.read_bytes()

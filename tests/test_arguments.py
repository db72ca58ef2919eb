"""Arguments that are not quite what the signature says: taken as what they equal, or refused with a typed error."""

from __future__ import annotations

import enum
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crowmem import Memory
from crowmem.errors import ConfigError, InvalidValue


class Word(str, enum.Enum):  # noqa: UP042  # a StrEnum's str() is its text, an older one's is "Word.USER"
    """What many programs keep roles and priorities in."""

    USER = "user"
    HIGH = "high"
    NEST = "nest"
    AGENT = "nest-1-1"


def test_members_of_an_enum_are_their_text(memory: Any) -> None:
    agent = memory.agents.create(Word.AGENT, Word.NEST, status=Word.HIGH)
    assert (agent.agent_id, agent.session_id, agent.status) == ("nest-1-1", "nest", "high")
    assert memory.agents.get("nest-1-1") == agent
    message_id = memory.messages.add(Word.AGENT, {"role": Word.USER, "content": Word.NEST})
    found = memory.messages.get(message_id)
    assert (found.agent_id, found.role, found.data) == ("nest-1-1", "user", {"role": "user", "content": "nest"})
    assert [one.id for one in memory.messages.query(roles=["user"])] == [message_id]
    assert [one.id for one in memory.messages.query(roles=[Word.USER], agent_ids=[Word.AGENT])] == [message_id]
    assert [hit.id for hit in memory.search.messages("nest", roles=[Word.USER], session_id=Word.NEST)] == [message_id]
    assert memory.messages.load(Word.AGENT) == [{"role": "user", "content": "nest"}]
    memory.mailbox.send(Word.NEST, Word.USER, priority=Word.HIGH)
    assert [one.content for one in memory.mailbox.claim("nest", priority="high")] == ["user"]
    task = memory.tasks.launch("t", Word.NEST, priority=Word.HIGH)
    assert (task.owner_session, task.priority) == ("nest", "high")
    assert memory.tasks.finish("t", status=Word.USER)
    assert memory.tasks.get("t").status == "user"
    lease = memory.leases.acquire(Word.NEST, Word.USER)
    assert (lease.name, lease.owner) == ("nest", "user")
    assert memory.prompts.get(memory.prompts.intern(Word.NEST, Word.USER)).name == "user"


@pytest.mark.parametrize("bad", ["", 0, {}, False, "x"], ids=repr)
def test_tool_definitions_are_a_list(memory: Any, bad: Any) -> None:
    with pytest.raises(InvalidValue, match="tool_definitions is "):
        memory.agents.create("s-1-1", "s", tool_definitions=bad)
    assert memory.agents.get("s-1-1") is None


@pytest.mark.parametrize("bad", [0, 1, 1.5, True, [], {}, object()], ids=lambda bad: type(bad).__name__)
def test_a_config_that_is_no_path_is_a_typed_error(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"config is .*, expected a path"):
        Memory.open(tmp_path / "crow.db", config=bad)


@pytest.mark.parametrize("bad", ["", 0, [], False], ids=repr)
def test_a_durability_that_is_none_is_not_taken_for_the_default(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(InvalidValue, match="durability is "):
        Memory.open(tmp_path / "crow.db", durability=bad)


def test_a_schema_of_the_servers_own_is_refused_with_the_reason(pg_clean: str) -> None:
    with pytest.raises(InvalidValue, match="'pg_crow' begins with 'pg_', which PostgreSQL keeps"):
        Memory.open(pg_clean, schema="pg_crow")


@pytest.mark.parametrize(
    ("name", "bad"),
    [("agent_idx", True), ("agent_idx", 1.0), ("exclude", 0), ("exclude", []), ("exclude", {}), ("exclude", False)],
    ids=repr,
)
def test_a_filter_of_a_wrong_kind_is_no_filter_left_out(memory: Any, name: str, bad: Any) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is of type"):
        memory.search.messages("nest", **{name: bad})


@pytest.mark.parametrize("name", ["blobs.FileStore", "errors.NotFound", "ids.build_agent_id"])
def test_what_the_package_offers_is_there_after_importing_it_alone(name: str) -> None:
    code = f"import crowmem; assert callable(crowmem.{name}); assert dir(crowmem)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")

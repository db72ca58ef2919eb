"""Copy: a whole store into another of any dialect, cut short and gone on, and compared to the last row."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from data import shared_data
from pictures import openai_block, png

from crowmem import Memory
from crowmem.cli import main
from crowmem.copying import compare_stores, copy_store, opened_source
from crowmem.errors import Conflict
from crowmem.ingest import import_paths

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
HISTORIES = ROOT / "examples" / "transcripts"


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], str]:
    """An empty store's address of a dialect; PostgreSQL's in a schema of that name, given apart."""

    def found(dialect: str, name: str) -> str:
        return str(tmp_path / name / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_fresh")

    return found


def opened(url: str, name: str, tmp_path: Path, **arguments: Any) -> Memory:
    schema = {"schema": name} if url.startswith("postgresql") else {}
    return Memory.open(url, images=tmp_path / name / "images", **schema, **arguments)


def fill(memory: Memory) -> None:
    """A store with something of everything."""
    prompt = memory.prompts.intern("You are {name}.")
    for number in range(4):
        memory.agents.create(
            f"s{number}-1-1", f"s{number}", prompt_id=prompt, prompt_args={"b": 1, "a": [None, 2.50]}, cwd=f"/w{number}"
        )
        memory.messages.add_many(
            f"s{number}-1-1",
            [{"role": "user", "content": f"nul \0 half \ud83d 悬空 word{number} {step}"} for step in range(30)],
            created_ats=[f"2026-01-{step + 1:02d}" for step in range(30)],
            usages=[{"prompt_tokens": step} for step in range(30)],
        )
    memory.messages.add("s1-1-1", {"role": "user", "content": [openai_block(png())]})
    memory.messages.add("s1-1-1", {"role": "user", "content": "wrapper"}, injected=True)
    memory.messages.add("orphan-1-1", {"role": "user", "content": "no agent row"})
    memory.messages.add("s2-1-1", {"role": "user", "content": " ".join(f"w{number}" for number in range(20_000))})
    fork = memory.agents.fork("s0-1-1", at=5)
    memory.messages.add(fork.agent_id, {"role": "user", "content": "forked"})
    memory.agents.fork(fork.agent_id)
    memory.sessions.set_title("s3", "given title")
    memory.tasks.launch("task-1", "s0", prompt="work", priority="high")
    memory.tasks.finish("task-1", result="done", content="it is done")
    memory.mailbox.send("s1", "later", delay_s=1000, key="once")
    memory.mailbox.send_many("s1", ["a", "b", "c"])
    memory.mailbox.lease("s1", "worker", lease_s=500)
    memory.mailbox.claim("s1", limit=1)
    memory.payloads.save("s0", {"z": 1, "a": {"deep": [1.50]}})
    memory.tapes.append(
        "tape", [{"id": str(number), "kind": "message", "payload": {"n": number}} for number in range(20)]
    )
    checkpoint = memory.checkpoints.save("tape", label="here", plugin_states={"p": 1})
    memory.tapes.append("tape", [{"id": "x", "kind": "anchor", "anchor_type": "handoff", "payload": {}}])
    memory.tapes.fork("tape", "forked", at=7)
    memory.tapes.append("forked", [{"id": "y", "kind": "message", "payload": {}}])
    memory.checkpoints.restore(checkpoint.checkpoint_id)
    memory.tapes.append("tape", [{"id": "z", "kind": "message", "payload": {}}])
    assert memory.leases.acquire("lease", "me", lease_s=500) is not None
    memory.sessions.delete("s3")
    memory.agents.create("s3-1-1", "s3")
    import_paths(memory, [HISTORIES])


def answers(memory: Memory) -> dict[str, Any]:
    """What users ask, in every corner of a store."""
    sessions = memory.sessions.list(include_forks=True)
    agents = memory.agents.list()
    return {
        "sessions": sessions,
        "trunks": memory.sessions.list(),
        "agents": agents,
        "views": {agent.agent_id: memory.messages.load(agent.agent_id, hydrate=True) for agent in agents},
        "messages": memory.messages.query(),
        "hits": [
            [hit.id for hit in memory.search.messages(query)]
            for query in ("word1", "悬空", "forked", "w19999", '"no agent"')
        ],
        "mail": [memory.mailbox.count(address) for address in ("s0", "s1")],
        "tasks": memory.tasks.list(),
        "payload": memory.payloads.load("s0"),
        "tapes": {tape: memory.tapes.load(tape) for tape in memory.tapes.list()},
        "checkpoints": [memory.checkpoints.load(info.checkpoint_id) for info in memory.checkpoints.list("tape")],
        "lease": memory.leases.get("lease"),
        "origins": [memory.imports.session(session.session_id) for session in sessions],
        "files": [memory.imports.source(str(path)) for path in sorted(HISTORIES.rglob("*")) if path.is_file()],
    }


@pytest.mark.parametrize(
    ("one", "two"), [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]
)
def test_a_store_with_everything_in_it_is_the_same_on_the_other_side(
    address: Callable[[str, str], str], tmp_path: Path, one: str, two: str
) -> None:
    with opened(address(one, "one"), "one", tmp_path) as source, opened(address(two, "two"), "two", tmp_path) as target:
        fill(source)
        report = copy_store(source, target)
        assert (report.differences, report.missing_images, report.images) == ([], [], 1)
        assert answers(target) == answers(source)
        assert target.check(deep=True) == []
        again = copy_store(source, target)
        assert (again.differences, again.rows["messages"]) == ([], 0)

        source.messages.add("s1-1-1", {"role": "user", "content": "later"})
        source.agents.set_model("s1-1-1", "changed")
        assert compare_stores(source, target) != []
        copy_store(source, target)
        assert answers(target) == answers(source)

        newest = max(message.id for message in source.messages.query())
        assert target.messages.add("s1-1-1", {"n": 1}) > newest
        token = source.leases.get("lease").token  # type: ignore[union-attr]
        assert target.leases.acquire("other", "me").token > token  # type: ignore[union-attr]
        assert target.tapes.append("forked", [{"id": "w", "kind": "message", "payload": {}}]) == 9
        assert source.tapes.length("forked") == 8


def test_a_target_with_rows_of_its_own_is_refused(tmp_path: Path) -> None:
    with (
        Memory.open(tmp_path / "a.db") as one,
        Memory.open(tmp_path / "b.db") as two,
        Memory.open(tmp_path / "c.db") as three,
    ):
        one.messages.add("s-1-1", {"n": 1})
        two.messages.add("s-1-1", {"n": 2})
        with pytest.raises(Conflict, match="rows of its own"):
            copy_store(one, two)
        with pytest.raises(Conflict, match="same store"):
            copy_store(one, one)
        copy_store(one, three)
        with pytest.raises(Conflict, match="copy of another store"):
            copy_store(two, three)
        assert two.messages.load("s-1-1") == [{"n": 2}]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_message_that_was_committed_late_comes_with_the_next_copy(
    pg_fresh: str, address: Callable[[str, str], str], tmp_path: Path, dialect: str
) -> None:
    with (
        opened(pg_fresh, "late", tmp_path) as source,
        opened(address(dialect, "copy"), "copy", tmp_path) as target,
    ):
        source.messages.add("a-1-1", {"role": "user", "content": "first"})
        with source.transaction() as open_one:
            open_one.messages.add("b-1-1", {"role": "user", "content": "late"})
            source.messages.add("a-1-1", {"role": "user", "content": "last"})
            assert copy_store(source, target).rows["messages"] == 2
        report = copy_store(source, target)
        assert (report.rows["messages"], report.differences) == (1, [])
        assert target.messages.query() == source.messages.query()
        assert [hit.agent_id for hit in target.search.messages("late")] == ["b-1-1"]
        assert target.check(deep=True) == []
        assert copy_store(source, target).rows["messages"] == 0


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_target_that_went_on_by_itself_is_left_as_it_is(
    address: Callable[[str, str], str], tmp_path: Path, dialect: str
) -> None:
    with Memory.open(tmp_path / "a.db") as source, opened(address(dialect, "two"), "two", tmp_path) as target:
        source.messages.add("s-1-1", {"n": 1})
        source.mailbox.send("box", "once")
        copy_store(source, target)
        assert [item.content for item in target.mailbox.claim("box")] == ["once"]
        target.messages.add("s-1-1", {"n": 2})
        with pytest.raises(Conflict, match="messages of its own since"):
            copy_store(source, target)
        assert target.mailbox.claim("box") == []  # not handed out a second time


def test_what_the_source_deleted_is_told_and_stays_until_the_target_deletes_it_too(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "a.db") as source, Memory.open(tmp_path / "b.db") as target:
        for session in ("old", "new"):
            source.messages.add(f"{session}-1-1", {"role": "user", "content": session})
        copy_store(source, target)
        source.sessions.delete("new")
        assert copy_store(source, target).differences == ["messages: 1 rows in the one and 2 in the other"]
        target.sessions.delete("new")
        assert copy_store(source, target).differences == []


def test_damage_in_the_copy_is_seen(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "a.db") as one, Memory.open(tmp_path / "b.db") as two:
        one.agents.create("s-1-1", "s")
        one.payloads.save("s", {"n": 1})
        copy_store(one, two)
        two.payloads.save("s", {"n": 2})
        two.agents.create("t-1-1", "t")
        assert compare_stores(one, two) == [
            "agents: 1 rows in the one and 2 in the other",
            "session_payloads: 1 rows in both, which are not the same",
        ]


SLOW = """
import sys
from crowmem import Memory, copying
copying.PAGE_ROWS = copying.BATCH_ROWS = 7
with Memory.open(sys.argv[1], read_only=True) as one, Memory.open(sys.argv[2]) as two:
    print("ready", flush=True)
    copying.copy_store(one, two, progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_killed_at_any_moment_it_goes_on(address: Callable[[str, str], str], tmp_path: Path, dialect: str) -> None:
    source, target = str(tmp_path / "source.db"), address(dialect, "target")
    with Memory.open(source, images=tmp_path / "images") as memory:
        fill(memory)
    for pages in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW, source, target], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(1 + pages % 4):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with Memory.open(source, read_only=True) as one, Memory.open(target) as two:
        assert copy_store(one, two).differences == []
        assert two.check(deep=True) == []
        assert len(two.search.messages("word1", limit=100)) == 30


def test_an_old_crow_db_is_copied_and_left_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "old"
    shutil.copytree(shared_data("transcripts", "derived", "crow-db"), folder)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = (folder / "crow.db").read_bytes()
    target = str(tmp_path / "new.db")
    assert main(["copy", str(folder / "crow.db"), target, "--target-images", str(tmp_path / "images")]) == 0
    assert "verified" in capsys.readouterr().out
    assert (folder / "crow.db").read_bytes() == before
    with Memory.open(target, images=tmp_path / "images") as memory, opened_source(folder / "crow.db") as source:
        assert memory.status().rows["messages"] == 134
        assert memory.tasks.list() == source.tasks.list()
        [image] = [
            one
            for one in memory.messages.load("coral-moth-of-bright-images-1-1", hydrate=True)
            if "data:image" in str(one)
        ]
        assert "image_ref" not in str(image)

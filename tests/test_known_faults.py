"""Faults that users of comparable stores met, each with the right outcome. Those about one subject stand in its own file:

4 (dropped locks), 7 (a reader that pauses): test_store. 5, 6 (fork): test_fork. 8, 9 (queries, huge messages): test_search.
10, 11 (NUL, half characters), 13 (a follower that skips): test_messages. 14 (forks): test_agents, test_tapes. 15 (a task that
kills its worker): test_mailbox. 16 (the old owner): test_leases, test_mailbox. 17, 18 (first starts, killed upgrades):
test_schema. 19 (one bad image): test_images.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import apsw
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from crowmem import Memory
from crowmem.drivers import filesystems, sqlite_file
from crowmem.errors import Conflict

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    found = str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")
    Memory.open(found).close()
    return found


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


COUNT = """
import sys
from crowmem import Memory
from crowmem.errors import Conflict
with Memory.open(sys.argv[1], busy_timeout_s=60) as memory:
    for _ in range(150):
        while True:
            try:
                with memory.transaction() as tx:
                    value = tx.payloads.load("counter")["n"]
                    tx.payloads.save("counter", {"n": value + 1}, expected_version=value + 1)
                break
            except Conflict:
                pass
"""


def test_1_read_then_write_in_one_transaction(url: str) -> None:
    with Memory.open(url) as memory:
        memory.payloads.save("counter", {"n": 0})
        processes = [start(COUNT, url) for _ in range(6)]
        for process in processes:
            _, errors = process.communicate()
            assert (process.returncode, errors) == (0, "")
        assert memory.payloads.load("counter") == {"n": 900}


CLAIM_AND_WAIT = """
import sys
from crowmem import Memory
memory = Memory.open(sys.argv[1])
print(*(one.id for one in memory.mailbox.claim("box", limit=1)), flush=True)
sys.stdin.readline()
"""


def test_2_a_claim_is_committed_before_it_is_handed_out(url: str) -> None:
    with Memory.open(url, busy_timeout_s=1) as memory:
        ids = memory.mailbox.send_many("box", ["one", "two", "three"])
        process = start(CLAIM_AND_WAIT, url)
        assert process.stdout is not None
        claimed = int(process.stdout.readline())
        memory.mailbox.send("box", "four")  # the claimer holds no lock while it works
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert claimed == ids[0]
        assert [one.content for one in memory.mailbox.claim("box")] == ["two", "three", "four"]


@pytest.mark.parametrize(
    ("kind", "fit"),
    [
        ("ext4", True),
        ("tmpfs", True),
        ("overlay", True),
        ("nfs4", False),
        ("9p", False),
        ("fuse.sshfs", False),
        ("cifs", False),
    ],
)
def test_3_a_mount_that_cannot_share_memory_gets_a_rollback_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, fit: bool
) -> None:
    folder = tmp_path / "my share"
    mounts = tmp_path / "mountinfo"
    point = str(folder).replace(" ", "\\040")
    mounts.write_text(
        f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {point} rw,noatime shared:1 - {kind} server:/x rw\n", "utf-8"
    )
    assert filesystems.shares_memory(folder / "crow.db", mounts) == (kind, fit)
    assert filesystems.shares_memory(tmp_path / "crow.db", mounts) == ("ext4", True)
    assert filesystems.shares_memory(folder, tmp_path / "missing") == ("", True)
    monkeypatch.setattr(sqlite_file, "shares_memory", lambda path: filesystems.shares_memory(path, mounts))
    with Memory.open(folder / "crow.db") as memory:
        memory.messages.add("s-1-1", {"n": 1})
        assert memory.status().journal == (
            "wal" if fit else f"delete (file system {kind} cannot keep a write-ahead log coherent)"
        )
    assert (kind in caplog.text) == (not fit)


def test_12_two_runs_on_one_session(url: str) -> None:
    with Memory.open(url) as one, Memory.open(url) as two:
        one.messages.add("s-1-1", {"from": "one"})
        two.messages.add("s-1-1", {"from": "two"})
        assert one.messages.load("s-1-1") == [{"from": "one"}, {"from": "two"}]
        version = one.payloads.save("s", {"title": "old"})
        one.payloads.save("s", {"title": "one"}, expected_version=version)
        with pytest.raises(Conflict):
            two.payloads.save("s", {"title": "two"}, expected_version=version)
        assert two.payloads.load("s") == {"title": "one"}


WORD = "zyxwvutsrare"


def test_20_delete_means_delete(url: str, tmp_path: Path) -> None:
    with Memory.open(url, images=tmp_path / "images") as memory:
        for number in range(8):
            memory.agents.create(f"s{number}-1-1", f"s{number}", system_prompt=WORD if number == 3 else "")
            for step in range(40):
                text = f"{WORD} {WORD}{step} number {step}" if number == 3 else f"something else {step}"
                memory.messages.add(f"s{number}-1-1", {"role": "user", "content": text})
        memory.tasks.launch("task", "s3", prompt=WORD)
        memory.mailbox.send("s3", WORD)
        memory.payloads.save("s3", {"x": WORD})
        assert memory.search.messages(WORD) != []
        deleted = memory.sessions.delete("s3")
        assert deleted is not None
        assert {name: count for name, count in deleted.counts.items() if count} == {
            "agents": 1,
            "messages": 40,
            "tasks": 1,
            "task_deliveries": 1,
            "session_payloads": 1,
        }
        assert memory.search.messages(WORD) == []
        assert len(memory.search.messages("something", limit=1000)) == 280
        assert memory.check(deep=True) == []
    if url.startswith("postgresql"):
        assert tables_with(url, WORD) == []
    else:
        connection = apsw.Connection(url)
        connection.pragma("wal_checkpoint(truncate)")
        connection.close()
        for file in tmp_path.glob("crow.db*"):
            assert file.read_bytes().count(WORD.encode()) == 0, file.name


def tables_with(url: str, word: str) -> list[str]:
    """Tables of which some row holds a word, in any column."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
        ).fetchall()
        return [
            str(name)
            for (name,) in names
            if connection.execute(
                SQL("select 1 from {} t where position(%s in t::text) > 0 limit 1").format(Identifier(name)), (word,)
            ).fetchone()
        ]

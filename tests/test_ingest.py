"""Import into a store: everything once, on both databases alike, from where it was left, whatever happens meanwhile."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from data import SHARED, shared_data
from test_importers_odd import SAMPLES, spoiled_file

from crowmem import Memory
from crowmem.ingest import ImportProgress, ImportReport, import_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLAUDE = ("transcripts", "claude-code")
MAIN_FOLDERS = ("claude-code", "codex-rollout", "openai-chat", "multilingual", "derived")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Memory]:
    with Memory.open(url, images=tmp_path / "images") as memory:
        yield memory


def contents(memory: Memory) -> dict[str, Any]:
    """Everything an import makes, without the numbers that a database gives out."""
    found: dict[str, Any] = {}
    for info in memory.sessions.list(limit=1000):
        for agent in memory.agents.list(info.session_id):
            found[agent.agent_id] = (
                info.title,
                agent.model_identifier,
                agent.cwd,
                [
                    (message.role, message.created_at, message.prompt_tokens, message.completion_tokens)
                    for message in memory.messages.query(agent_ids=[agent.agent_id])
                ],
                memory.messages.load_json(agent.agent_id),
            )
    return found


def line(kind: str, number: int, content: Any, **more: Any) -> str:
    """One record as Claude Code writes it."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {
            "id": more.pop("reply", f"msg_{number}"),
            "model": "m-1",
            "usage": {"input_tokens": 5, "output_tokens": number},
        }
    record = {
        "type": kind,
        "uuid": f"u-{number}",
        "sessionId": "s-1",
        "timestamp": f"2026-01-01T00:00:{number:02d}.000Z",
        "cwd": "/home/me/project",
        "gitBranch": "main",
        "message": message,
        **more,
    }
    return json.dumps(record) + "\n"


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def test_all_transcripts_come_in_and_a_second_run_adds_nothing(store: Memory) -> None:
    top = shared_data("transcripts")
    report = import_paths(store, [top])
    assert report.files == 113
    assert sorted(Path(path).name for path in report.unrecognised) == sorted(["LICENSES.md", *["README.md"] * 21])
    assert report.messages_added > 4000
    before = contents(store)
    again = import_paths(store, [top])
    assert (again.files, again.unchanged) == (0, 113)
    assert (again.messages_added, again.messages_grown) == (0, 0)
    assert contents(store) == before


def test_an_imported_agent_has_what_created_ones_have_by_default(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(line("user", 1, "hello"), encoding="utf-8")
    import_paths(store, [path])
    imported, created = store.agents.list("s-1")[0], store.agents.create("t-1-1", "t")
    for name in ("tool_definitions", "request_params", "mcp_servers", "prompt_args", "system_prompt"):
        assert getattr(imported, name) == getattr(created, name)
        assert type(getattr(imported, name)) is type(getattr(created, name))


def test_reading_everything_anew_adds_nothing(store: Memory, tmp_path: Path) -> None:
    """The same files elsewhere: nothing is known of the files, everything of the messages."""
    shared_data("transcripts")
    import_paths(store, [SHARED / "transcripts" / name for name in MAIN_FOLDERS])
    before = contents(store)
    for name in MAIN_FOLDERS:
        shutil.copytree(SHARED / "transcripts" / name, tmp_path / "copy" / name)
    again = import_paths(store, [tmp_path / "copy"])
    assert again.unchanged == 0
    assert (again.messages_added, again.messages_grown) == (0, 0)
    assert contents(store) == before


@pytest.mark.postgres
def test_both_databases_hold_the_same(pg_clean: str, tmp_path: Path) -> None:
    top = shared_data("transcripts")
    found = []
    for number, url in enumerate((str(tmp_path / "crow.db"), pg_clean)):
        with Memory.open(url, images=tmp_path / f"images-{number}") as memory:
            report = import_paths(memory, [top])
            assert report.messages_added > 4000
            found.append((contents(memory), report.messages_added, report.skips, report.passed))
    assert found[0] == found[1]


def test_a_session_that_grew_adds_what_is_new(store: Memory, tmp_path: Path) -> None:
    """The second file has the first as its beginning; whether they come as one or as two makes no difference."""
    grown = shared_data(*CLAUDE, "entire-cli", "growth-2-34b1e2a4.jsonl")
    path = tmp_path / "session.jsonl"
    shutil.copy(shared_data(*CLAUDE, "entire-cli", "growth-1-34b1e2a4.jsonl"), path)
    first = import_paths(store, [path])
    shutil.copy(grown, path)
    second = import_paths(store, [path])
    assert (first.messages_added, second.messages_added) == (22, 22)
    assert second.messages_known <= 2
    split = contents(store)
    store.sessions.delete("34b1e2a4-8cec-4bb9-94a0-ec9e9c639c8e")
    assert import_paths(store, [path]).messages_added == 44
    assert contents(store) == split


def test_a_reply_that_grows_between_two_runs_is_one_message(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    call = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]
    path.write_text(line("user", 1, "list") + line("assistant", 2, text("I look."), reply="msg_a"))
    import_paths(store, [path])
    with path.open("a") as file:
        file.write(line("assistant", 3, call, reply="msg_a"))
        file.write(line("user", 4, [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}]))
    report = import_paths(store, [path])
    assert (report.messages_added, report.messages_grown) == (1, 1)
    user, reply, result = store.messages.query(session_id="s-1")
    assert user.data == {"role": "user", "content": "list"}
    assert reply.data["content"] == "I look."
    assert reply.data["tool_calls"][0]["function"] == {"name": "Bash", "arguments": '{"command":"ls"}'}
    assert (reply.prompt_tokens, reply.completion_tokens) == (5, 3)  # of the last line, not the sum
    assert result.data == {"role": "tool", "tool_call_id": "toolu_1", "name": "Bash", "content": "a.txt"}
    assert [hit.id for hit in store.search.messages("Bash ls")] == [reply.id]


def test_a_last_line_that_is_cut_comes_in_when_it_is_whole(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    last = line("user", 2, "second")
    path.write_text(line("user", 1, "first") + last[:60])
    report = import_paths(store, [path])
    assert [(skip.line, "cut at the end" in skip.reason) for skip in report.skips] == [(2, True)]
    path.write_text(line("user", 1, "first") + last)
    assert import_paths(store, [path]).messages_added == 1
    assert [message["content"] for message in store.messages.load("s-1-1-1")] == ["first", "second"]


def test_a_file_that_was_written_anew_adds_what_is_new(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    path.write_text(line("user", 1, "first") + line("user", 2, "second"))
    import_paths(store, [path])
    path.write_text(line("user", 9, "put before") + line("user", 1, "first") + line("user", 3, "third"))
    report = import_paths(store, [path])
    assert (report.messages_added, report.messages_known) == (2, 1)


def test_replayed_turns_are_known_by_what_they_say(store: Memory) -> None:
    path = shared_data(*CLAUDE, "session-share", "images-in-user-messages.jsonl")
    import_paths(store, [path])
    messages = store.messages.query(session_id="47bf5f5c-9e11-4f51-8a29-7ad38ecdf17c", roles=["user"])
    assert len(messages) == 2
    assert [block["type"] for block in messages[0].data["content"]] == ["image_ref", "text"]
    assert store.images.exists(messages[0].data["content"][0]["path"])


def test_sub_agents_are_agents_of_their_session(store: Memory) -> None:
    folder = shared_data(*CLAUDE, "session-share", "projects")
    import_paths(store, [folder])
    agents = store.agents.list("0ccf1a04-1b4c-43b6-8aa5-79e41db43a68")
    assert [agent.agent_idx for agent in agents] == [1, 2, 3, 4, 5, 6]
    assert agents[0].cwd == "/Users/devd83b/tmp/claude-code-sessions"
    assert {agent.model_identifier for agent in agents[1:]} <= {"claude-haiku-4-5-20251001", "claude-opus-4-5-20251101"}


def test_a_sub_agent_that_comes_first_leaves_place_for_the_main_one(store: Memory) -> None:
    top = shared_data(*CLAUDE, "session-share", "projects")
    session = "0ccf1a04-1b4c-43b6-8aa5-79e41db43a68"
    import_paths(store, [top / session / "subagents" / "agent-a5bdbc1.jsonl"])
    import_paths(store, [top / f"{session}.jsonl"])
    first, second = store.agents.list(session)
    assert (first.agent_idx, second.agent_idx) == (1, 2)
    assert len(store.messages.load(first.agent_id)) > len(store.messages.load(second.agent_id))


def test_injected_text_is_marked_and_no_user_said_it(store: Memory) -> None:
    import_paths(store, [shared_data(*CLAUDE, "entire-cli", "compaction-a6e4c2a0.jsonl")])
    session = "198393f2-22db-477b-ac77-1825bea883ae"
    said = store.messages.query(session_id=session, roles=["user"])
    assert len(said) == 2
    kinds = [message.data["name"] for message in store.messages.query(session_id=session, roles=["developer"])]
    assert kinds == ["caveat", "command", "command-output", "client-error", "compact-summary"]
    info = store.sessions.get(session)
    assert info is not None
    assert info.title == "for the change in cmd/entire/cli/hooks_claudecode_"
    assert store.search.messages("continued from a previous conversation", session_id=session, injected=False) == []


def test_where_a_session_comes_from_is_known(store: Memory) -> None:
    path = shared_data(*CLAUDE, "oh-my-posh", "nul-utf16-db8d3dd4.jsonl")
    import_paths(store, [path])
    found = store.imports.session("db8d3dd4-4827-4596-b83e-d7c9e0842ff6")
    assert found is not None
    assert (found.format, found.path, found.title) == ("claude-code", str(path), "Oh My Posh feasible issues")
    assert store.imports.session("unknown") is None
    assert store.imports.source(str(path)) is not None


def test_a_deleted_session_leaves_nothing_and_can_come_back(store: Memory) -> None:
    path = shared_data(*CLAUDE, "spotter", "tool_heavy.jsonl")
    report = import_paths(store, [path])
    [session] = store.sessions.list()
    store.sessions.delete(session.session_id)
    assert store.imports.session(session.session_id) is None
    assert store.imports.source(str(path)) is None
    assert import_paths(store, [path]).messages_added == report.messages_added


def test_nul_and_half_characters_survive(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    said = "nul \0 half \ud83d bell \a"
    path.write_text(line("user", 1, said))
    assert import_paths(store, [path]).messages_added == 1
    assert store.messages.load("s-1-1-1") == [{"role": "user", "content": said}]


def test_spoiled_files_stop_no_run(store: Memory, tmp_path: Path) -> None:
    """Values exchanged for others at random: what a parser takes of them, the store takes as well."""
    for number, name in enumerate(SAMPLES):
        folder = tmp_path / "spoiled" / str(number)
        folder.mkdir(parents=True)
        (folder / Path(name).name).write_bytes(spoiled_file(name, random.Random(name), 0.05))
    report = import_paths(store, [tmp_path / "spoiled"])
    assert report.messages_added > 500
    again = import_paths(store, [tmp_path / "spoiled"])
    assert (again.messages_added, again.messages_grown) == (0, 0)


def test_names_that_no_column_can_hold_are_made_fit(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(line("user", 1, "hello", sessionId="a\0b\ud83d", cwd="/\0", gitBranch="x" * 5000))
    assert import_paths(store, [path]).messages_added == 1
    [session] = store.sessions.list()
    assert session.session_id == "a\ufffdb\ufffd"


def test_what_the_store_refuses_is_skipped_with_its_place(store: Memory, tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(250):
        deep = [deep]
    path = tmp_path / "chat.json"
    path.write_text(
        json.dumps([{"role": "user", "content": "before"}, {"role": "user", "content": [{"type": "x", "v": deep}]}])
    )
    report = import_paths(store, [path])
    assert report.messages_added == 1
    [skip] = report.skips
    assert "nested more than 200 deep" in skip.reason


def test_a_path_that_is_not_there_and_other_files_are_listed(store: Memory, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of interest")
    report = import_paths(store, [tmp_path / "missing", tmp_path / "notes.txt"])
    assert [(Path(skip.path).name, skip.line) for skip in report.skips] == [("missing", 0)]
    assert [Path(path).name for path in report.unrecognised] == ["notes.txt"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_listed(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "closed.jsonl"
    path.write_text(line("user", 1, "x"))
    path.chmod(0)
    [skip] = import_paths(store, [path]).skips
    assert "Permission" in skip.reason


def test_a_folder_that_may_not_be_listed_is_told(
    store: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is somewhere below: its histories would be missed without a word."""
    closed = tmp_path / "all" / "closed"
    closed.mkdir(parents=True)
    (tmp_path / "all" / "one.jsonl").write_text(line("user", 1, "x"))
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if os.fspath(path) == str(closed):  # root may list everything
            raise PermissionError(13, "Permission denied", str(closed))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    for named in (tmp_path / "all", closed):
        report = import_paths(store, [named])
        assert [(skip.path, skip.line, skip.reason) for skip in report.skips] == [(str(closed), 0, "Permission denied")]
    assert len(store.messages.query(session_id="s-1")) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_read(store: Memory, tmp_path: Path, encoding: str) -> None:
    """As a Windows shell writes what an export prints."""
    path = tmp_path / "s-1.jsonl"
    written = line("user", 1, "größer \U0001f426") + line("user", 2, "zwei")
    path.write_bytes(written.encode(encoding) if encoding == "utf-16" else b"\xfe\xff" + written.encode(encoding))
    assert import_paths(store, [path]).messages_added == 2
    assert [message.data["content"] for message in store.messages.query(session_id="s-1")] == [
        "größer \U0001f426",
        "zwei",
    ]
    written += line("user", 3, "drei")
    path.write_bytes(written.encode(encoding) if encoding == "utf-16" else b"\xfe\xff" + written.encode(encoding))
    again = import_paths(store, [path])
    assert (again.messages_added, again.messages_known) == (1, 0)


def test_gzip_is_read_and_a_cut_one_is_told(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl.gz"
    whole = gzip.compress("".join(line("user", number, f"{number} " * 50) for number in range(1, 40)).encode())
    path.write_bytes(whole[:-9])
    cut = import_paths(store, [path])
    [skip] = cut.skips
    assert "ended before" in skip.reason
    path.write_bytes(whole)
    rest = import_paths(store, [path])
    assert cut.messages_added + rest.messages_added == 39
    assert import_paths(store, [path]).unchanged == 1


def test_a_session_without_a_prompt_is_named_at_once(store: Memory, tmp_path: Path) -> None:
    """Not only once its messages are indexed: a run that is killed before that would leave it without a name."""
    path = tmp_path / "s-1.jsonl"
    path.write_text(line("assistant", 1, text("Good morning.")))
    import_paths(store, [path])
    assert store.sessions.list()[0].title is None
    with path.open("a") as file:
        file.write(line("assistant", 2, text("The twigs are loose.")) + line("assistant", 3, text("Moss is dry.")))
    import_paths(store, [path])
    assert store.sessions.list()[0].title == "The twigs are loose."
    with path.open("a") as file:
        file.write(line("user", 4, "Why does it leak?"))
    import_paths(store, [path])
    assert store.sessions.list()[0].title == "Why does it leak?"
    store.search.messages("twigs")
    assert store.sessions.list()[0].title == "Why does it leak?"


def test_the_memory_itself_is_not_opened(tmp_path: Path) -> None:
    """Opening its file by other means than SQLite would drop the locks that this process has on it."""
    db = tmp_path / "crow.db"
    with Memory.open(str(db)) as memory:
        memory.messages.add("s-1-1", {"role": "user", "content": "x"})
        (tmp_path / "link.db").symlink_to(db)
        report = import_paths(memory, [tmp_path, db])
        assert report.files == 0
        assert not [path for path in report.unrecognised if Path(path).name.startswith(("crow.db", "link.db"))]
        assert [skip.reason for skip in report.skips] == ["this is the memory itself"]


def test_progress_is_told_and_ends_complete(store: Memory) -> None:
    told: list[ImportProgress] = []
    import_paths(store, [shared_data(*CLAUDE, "spotter")], progress=told.append)
    assert [state.files_done for state in told] == sorted(state.files_done for state in told)
    assert [state.bytes_done for state in told] == sorted(state.bytes_done for state in told)
    last = told[-1]
    assert last.path == ""
    assert (last.files_done, last.bytes_done) == (last.files_total, last.bytes_total)
    assert last.messages_added > 0


def run_many(code: str, arguments: list[str], count: int) -> list[str]:
    """The same program in several processes at once; what each printed."""
    root = Path(__file__).resolve().parents[1]
    ran = [
        subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, cwd=root)
        for _ in range(count)
    ]
    printed = [process.communicate()[0].strip() for process in ran]
    assert [process.returncode for process in ran] == [0] * count
    return printed


IMPORT = """
import sys
from crowmem import Memory
from crowmem.ingest import import_paths
with Memory.open(sys.argv[1], busy_timeout_s=60) as memory:
    print(import_paths(memory, sys.argv[2:]).messages_added)
"""


def test_four_importers_at_once_add_everything_once(url: str, tmp_path: Path) -> None:
    top = shared_data(*CLAUDE)
    with Memory.open(url) as memory:
        memory.sessions.list()
    added = run_many(IMPORT, [url, str(top)], 4)
    with Memory.open(url) as memory:
        total = memory.status().rows["messages"]
        assert sum(map(int, added)) == total
        found = contents(memory)
    with Memory.open(str(tmp_path / "alone.db")) as alone:
        import_paths(alone, [top])
        assert contents(alone).keys() >= {agent for agent in found if agent.endswith("-1-1")}
        assert alone.status().rows["messages"] == total


def test_a_run_that_was_killed_goes_on(url: str, tmp_path: Path) -> None:
    lines = [line("user", number % 60, f"message {number}", uuid=f"v-{number}") for number in range(9000)]
    path = tmp_path / "s-1.jsonl"
    path.write_text("".join(lines))
    code = IMPORT.replace(
        "print(",
        "import os; memory.imports.__class__.add; import_paths(memory, sys.argv[2:], progress=lambda p: p.messages_added >= 4000 and os._exit(9)); print(",
    )
    root = Path(__file__).resolve().parents[1]
    killed = subprocess.run([sys.executable, "-c", code, url, str(path)], check=False, cwd=root)
    assert killed.returncode == 9
    with Memory.open(url) as memory:
        there = memory.status().rows["messages"]
        assert 4000 <= there < 9000
        report = import_paths(memory, [path])
        assert report.messages_added == 9000 - there
        assert [message["content"] for message in memory.messages.load("s-1-1-1")] == [
            f"message {n}" for n in range(9000)
        ]


def test_memory_stays_flat(tmp_path: Path) -> None:
    """A file ten times as long takes no more memory."""
    words = "word " * 200
    sizes = {}
    for name, count in (("short", 4000), ("long", 40_000)):
        path = tmp_path / f"{name}.jsonl"
        with path.open("w") as file:
            for number in range(count):
                file.write(line("user", number % 60, f"{number} {words}", uuid=f"w-{number}"))
        code = IMPORT + "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        [printed] = run_many(code, [str(tmp_path / f"{name}.db"), str(path)], 1)
        added, kilobytes = printed.split()
        assert int(added) == count
        sizes[name] = int(kilobytes)
    assert sizes["long"] < sizes["short"] * 1.3


# -- crow.db ---------------------------------------------------------------------------------------------------------


def crow_rows(path: Path, table: str, columns: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as file:
        return file.execute(f"select {columns} from {table} order by 1").fetchall()


def test_a_crow_file_is_taken_over_whole(store: Memory) -> None:
    path = shared_data("transcripts", "derived", "crow-db", "crow.db")
    before = path.read_bytes()
    report = import_paths(store, [path.parent])
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["crow.db", "images"]
    assert (report.messages_added, report.skipped) == (134, 0)
    rows = crow_rows(path, "messages", "id, agent_id, created_at, data, role, prompt_tokens")
    for number, agent_id, created_at, data, role, prompt_tokens in rows:
        message = store.messages.get(number)
        assert message is not None
        assert (message.agent_id, message.role, message.prompt_tokens) == (agent_id, role, prompt_tokens)
        assert message.created_at.isoformat() == created_at
        assert message.data == json.loads(data)
    whole = store.messages.load_json("taupe-otter-of-quiet-tides-1-1")
    assert whole == f"[{','.join(row[3] for row in rows if row[1] == 'taupe-otter-of-quiet-tides-1-1')}]"
    agents = {agent.agent_id: agent for agent in store.agents.list()}
    for agent_id, forked_at, cwd, model, created_at in crow_rows(
        path, "agents", "agent_id, forked_at, cwd, model_identifier, created_at"
    ):
        agent = agents.pop(agent_id)
        assert (agent.forked_at, agent.cwd, agent.model_identifier) == (forked_at, cwd, model)
        assert agent.created_at.isoformat() == created_at
    assert not agents
    assert len(store.tasks.list()) == 3
    assert [mail.priority for mail in store.mailbox.pending("coral-moth-of-bright-images")] == ["high", "low"]
    [picture] = [row for row in rows if "image_ref" in row[3]]
    assert store.images.exists(json.loads(picture[3])["content"][1]["path"])
    again = import_paths(store, [path.parent])
    assert (again.unchanged, again.messages_added) == (2, 0)


def test_a_crow_file_into_a_store_in_use(store: Memory, tmp_path: Path) -> None:
    """Messages get new numbers, and the fork's anchor follows."""
    store.messages.add("mine-1-1", {"role": "user", "content": "x"})
    source = shared_data("transcripts", "derived", "crow-db", "crow.db")
    import_paths(store, [source])
    fork = store.agents.get("slate-finch-of-kind-logs-1-2")
    assert fork is not None
    assert fork.forked_at not in (None, "50", "0")
    with Memory.open(str(tmp_path / "empty.db")) as empty:
        import_paths(empty, [source])
        assert store.messages.load(fork.agent_id) == empty.messages.load(fork.agent_id)
    claimed = store.mailbox.claim("coral-moth-of-bright-images")
    assert len(claimed) == 2
    shutil.copy(source, tmp_path / "moved.db")
    again = import_paths(store, [tmp_path / "moved.db"])
    assert (again.messages_added, again.messages_known) == (0, 134)
    assert store.mailbox.pending("coral-moth-of-bright-images") == []
    assert len(store.tasks.list()) == 3


def make_crow(path: Path, version: int) -> None:
    """A small file of an older version, as crow-cli made it."""
    fork = ", fork_idx integer not null, forked_at text" if version > 4 else ""
    own = ", fork_idx integer not null" if version > 4 else ""
    with sqlite3.connect(path) as file:
        file.executescript(
            f"""
            create table prompts (id text primary key, name text, template text, created_at text);
            create table agents (agent_id text primary key, session_id text, agent_idx integer{fork}, cwd text, prompt_id text,
                prompt_args json, system_prompt text, tool_definitions json, request_params json, model_identifier text,
                status text, created_at text);
            create table messages (id integer primary key, agent_id text, created_at text, data json, role text{own});
            insert into prompts values ('four-word-slug-id', 'p', 'be kind', '2026-01-01T00:00:00+00:00');
            """
        )
    file.close()


def test_version_4_has_trunks_only(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    make_crow(path, 4)
    with sqlite3.connect(path) as file:
        file.execute(
            "insert into agents values ('a-b-1', 'a-b', 1, '/x', 'four-word-slug-id', '{}', 'sys', '[]', '{}', 'm', 'active', '2026-01-01T00:00:00+00:00')"
        )
        file.execute(
            """insert into messages values (7, 'a-b-1', '2026-01-01T00:00:01+00:00', '{"role": "user", "content": "old words"}', 'user')"""
        )
    file.close()
    assert import_paths(store, [path]).messages_added == 1
    agent = store.agents.get("a-b-1-1")
    assert agent is not None
    assert (agent.prompt_id, agent.system_prompt, agent.fork_idx) == ("four-word-slug-id", "sys", 1)
    prompt = store.prompts.get("four-word-slug-id")
    assert prompt is not None
    assert prompt.template == "be kind"
    assert store.messages.load("a-b-1-1") == [{"role": "user", "content": "old words"}]


def test_a_crow_file_that_is_written_to_is_read_with_its_log(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    make_crow(path, 5)
    file = sqlite3.connect(path)
    file.execute("pragma journal_mode = wal")
    put = "insert into messages values (?, 's-1-1', '2026-01-01T00:00:00+00:00', ?, 'user', 1)"
    with file:
        file.execute(put, (1, json.dumps({"role": "user", "content": "one"})))
    assert import_paths(store, [path]).messages_added == 1
    with file:
        file.execute(put, (2, json.dumps({"role": "user", "content": "two"})))
        file.execute(put, (3, "not json"))
    report = import_paths(store, [path])
    assert report.messages_added == 1
    assert [skip.reason.partition(" is no JSON")[0] for skip in report.skips] == ["messages row 3: message 3"]
    file.close()


# -- what the counters of sessions say -------------------------------------------------------------------------------


def test_sessions_are_counted_as_their_messages_are(store: Memory) -> None:
    import_paths(store, [shared_data(*CLAUDE)])
    for info in store.sessions.list(limit=1000):
        messages = store.messages.query(session_id=info.session_id)
        assert info.message_count == len(messages)
        assert info.last_activity == max(message.created_at for message in messages)
        assert info.agent_count == len(store.agents.list(info.session_id))


def report_of(store: Memory, write: Callable[[Path], Any], path: Path) -> ImportReport:
    write(path)
    return import_paths(store, [path])


def test_words_of_new_and_grown_messages_are_found(store: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    report_of(store, lambda file: file.write_text(line("assistant", 1, text("alpha"), reply="m")), path)
    assert [hit.data["content"] for hit in store.search.messages("alpha")] == ["alpha"]
    grown = line("assistant", 1, text("alpha"), reply="m") + line("assistant", 2, text("omega"), reply="m")
    report_of(store, lambda file: file.write_text(grown), path)
    assert len(store.search.messages("omega")) == 1
    assert len(store.search.messages("alpha")) == 1

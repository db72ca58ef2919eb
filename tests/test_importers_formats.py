"""The smaller formats: what each tool's quirks become."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from typing import TYPE_CHECKING, Any

from data import shared_data
from test_importers import items, turns

from crowmem.importers import MAIN, SessionFacts, Skip, Source, Turn, recognise

if TYPE_CHECKING:
    from pathlib import Path


def transcript(*parts: str) -> Path:
    return shared_data("transcripts", *parts)


def written(path: Path, value: Any) -> Path:
    """A JSON document, or (a list of dicts under .jsonl) a record a line."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in value))
    else:
        path.write_text(json.dumps(value))
    return path


def spoken(path: Path) -> list[tuple[str, Any]]:
    return [(turn.message["role"], turn.message.get("content")) for turn in turns(path)]


# -- OpenAI chat ------------------------------------------------------------------------------------------------------

CHAT = [
    {"role": "system", "content": "Be kind."},
    {"z": 1, "role": "user", "content": [{"type": "text", "text": "Hi"}], "unknown": {"b": 1e-7, "a": [1.0, 2]}},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{bad"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": ["x"]},
    {"role": "assistant", "content": "Hello", "reasoning_content": "…", "annotations": []},
]


def test_chat_messages_are_kept_as_they_are(tmp_path: Path) -> None:
    shapes: dict[str, Any] = {
        "list.json": CHAT,
        "object.json": {"model": "m", "messages": CHAT},
        "traj.json": [{"traj": CHAT, "reward": 0.0}],
        "one-a-line.jsonl": CHAT,
        "conversation-a-line.jsonl": [{"messages": CHAT}, {"messages": CHAT[:2]}],
    }
    for name, shape in shapes.items():
        found = turns(written(tmp_path / name, shape))
        own = [turn for turn in found if turn.session_id == found[0].session_id]
        assert [json.dumps(turn.message) for turn in own] == [json.dumps(message) for message in CHAT], name


def test_a_list_a_line_is_a_conversation_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(json.dumps(CHAT[:count]) + "\n" for count in (2, 3)))
    assert len({turn.session_id for turn in turns(path)}) == 2


def test_conversations_have_names_that_last(tmp_path: Path) -> None:
    """The same beginning in another folder is the same conversation, another answer to it is another one."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = written(tmp_path / "a" / "run.json", {"messages": CHAT[:3]})
    longer = written(tmp_path / "b" / "run.json", {"messages": CHAT})
    assert turns(first)[0].session_id == turns(longer)[0].session_id
    assert turns(first)[0].keys == turns(longer)[0].keys
    other = written(tmp_path / "b" / "run.json", {"messages": [*CHAT[:2], CHAT[4]]})
    assert turns(first)[0].session_id != turns(other)[0].session_id


def test_a_request_and_its_response_are_one_conversation() -> None:
    path = transcript("openai-chat", "pydantic-ai", "responses-api-image.jsonl")
    asked, answered = turns(path)
    assert [block["type"] for block in asked.message["content"]] == ["text", "image_url"]
    assert answered.message == {"role": "assistant", "content": "This is a potato."}
    assert answered.usage == {"prompt_tokens": 515, "completion_tokens": 6, "total_tokens": 521}
    assert answered.model == "gpt-4.1-nano-2025-04-14"
    assert answered.created_at is not None


def test_sharegpt_calls_and_results_belong_together() -> None:
    path = transcript("multilingual", "zh-sharegpt-toolcalls-001-046.json")
    found = turns(path)
    call = next(turn for turn in found if turn.message.get("tool_calls"))
    result = next(turn for turn in found if turn.message["role"] == "tool")
    made = call.message["tool_calls"][0]
    assert made["function"]["name"] == "generate_invoice"
    assert json.loads(made["function"]["arguments"])["customer_name"] == "约翰·多伊"
    assert result.message["tool_call_id"] == made["id"]


# -- tapes ------------------------------------------------------------------------------------------------------------


def test_parallel_calls_of_a_tape_are_one_message(tmp_path: Path) -> None:
    def entry(number: int, kind: str, **payload: Any) -> dict[str, Any]:
        return {"id": f"e{number}", "kind": kind, "payload": payload, "timestamp": 1735689601.5 + number}

    path = written(
        tmp_path / "tape-7.jsonl",
        [
            entry(1, "message", role="user", content="both"),
            entry(2, "tool_call", id="a", name="one", arguments={"x": 1}),
            entry(3, "tool_call", id="b", name="two", arguments={}),
            entry(4, "tool_result", tool_call_id="a", content="A"),
            entry(5, "anchor", content="handoff"),
            entry(6, "tool_result", tool_call_id="b", content="B", is_error=True),
        ],
    )
    _user, called, first, second = turns(path)
    assert called.session_id == "tape-7"
    assert [call["function"]["name"] for call in called.message["tool_calls"]] == ["one", "two"]
    assert first.message == {"role": "tool", "tool_call_id": "a", "name": "one", "content": "A"}
    assert second.message == {"role": "tool", "tool_call_id": "b", "name": "two", "content": "B", "is_error": True}
    assert called.created_at is not None
    assert called.created_at.isoformat() == "2025-01-01T00:00:03.500000+00:00"


# -- command line agents ----------------------------------------------------------------------------------------------


def test_gemini_thoughts_calls_and_results() -> None:
    found = turns(transcript("gemini-cli", "session-bridge", "session-62e5f7e1.json"))
    reply = next(turn for turn in found if turn.message["role"] == "assistant")
    assert reply.message["reasoning_content"].startswith("Examining Project Documentation\n")
    assert reply.usage == {"prompt_tokens": 19553, "completion_tokens": 341, "total_tokens": 19894}
    calls = [call["id"] for call in reply.message["tool_calls"]]
    results = [turn.message["tool_call_id"] for turn in found if turn.message["role"] == "tool"]
    assert results[: len(calls)] == calls


def test_a_gemini_message_that_is_written_again_counts_once(tmp_path: Path) -> None:
    header = {"sessionId": "g", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z"}
    half = {"id": "m", "timestamp": "2026-01-01T00:00:01Z", "type": "gemini", "content": "Half"}
    whole = {**half, "content": "Half and the rest"}
    found = turns(
        written(tmp_path / "s.jsonl", [header, half, {"$set": {"lastUpdated": "x"}}, whole, {"$rewindTo": "m"}])
    )
    assert len({turn.keys for turn in found}) == 1
    assert max(found, key=lambda turn: turn.parts).message["content"] == "Half and the rest"


def test_qwen_joins_the_lines_of_a_message() -> None:
    found = turns(transcript("other-cli-fixtures", "qwen", "019f0000-0000-7000-8000-000000000004.jsonl"))
    reply = found[-1]
    assert reply.message["reasoning_content"] == "Reason over the active branch."
    assert reply.message["content"] == "Active branch answer."
    assert reply.message["tool_calls"][0]["function"]["name"] == "read_file"
    assert reply.usage == {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}


def test_copilot_results_follow_their_calls() -> None:
    found = turns(transcript("other-cli-fixtures", "copilot", "small.jsonl"))
    system, user, reply, result = found[:4]
    assert (system.injected, user.message["content"]) == (True, "List the files")
    assert (reply.cwd, reply.git_branch, reply.model) == ("/tmp/repo", "main", "gpt-5-mini")
    assert result.message["name"] == "shell"
    assert result.message["tool_call_id"] == reply.message["tool_calls"][0]["id"]
    assert {turn.agent for turn in found} == {MAIN, "[trimmed for fixture]"}


def test_copilot_chunks_are_put_together(tmp_path: Path) -> None:
    def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data, "id": str(number), "timestamp": "2026-01-01T00:00:00Z", "parentId": None}

    path = written(
        tmp_path / "events.jsonl",
        [
            event(1, "session.start", sessionId="c"),
            event(2, "assistant.message", messageId="m", content="One ", chunkIndex=0, toolRequests=[]),
            event(3, "assistant.message", messageId="m", content="two", chunkIndex=1, toolRequests=[]),
            event(4, "user.message", content="<system-reminder>x</system-reminder>"),
        ],
    )
    reply, reminder = turns(path)
    assert reply.message["content"] == "One two"
    assert (reminder.message["role"], reminder.injected) == ("developer", True)


def test_opencode_tools_reasoning_and_sub_agents() -> None:
    found = turns(transcript("opencode", "session-bridge", "ses-29dbfeaf-subagent.json"))
    assert {(turn.session_id, turn.agent) for turn in found} == {
        ("ses_2bef27598ffe7m6Lx2BIiN92bh", "ses_2bef25635ffe8EzID0I1Oeymal")
    }
    calls = {call["id"] for turn in found for call in turn.message.get("tool_calls", [])}
    assert {turn.message["tool_call_id"] for turn in found if turn.message["role"] == "tool"} == calls
    assert not any("diffs" in json.dumps(turn.message)[:200] for turn in found if turn.message["role"] == "user")


def test_opencode_storage_is_read_with_its_session() -> None:
    top = transcript("other-cli-fixtures", "opencode", "storage_v2")
    found = items(top / "session" / "proj_test" / "ses_s_stage0_large.json")
    facts = next(item for item in found if isinstance(item, SessionFacts))
    assert (facts.title, facts.cwd) == ("OpenCode Large", "/tmp/large")
    call, result = (item for item in found if isinstance(item, Turn))
    assert call.message["tool_calls"][0]["function"]["name"] == "bash"
    assert result.message["content"].startswith("ls: /non-existent-directory")


def opencode_file(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path)
    with file:
        file.executescript(
            """
            create table session (id text primary key, parent_id text, directory text, title text);
            create table message (id text primary key, session_id text, time_created integer, time_updated integer, data text);
            create table part (id text primary key, message_id text, session_id text, time_created integer,
                time_updated integer, data text);
            insert into session values ('ses_1', null, '/p', 'A title'), ('ses_2', 'ses_1', '/p', 'sub');
            insert into message values
                ('msg_1', 'ses_1', 1000, 1000, '{"role": "user", "time": {"created": 1000}}'),
                ('msg_2', 'ses_1', 2000, 2000, '{"role": "assistant", "modelID": "m", "time": {"created": 2000},
                    "tokens": {"input": 3, "output": 4, "reasoning": 1, "cache": {"read": 10, "write": 0}}}'),
                ('msg_3', 'ses_2', 3000, 3000, 'broken');
            insert into part values
                ('prt_1', 'msg_1', 'ses_1', 1000, 1000, '{"type": "text", "text": "Hi"}'),
                ('prt_2', 'msg_1', 'ses_1', 1000, 1000, '{"type": "text", "text": "file text", "synthetic": true}'),
                ('prt_3', 'msg_2', 'ses_1', 2000, 2000, '{"type": "tool", "tool": "bash", "callID": "c",
                    "state": {"status": "running", "input": {"command": "ls"}}}');
            """
        )
    return file


def test_opencode_database(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    file = opencode_file(path)
    found = items(path)
    said = [item for item in found if isinstance(item, Turn)]
    assert [(turn.message["role"], turn.injected) for turn in said] == [
        ("developer", True),
        ("user", False),
        ("assistant", False),
    ]
    assert said[2].usage == {"prompt_tokens": 13, "completion_tokens": 5, "total_tokens": 18}
    assert [item.reason for item in found if isinstance(item, Skip)] == ["message msg_3 is no JSON object"]
    with file:
        done = '{"type": "tool", "tool": "bash", "callID": "c", "state": {"status": "completed", "input": {}, "output": "a"}}'
        file.execute("update part set data = ?, time_updated = 5000 where id = 'prt_3'", (done,))
    file.close()
    source = Source(path, former={"updated": 3000})
    again = [item for item in items(path, source) if isinstance(item, Turn)]
    assert [turn.message["role"] for turn in again] == ["assistant", "tool"]
    assert source.state == {"updated": 5000}
    assert (tmp_path / "opencode.db-wal").exists() is False


def test_pi_keeps_errors_and_compactions_apart() -> None:
    found = turns(transcript("pi", "large-session.jsonl"))
    assert [turn.message["name"] for turn in found if turn.injected] == ["client-error"]
    assert found[4].message["role"] == "tool"
    assert found[4].message["name"] == "read"
    compactions = [turn for turn in turns(transcript("other-cli-fixtures", "pi", "small.jsonl")) if turn.injected]
    assert [turn.message["name"] for turn in compactions] == ["compact-summary"] * 2


def test_kimi_makes_a_message_of_a_step() -> None:
    found = turns(transcript("other-cli-fixtures", "kimi", "subagent_agent-0.jsonl"))
    prompt, first, result = found[:3]
    assert prompt.injected
    assert first.message["tool_calls"][0]["function"]["name"] == "Glob"
    assert first.message["reasoning_content"].startswith("The user wants me to count")
    assert first.usage == {"prompt_tokens": 12774, "completion_tokens": 75, "total_tokens": 12849}
    assert result.message["name"] == "Glob"


def test_grok_cursor_and_antigravity() -> None:
    grok = turns(transcript("other-cli-fixtures", "grok", "chat_history.jsonl"))
    assert [turn.message["role"] for turn in grok][:4] == ["system", "developer", "user", "assistant"]
    assert grok[3].message["reasoning_content"].startswith("The user wants a summary")
    cursor = turns(transcript("other-cli-fixtures", "cursor", "large.jsonl"))
    assert cursor[2].message["role"] == "tool"
    gravity = turns(transcript("other-cli-fixtures", "antigravity", "cli_small.jsonl"))
    assert ("user", "List the files.") in [(turn.message["role"], turn.message["content"]) for turn in gravity]
    called = next(turn for turn in gravity if turn.message.get("tool_calls"))
    answered = next(turn for turn in gravity if turn.message["role"] == "tool")
    assert answered.message["tool_call_id"] == called.message["tool_calls"][0]["id"]


# -- exports and evaluations ------------------------------------------------------------------------------------------


def test_chatgpt_shows_the_path_and_keeps_the_branches() -> None:
    path = transcript("chatgpt-export", "21bd76a9-a1f1-4f5f-bde0-dd2ab78107ca.json")
    found = turns(path)
    branches = {turn.agent for turn in found} - {MAIN}
    assert len(branches) == 2
    main = [turn for turn in found if turn.agent == MAIN]
    assert [turn.created_at for turn in main] == sorted(turn.created_at for turn in main if turn.created_at)
    assert {turn.session_id for turn in found} == {"21bd76a9-a1f1-4f5f-bde0-dd2ab78107ca"}


def test_chatgpt_zip_tools_and_thoughts(tmp_path: Path) -> None:
    def node(name: str, parent: str | None, role: str, kind: str = "text", **more: Any) -> dict[str, Any]:
        content = {"content_type": kind, **more.pop("content", {})}
        message = {"id": name, "author": {"role": role, "name": more.pop("tool", None)}, "content": content, **more}
        return {"id": name, "message": message, "parent": parent, "children": []}

    nodes = [
        {"id": "root", "message": None, "parent": None, "children": ["u"]},
        node("u", "root", "user", content={"parts": ["What is 6*7?"]}, create_time=1.7e9),
        node("t", "u", "assistant", "thoughts", content={"thoughts": [{"summary": "s", "content": "multiply"}]}),
        node("c", "t", "assistant", "code", content={"text": "6*7"}, recipient="python"),
        node("r", "c", "tool", "execution_output", content={"text": "42"}, tool="python"),
        node("a", "r", "assistant", content={"parts": ["42"]}, recipient="all"),
    ]
    for child in nodes[1:]:
        next(one for one in nodes if one["id"] == child["parent"])["children"] = [child["id"]]
    conversation = {"id": "conv", "title": "Sums", "mapping": {one["id"]: one for one in nodes}, "current_node": "a"}
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations-000.json", json.dumps([conversation]))
        archive.writestr("user.json", "{}")
    found = turns(path)
    assert [turn.message["role"] for turn in found] == ["user", "assistant", "tool", "assistant"]
    assert found[1].message["reasoning_content"] == "multiply"
    assert found[1].message["tool_calls"][0]["function"] == {"name": "python", "arguments": "6*7"}
    assert found[2].message == {"role": "tool", "tool_call_id": "c", "name": "python", "content": "42"}


def test_claude_ai_export(tmp_path: Path) -> None:
    message = {
        "uuid": "m1",
        "sender": "human",
        "text": "Look",
        "content": [{"type": "text", "text": "Look", "citations": []}],
        "created_at": "2026-01-01T00:00:00Z",
        "attachments": [{"file_name": "a.txt", "extracted_content": "inside"}],
        "files": [],
    }
    answer = {"uuid": "m2", "sender": "assistant", "text": "Seen", "content": [], "created_at": "2026-01-01T00:00:01Z"}
    export = [{"uuid": "c1", "name": "Looking", "created_at": "x", "chat_messages": [message, answer]}]
    plain = written(tmp_path / "conversations.json", export)
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(plain, "conversations.json")
    for file in (plain, path):
        found = recognise(file)
        assert found is not None
        assert found.name == "claude-ai-export"
        assert spoken(file) == [("developer", "a.txt\ninside"), ("user", "Look"), ("assistant", "Seen")]


def test_swe_agent_demonstrations_are_not_of_the_run() -> None:
    found = turns(transcript("swe-agent", "swe-agent__test-repo-i1.traj"))
    assert [turn.message.get("name") for turn in found if turn.injected] == ["demonstration"]
    tools = [
        turn
        for turn in turns(transcript("swe-agent", "function_calling_simple.traj"))
        if turn.message["role"] == "tool"
    ]
    assert all(turn.message["tool_call_id"] for turn in tools)


def test_openhands_takes_a_reply_once(tmp_path: Path) -> None:
    path = transcript("openhands", "basic.json")
    found = turns(path)
    assert [turn.message["role"] for turn in found] == ["user", "assistant", "tool", "assistant"]
    assert found[1].usage == {"prompt_tokens": 3486, "completion_tokens": 1135, "total_tokens": 4621}
    assert found[2].message["tool_call_id"] == found[1].message["tool_calls"][0]["id"]
    folder = tmp_path / "sessions" / "conv-9" / "events"
    folder.mkdir(parents=True)
    for event in json.loads(path.read_text()):
        (folder / f"{event['id']}.json").write_text(json.dumps(event))
    single = [turn for file in sorted(folder.iterdir()) for turn in turns(file)]
    assert {turn.session_id for turn in single} == {"conv-9"}
    assert [turn.message for turn in single] == [turn.message for turn in found]


def test_inspect_puts_attachments_back(tmp_path: Path) -> None:
    path = transcript("inspect-ai", "log_images.json")
    user = turns(path)[1]
    assert user.message["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    log = json.loads(path.read_text())
    archive_path = tmp_path / "log.eval"
    with zipfile.ZipFile(archive_path, "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": log["eval"]}))
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        archive.writestr("samples/broken.json", "{")
    found = items(archive_path)
    assert [turn.message for turn in found if isinstance(turn, Turn)] == [turn.message for turn in turns(path)]
    assert [skip.reason for skip in found if isinstance(skip, Skip)] == [
        "samples/broken.json is not readable (JSONDecodeError)"
    ]


def test_trae_agent_says_its_history_once() -> None:
    found = turns(transcript("trae-agent", "vllm_sonnet45_rerun_7661e92e.trajectory.json"))
    texts = [json.dumps(turn.message) for turn in found]
    assert len(set(texts)) == len(texts)
    assert [turn.message["role"] for turn in found][:5] == ["system", "system", "user", "assistant", "tool"]


def test_cline_compactions_do_not_replace_prompts() -> None:
    session = turns(transcript("cline", "session.messages.json"))
    compaction = turns(transcript("cline", "basic.compaction.json"))
    assert {turn.session_id for turn in session + compaction} == {"1784094124598_rruoq"}
    kept = {turn.keys for turn in session}
    new = [turn for turn in compaction if turn.keys not in kept]
    assert [turn.message["name"] for turn in new if turn.injected] == ["compact-summary"]


def test_aider_sessions_and_speakers() -> None:
    found = turns(transcript("aider", "chat-history-part.md"))
    assert len({turn.session_id for turn in found}) == 10
    assert {turn.message["role"] for turn in found} == {"user", "assistant", "tool"}
    assert not any(turn.message["content"].startswith(("#### ", "> ")) for turn in found)


def test_specstory_has_a_name_of_its_own() -> None:
    found = items(transcript("specstory", "2026-02-20_23-42-22Z-plan-add-json-flag.md"))
    facts = next(item for item in found if isinstance(item, SessionFacts))
    assert facts.session_id == f"{facts.parent}.specstory"
    agents = {turn.agent for turn in found if isinstance(turn, Turn)}
    assert agents == {MAIN, "sidechain"}

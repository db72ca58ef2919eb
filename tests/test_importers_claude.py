"""Claude Code and Codex: replies put together, tokens right, nothing said twice, nobody's words made the user's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from data import shared_data
from test_importers import items, latest, turns

from crowmem.importers import MAIN, SessionFacts, Skip, Turn

if TYPE_CHECKING:
    from pathlib import Path


def claude(*parts: str) -> Path:
    return shared_data("transcripts", "claude-code", *parts)


def codex(*parts: str) -> Path:
    return shared_data("transcripts", "codex-rollout", *parts)


def record(kind: str, number: int, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    base = {"type": kind, "uuid": f"u{number}", "sessionId": "s", "timestamp": f"2026-01-01T00:00:{number:02d}Z"}
    return {**base, "message": message, **more}


def block(kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": kind, **fields}]


def lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


# -- Claude Code ------------------------------------------------------------------------------------------------------


def test_the_lines_of_a_reply_are_one_message_and_results_follow_it(tmp_path: Path) -> None:
    """Results of tools that ran while the reply was still written stand between its lines."""

    def reply(number: int, content: Any, tokens: int) -> dict[str, Any]:
        return record(
            "assistant",
            number,
            content,
            message={
                "id": "msg",
                "model": "m",
                "usage": {"input_tokens": 2, "cache_read_input_tokens": 5, "output_tokens": tokens},
            },
        )

    path = lines(
        tmp_path / "s.jsonl",
        [
            record("user", 1, "go"),
            reply(2, block("thinking", thinking="First this.", signature="opaque"), 3),
            reply(3, block("tool_use", id="toolu_1", name="Bash", input={"a": 1}), 3),
            {
                "type": "progress",
                "uuid": "p",
                "sessionId": "s",
                "data": {"message": {"role": "assistant", "content": "copy"}},
            },
            record("user", 4, block("tool_result", tool_use_id="toolu_1", content="one")),
            reply(5, block("tool_use", id="toolu_2", name="Read", input={}), 190),
            record("user", 6, block("tool_result", tool_use_id="toolu_2", content="two", is_error=True)),
            record("user", 7, "thanks"),
        ],
    )
    go, answer, one, two, thanks = turns(path)
    assert answer.message == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "First this.",
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "Bash", "arguments": '{"a":1}'}},
            {"id": "toolu_2", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
        ],
    }
    assert answer.usage == {"prompt_tokens": 7, "completion_tokens": 190, "total_tokens": 197}
    assert one.message == {"role": "tool", "tool_call_id": "toolu_1", "name": "Bash", "content": "one"}
    assert two.message == {
        "role": "tool",
        "tool_call_id": "toolu_2",
        "name": "Read",
        "content": "two",
        "is_error": True,
    }
    assert [turn.message["content"] for turn in (go, thanks)] == ["go", "thanks"]


def test_tokens_are_those_of_the_last_lines() -> None:
    """Counted by hand from the file: the last usage of each of its 22 replies, not the sum over its 55 lines."""
    path = claude("entire-cli", "growth-2-34b1e2a4.jsonl")
    last: dict[str, int] = {}
    for text in path.read_text().splitlines():
        found = json.loads(text)
        if found["type"] == "assistant":
            last[found["message"]["id"]] = found["message"]["usage"]["output_tokens"]
    assert len(last) == 22
    said = [turn.usage["completion_tokens"] for turn in turns(path) if turn.usage]
    assert said == list(last.values())


def test_an_output_that_was_cut_for_the_model_is_kept_whole() -> None:
    found = turns(claude("entire-cli", "big-stdout-12-74ea.jsonl"))
    longest = max(
        (turn for turn in found if turn.message["role"] == "tool"), key=lambda turn: len(turn.message["content"])
    )
    assert len(longest.message["content"]) > 400_000
    assert "<persisted-output>" not in longest.message["content"]


def test_inserted_blocks_are_set_apart_from_what_was_asked() -> None:
    found = turns(claude("session-share", "images-in-user-messages.jsonl"))
    first, second = found[:2]
    assert (first.message["role"], first.message["name"], first.injected) == ("developer", "editor", True)
    assert [part["type"] for part in second.message["content"]] == ["image", "text"]
    assert not second.injected


def test_commands_with_arguments_are_the_users() -> None:
    found = turns(claude("claude-code-viewer", "fe5e1c67-53e7-4862-81ae-d0e013e3270b.jsonl"))
    assert found[0].message["role"] == "user"
    assert "create TODO app by Next" in found[0].message["content"]
    assert (found[1].message["name"], found[1].injected) == ("meta", True)
    empty = turns(claude("session-share", "projects", "0ccf1a04-1b4c-43b6-8aa5-79e41db43a68.jsonl"))
    assert {turn.message["name"] for turn in empty if turn.injected} == {
        "caveat",
        "command",
        "command-output",
        "interrupted",
        "meta",
        "notification",
    }


def test_side_chains_of_old_versions_are_told_apart() -> None:
    """405 lines of five sub-agents that ran beside each other, without ids."""
    found = turns(claude("claude-code-viewer", "fe5e1c67-53e7-4862-81ae-d0e013e3270b.jsonl"))
    agents = {turn.agent for turn in found} - {MAIN}
    assert len(agents) == 5
    for agent in agents:
        own = [turn for turn in found if turn.agent == agent]
        assert own[0].message["role"] == "user"
        calls = [call["id"] for turn in own for call in turn.message.get("tool_calls", [])]
        results = [turn.message["tool_call_id"] for turn in own if turn.message["role"] == "tool"]
        assert set(results) <= set(calls)


def test_summaries_of_other_sessions_are_no_titles() -> None:
    found = items(claude("m-claude", "broken-lines-9be1d737.jsonl"))
    assert not [item for item in found if isinstance(item, SessionFacts)]


def test_queued_prompts_are_prompts(tmp_path: Path) -> None:
    queued = {
        "type": "attachment",
        "attachment": {"type": "queued_command", "prompt": "and also this", "commandMode": "prompt"},
        "uuid": "q",
        "sessionId": "s",
        "timestamp": "2026-01-01T00:00:02Z",
    }
    found = turns(lines(tmp_path / "s.jsonl", [record("user", 1, "go"), queued]))
    assert [turn.message["content"] for turn in found] == ["go", "and also this"]


def test_hostile_records_cost_nothing_but_themselves(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        record("user", 1, "before"),
        {"type": "user", "sessionId": "s", "uuid": "x", "message": {"role": "user", "content": None}},
        {"type": "user", "sessionId": 7, "uuid": ["x"], "message": {"role": "user", "content": 7}},
        {
            "type": "assistant",
            "sessionId": "s",
            "message": {"content": [None, 3, "text", {"type": 5}, {"type": "tool_use"}]},
        },
        {"type": "user", "sessionId": "s", "message": {"content": [{"type": "tool_result", "content": {"a": 1}}]}},
        {
            "type": "assistant",
            "sessionId": "s",
            "message": {"id": "m", "content": [], "usage": {"output_tokens": "many"}},
        },
        {"type": "user", "message": "no object", "sessionId": "s"},
        {"type": ["list"], "sessionId": "s", "uuid": "y"},
        {
            "type": "user",
            "sessionId": "s",
            "timestamp": "not a time",
            "message": {"role": "user", "content": "untimed"},
        },
        {"type": "custom-title", "sessionId": "s", "customTitle": {"a": 1}},
        {"type": "attachment", "attachment": "text", "uuid": "z", "sessionId": "s"},
        {},
        record("user", 2, "after"),
    ]
    found = turns(lines(tmp_path / "s.jsonl", odd))
    said = [turn.message["content"] for turn in found if turn.message["role"] == "user"]
    assert {"before", "untimed", "after"} <= set(map(str, said))


def test_a_glued_record_is_read() -> None:
    found = items(shared_data("transcripts", "derived", "reproduced", "glued-records.jsonl"))
    [skip] = [item for item in found if isinstance(item, Skip)]
    assert (skip.line, skip.reason) == (8, "a cut record of 478 characters; the whole record in the same line was read")
    reply = next(turn for turn in found if isinstance(turn, Turn) and turn.message["role"] == "assistant")
    assert len(reply.message["tool_calls"]) == 2


# -- Codex ------------------------------------------------------------------------------------------------------------


def item(number: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{number:02d}.000Z", "type": kind, "payload": payload}


def said(number: int, role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return item(number, "response_item", {"type": "message", "role": role, "content": content})


def meta(number: int, thread: str, **more: Any) -> dict[str, Any]:
    base = {"id": thread, "timestamp": f"2026-01-01T00:00:{number:02d}.000Z", "cwd": "/p", "git": {"branch": "b"}}
    return item(number, "session_meta", {**base, **more})


def tokens(number: int, last: int, total: int) -> dict[str, Any]:
    info = {
        "last_token_usage": {"input_tokens": last, "output_tokens": 1, "total_tokens": last + 1},
        "total_token_usage": {"total_tokens": total},
    }
    return item(number, "event_msg", {"type": "token_count", "info": info})


def test_a_response_is_one_message_with_its_tokens() -> None:
    found = turns(codex("session-bridge", "rollout-8ed4bb32.jsonl"))
    assert [turn.message["role"] for turn in found][:7] == [
        "developer",
        "developer",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    reply = found[3]
    assert reply.message["content"].endswith("from the implementation rather than guessing.")
    assert [call["function"]["name"] for call in reply.message["tool_calls"]] == ["shell_command", "shell_command"]
    assert reply.usage is not None
    assert (reply.model, reply.cwd) == ("gpt-5.4", "/Users/dev97a9/dev/ai/entire/session-bridge")


def test_tokens_add_up_to_the_total() -> None:
    """The sum over the messages is the running total that the file ends with."""
    for name in (
        "session-bridge/rollout-8ed4bb32.jsonl",
        "session-bridge/rollout-af8e1ffd-6.jsonl",
        "agentv/rollout-a392ff33.jsonl",
    ):
        path = codex(*name.split("/"))
        total = 0
        for text in path.read_text().splitlines():
            payload = json.loads(text)["payload"]
            if payload.get("type") == "token_count" and payload.get("info"):
                total = payload["info"]["total_token_usage"]["total_tokens"]
        assert sum(turn.usage["total_tokens"] for turn in turns(path) if turn.usage) == total


def test_nothing_is_said_twice_and_no_old_history_comes_in() -> None:
    found = turns(codex("session-bridge", "images-compacted-64b5e566.jsonl"))
    assert [turn.message["role"] for turn in found] == ["tool", "assistant", "user", "assistant", "tool", "tool"]
    texts = [json.dumps(turn.message) for turn in turns(codex("agentv", "compacted-34f597b7.jsonl"))]
    assert len(set(texts)) == len(texts)


def test_instructions_are_not_the_users() -> None:
    found = turns(codex("agentv", "compacted-34f597b7.jsonl"))
    assert [turn.message["name"] for turn in found if turn.injected] == ["instructions", "instructions"]
    users = [turn.message["content"] for turn in found if turn.message["role"] == "user"]
    assert len(users) == 10
    assert not any(str(text).startswith(("# AGENTS.md", "<environment_context>")) for text in users)


def test_a_fork_keeps_what_it_copied_a_sub_agent_does_not(tmp_path: Path) -> None:
    copied = [said(1, "user", "parent asks"), said(1, "assistant", "parent answers")]
    own = [said(30, "user", "new question"), said(31, "assistant", "new answer")]
    fork = turns(lines(tmp_path / "fork.jsonl", [meta(1, "f", forked_from_id="p"), meta(1, "p"), *copied, *own]))
    assert {turn.session_id for turn in fork} == {"f"}
    assert len(fork) == 4
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}
    child = turns(
        lines(tmp_path / "child.jsonl", [meta(1, "c", parent_thread_id="p", source=spawn), meta(1, "p"), *copied, *own])
    )
    assert {(turn.session_id, turn.agent) for turn in child} == {("p", "c")}
    assert [turn.message["content"] for turn in child] == ["new question", "new answer"]


def test_counts_that_did_not_move_are_old_ones(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "x.jsonl",
        [
            meta(1, "s"),
            said(2, "user", "a"),
            tokens(3, 99, 99),
            said(4, "assistant", "one"),
            tokens(5, 10, 110),
            said(6, "user", "b"),
            tokens(7, 10, 110),
            said(8, "assistant", "two"),
            tokens(9, 20, 131),
        ],
    )
    assert [turn.usage and turn.usage["prompt_tokens"] for turn in turns(path)] == [None, 10, None, 20]


def test_old_files_have_bare_items(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "rollout-2025-05-01T00-00-00-0aaaaaaa-1111-2222-3333-444444444444.jsonl",
        [
            {
                "id": "0aaaaaaa-1111-2222-3333-444444444444",
                "timestamp": "2025-05-01T00:00:00Z",
                "instructions": None,
                "git": {"branch": "x"},
            },
            {"record_type": "state"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]},
            {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": '{"output":"a"}'},
        ],
    )
    user, reply, result = turns(path)
    assert (user.session_id, user.git_branch) == ("0aaaaaaa-1111-2222-3333-444444444444", "x")
    assert reply.message["reasoning_content"] == "thinking"
    assert result.message["name"] == "shell"


def test_other_calls_and_pictures(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "x.jsonl",
        [
            meta(1, "s"),
            item(
                2, "response_item", {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}}
            ),
            item(
                3,
                "response_item",
                {"type": "image_generation_call", "id": "g", "result": "aGk=", "revised_prompt": "a cat"},
            ),
            item(
                4,
                "response_item",
                {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": "*** Begin"},
            ),
            item(
                5,
                "response_item",
                {"type": "custom_tool_call_output", "call_id": "p", "output": [{"type": "input_text", "text": "done"}]},
            ),
            item(6, "response_item", {"type": "ghost_snapshot"}),
            item(7, "compacted", {"message": "what was", "replacement_history": [{"type": "message", "role": "user"}]}),
        ],
    )
    reply, drawn, patched, summary = turns(path)
    names = [call["function"]["name"] for call in reply.message["tool_calls"]]
    assert names == ["web_search", "image_generation", "apply_patch"]
    assert reply.message["tool_calls"][2]["function"]["arguments"] == "*** Begin"
    assert drawn.message["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]
    assert patched.message["content"] == "done"
    assert (summary.message["name"], summary.injected) == ("compact-summary", True)


def test_hostile_items_cost_nothing_but_themselves(tmp_path: Path) -> None:
    odd = [
        meta(1, "s", git="x", source=["y"]),
        said(2, "user", "before"),
        item(3, "response_item", {"type": "message", "role": "user", "content": {"a": 1}}),
        item(4, "response_item", {"type": "message", "role": 5, "content": [None, 3, {"type": "input_image"}]}),
        item(5, "response_item", {"type": "function_call", "arguments": None}),
        item(6, "response_item", {"type": "function_call_output", "output": {"deep": [1]}}),
        item(7, "event_msg", {"type": "token_count", "info": {"last_token_usage": {"input_tokens": "x"}}}),
        item(8, "turn_context", {"model": 5, "cwd": None}),
        {"timestamp": 5, "type": "response_item", "payload": {"type": "reasoning", "summary": "text", "content": 4}},
        {"timestamp": None, "type": "response_item", "payload": {}},
        said(9, "user", "after"),
    ]
    found = turns(lines(tmp_path / "x.jsonl", odd))
    contents = [turn.message["content"] for turn in found]
    assert "before" in contents
    assert "after" in contents


def test_the_same_turns_have_the_same_keys_wherever_they_lie(tmp_path: Path) -> None:
    path = codex("agentv", "rollout-a392ff33.jsonl")
    copy = tmp_path / "other-name.jsonl"
    copy.write_bytes(path.read_bytes())
    assert latest(items(copy)).keys() == latest(items(path)).keys()

"""The server as clients meet it: a process of its own, spoken to over stdin and stdout by the SDK's client, or by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from doors import fill
from mcp import Client, StdioServerParameters

from crowmem import Memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "crowmem.cli"]
TOPICS = ("twigs", "moss", "feathers", "mud", "spiders' silk")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


def talk(url: str, said: Callable[[Client], Awaitable[None]]) -> None:
    """A conversation with the server in a process of its own."""

    async def talked() -> None:
        server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], "--db", url, "mcp"], cwd=ROOT)
        async with Client(server) as client:
            await said(client)

    anyio.run(talked)


async def called(client: Client, name: str, **sent: Any) -> tuple[str, dict[str, Any]]:
    """What a call gave for people and for programs."""
    result = await client.call_tool(name, sent)
    assert not result.is_error, result.content
    return result.content[0].text, result.structured_content  # type: ignore[union-attr, return-value]


def fill_much(url: str) -> list[int]:
    """A session of 1,000 messages among five small ones; the ids of the large one's."""
    with Memory.open(url) as memory:
        for topic in TOPICS:
            session = f"about-{topic.split()[-1]}"
            memory.agents.create(f"{session}-1-1", session, cwd="/nest")
            asked = {"role": "user", "content": f"How do I line the nest with {topic}?"}
            memory.messages.add_many(
                f"{session}-1-1",
                [
                    {"role": "user", "content": "Good morning."},
                    asked,
                    {"role": "assistant", "content": f"Gather {topic} first."},
                ],
            )
        memory.agents.create("long-1-1", "long")
        talked = [{"role": ("user", "assistant")[number % 2], "content": f"line {number}"} for number in range(1000)]
        return memory.messages.add_many("long-1-1", talked)


def test_a_client_finds_reads_and_pages(url: str) -> None:
    ids = fill_much(url)

    async def said(client: Client) -> None:
        # find a session by its topic
        _, listed = await called(client, "list_sessions", limit=3)
        assert (len(listed["sessions"]), listed["next_offset"]) == (3, 3)
        text, found = await called(client, "query_memory", query="how was the lining with feathers done?")
        best = found["messages"][0]
        assert best["session_id"] == "about-feathers"
        assert "> " in text
        assert "feathers" in text
        # read around the match
        _, around = await called(
            client, "query_session", session_id=best["session_id"], message_id=best["id"], context=5
        )
        [message] = around["messages"]
        shown = [*message["before"], message, *message["after"]]
        assert [part["text"] for one in shown for part in one["parts"]] == [
            "Good morning.",
            "How do I line the nest with feathers?",
            "Gather feathers first.",
        ]
        _, searched = await called(client, "query_session", session_id="about-feathers", query="gather", context=1)
        assert [len(searched["messages"][0][side]) for side in ("before", "after")] == [1, 0]
        # page through everything
        read: list[int] = []
        offset: int | None = 0
        while offset is not None:
            _, page = await called(client, "query_session", session_id="long", order="asc", limit=100, offset=offset)
            read += [one["id"] for one in page["messages"]]
            offset = page.get("next_offset")
        assert read == ids

    talk(url, said)


def test_hostile_calls_get_typed_errors_and_the_server_goes_on(url: str) -> None:
    fill(url)
    hostile: list[tuple[str, dict[str, Any], str]] = [
        ("query_memory", {"query": "crow", "limit": 10**18}, "InvalidValue"),
        ("query_memory", {"query": "crow", "offset": -5}, "InvalidValue"),
        ("query_memory", {"query": "x" * 1_000_000}, "InvalidValue"),
        ("query_memory", {"query": ["a"]}, "InvalidValue"),
        ("query_session", {"session_id": "alpha\0"}, "InvalidValue"),
        ("query_session", {"session_id": "no such session"}, "NotFound"),
        ("query_session", {"session_id": "x" * 1_000_000}, "InvalidValue"),
        ("forget_everything", {}, "InvalidValue"),
    ]

    async def said(client: Client) -> None:
        for name, sent, kind in hostile:
            result = await client.call_tool(name, sent)
            assert result.is_error, name
            error = result.structured_content["error"]  # type: ignore[index]
            assert error["kind"] == kind
            assert error["cure"] in result.content[0].text  # type: ignore[union-attr]
            assert len(result.content[0].text) < 2000  # type: ignore[union-attr]
        _, found = await called(client, "query_memory", query="crow\0entirely")
        assert found["messages"][0]["session_id"] == "beta"

    talk(url, said)


def test_calls_overlap(url: str) -> None:
    fill(url)

    async def said(client: Client) -> None:
        found: list[int] = []

        async def one(number: int) -> None:
            _, answer = await called(client, "query_session", session_id="alpha", query="nest", limit=1 + number % 5)
            found.append(len(answer["messages"]))

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(one, number)
        assert found == [1] * 40

    talk(url, said)


def test_tools_say_that_they_only_read(tmp_path: Path) -> None:
    async def said(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"list_sessions", "query_memory", "query_session"}
        for tool in tools.values():
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
            assert tool.annotations.destructive_hint is False
            assert tool.output_schema is not None
            assert tool.description
            assert all(one.get("description") for one in tool.input_schema["properties"].values())
        wanted = {
            "list_sessions": {"limit", "offset", "include_forks"},
            "query_memory": {"query", "mode", "limit", "offset", "roles", "after", "before", "include_forks"},
            "query_session": {
                *("session_id", "query", "agent_idx", "mode", "order", "context"),
                *("after", "before", "limit", "offset", "include_forks"),
            },
        }
        for name, arguments in wanted.items():
            assert arguments <= set(tools[name].input_schema["properties"])
        assert tools["query_session"].input_schema["required"] == ["session_id"]

    talk(str(tmp_path / "crow.db"), said)


def test_a_store_that_is_not_there_appears_while_the_server_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "crow.db")

    async def said(client: Client) -> None:
        text, answer = await called(client, "query_memory", query="crow")
        assert answer["messages"] == []
        assert "there is no store at" in text
        await anyio.to_thread.run_sync(fill, path)
        _, answer = await called(client, "query_memory", query="crow")
        assert answer["messages"]

    talk(path, said)


# --- by hand: what comes out, and how it ends --------------------------------

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int, name: str, **sent: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": sent}}


def lines(*messages: Any) -> bytes:
    return b"".join(
        (message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n" for message in messages
    )


@contextmanager
def process(url: str, *options: str, **other: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose stdin and stdout are ours; it has greeted already."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **other}
    with subprocess.Popen([*COMMAND, "--db", url, *options, "mcp"], cwd=ROOT, **pipes) as child:
        try:
            child.stdin.write(lines(INITIALIZE, INITIALIZED))  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            greeting = json.loads(child.stdout.readline())  # type: ignore[union-attr]
            assert greeting["result"]["serverInfo"]["name"] == "crowmem"
            yield child
        finally:
            child.kill()


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "crow.db")
    fill(path)
    return path


def test_what_was_asked_before_stdin_ends_is_answered(store: str) -> None:
    with process(store) as child:
        out, told = child.communicate(lines(*(call(number, "query_memory", query="crow") for number in range(2, 12))))
        answers = [json.loads(line) for line in out.splitlines()]
        assert sorted(one["id"] for one in answers) == list(range(2, 12))
        assert all("Another crow" in one["result"]["content"][0]["text"] for one in answers)
        assert (child.returncode, told) == (0, b"")


def test_a_request_that_was_called_off_holds_nothing_up(store: str) -> None:
    off = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    with process(store) as child:
        out, told = child.communicate(lines(call(2, "query_memory", query="crow"), off, call(3, "list_sessions")))
        assert 3 in [json.loads(line)["id"] for line in out.splitlines()]
        assert (child.returncode, told) == (0, b"")


def test_only_messages_come_out_whatever_comes_in(store: str) -> None:
    hostile = [
        b"",
        b"no json at all",
        b'{"jsonrpc": "2.0", "id": 7, "method": 5}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"query_memory","arguments":{"query":"\\ud83d"}}}',
        lines({"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {"x": "y" * 1_000_000}}).rstrip(),
        b'{"jsonrpc":"2.0","id":10,"method":"nothing/here"}',
    ]
    with process(store, "--debug") as child:  # which logs, but not here
        out, told = child.communicate(lines(*hostile, call(11, "list_sessions")))
        answers = [json.loads(line) for line in out.splitlines()]
        by_id = {one["id"]: one for one in answers if one["id"] is not None}
        assert [one["error"]["code"] for one in answers if one["id"] is None] == [-32700] * 3
        assert by_id[7]["error"]["code"] == -32700
        assert "Nothing found" in by_id[8]["result"]["content"][0]["text"]
        assert by_id[10]["error"]["code"] == -32601
        assert by_id[11]["result"]["structuredContent"]["sessions"]
        assert child.returncode == 0
        assert b"Traceback" not in told


STRAY = """
import sys
import crowmem.mcp.tools as tools
from crowmem.cli import main

plain = tools.search

async def search(*args, **kwargs):
    print("stray words")
    import os
    os.write(1, b"stray bytes\\n")
    return await plain(*args, **kwargs)

tools.search = search
raise SystemExit(main(sys.argv[1:]))
"""


def test_what_else_is_printed_goes_to_stderr(store: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STRAY, "--db", store, "mcp"],
        input=lines(INITIALIZE, INITIALIZED, call(2, "query_memory", query="crow")),
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    assert [json.loads(line)["id"] for line in ran.stdout.splitlines()] == [1, 2]
    assert sorted(ran.stderr.splitlines()) == [b"stray bytes", b"stray words"]


def test_ctrl_c_ends_it_with_130_and_no_word(store: str) -> None:
    with process(store) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait() == 130
        assert (child.stdout.read(), child.stderr.read()) == (b"", b"")  # type: ignore[union-attr]


def test_ctrl_c_ends_it_while_it_answers(url: str) -> None:
    fill_much(url)
    with process(url) as child:
        asked = [call(number, "query_memory", query="line", limit=200) for number in range(2, 40)]
        child.stdin.write(lines(*asked))  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
        assert child.stdout.readline()  # type: ignore[union-attr]
        child.send_signal(signal.SIGINT)
        child.stdout.read()  # type: ignore[union-attr]
        assert (child.wait(), child.stderr.read()) == (130, b"")  # type: ignore[union-attr]


def test_ctrl_c_ends_it_when_nobody_reads_its_answers(store: str) -> None:
    fill_much(store)
    with process(store) as child:
        asked = [call(number, "query_session", session_id="long", limit=200) for number in range(2, 20)]
        child.stdin.write(lines(*asked))  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
        assert child.stdout.read(1)  # type: ignore[union-attr]  # the first answer fills the pipe
        child.send_signal(signal.SIGINT)
        assert child.wait() == 130
        assert child.stderr.read() == b""  # type: ignore[union-attr]


def test_a_client_that_stops_reading_ends_it_quietly(store: str) -> None:
    with process(store) as child:
        child.stdout.close()  # type: ignore[union-attr]
        child.stdin.write(lines(call(2, "list_sessions")))  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
        assert (child.wait(), child.stderr.read()) == (0, b"")  # type: ignore[union-attr]


def test_a_client_that_is_gone_ends_it_quietly(store: str) -> None:
    with process(store) as child:
        child.stdin.close()  # type: ignore[union-attr]
        assert (child.wait(), child.stdout.read(), child.stderr.read()) == (0, b"", b"")  # type: ignore[union-attr]


def test_no_client_at_all_is_an_end_too(store: str) -> None:
    ran = subprocess.run(
        [*COMMAND, "--db", store, "mcp"], stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_a_full_disk_under_stdout_is_said(store: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with full.open("w") as out:
        ran = subprocess.run(
            [*COMMAND, "--db", store, "mcp"],
            input=lines(INITIALIZE),
            stdout=out,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, b"crowmem mcp: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_stdin_or_stdout_is_one_line(store: str, closed: str) -> None:
    ran = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closed}', *COMMAND, "--db", store, "mcp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr == "crowmem mcp: MCP is spoken over stdin and stdout, and one of them is closed\n"


def test_a_wrong_address_is_told_at_once(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "--db", "mysql://crow@db/crow", "mcp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert b"mysql" in ran.stderr
    assert b"Traceback" not in ran.stderr


MISSING = """
import sys
sys.modules["mcp"] = None  # as if it were not installed
from crowmem.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def test_without_the_sdk_the_command_says_what_to_install(store: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MISSING, "--db", store, "mcp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ran.returncode == 1
    assert "pip install 'crowmem[mcp]'" in ran.stderr
    assert os.linesep not in ran.stderr.strip()

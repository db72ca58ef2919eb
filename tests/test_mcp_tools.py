"""The tools over a store, without the protocol: what they find, how they page, what they say when something is wrong."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from data import shared_data
from doors import fill, stamp

from crowmem import Memory
from crowmem.errors import ReadOnly
from crowmem.mcp.answers import Answer, MessagesAnswer, SessionsAnswer, plain
from crowmem.mcp.composing import sessions_answer
from crowmem.mcp.markdown import markdown
from crowmem.mcp.source import Source
from crowmem.mcp.tools import TOOLS
from crowmem.statement import statement

if TYPE_CHECKING:
    from pathlib import Path

TOOL = {tool.name: tool for tool in TOOLS}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a store."""
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


@pytest.fixture
def filled(url: str) -> str:
    fill(url)
    return url


def ask(url: str, name: str, **sent: Any) -> Any:
    """One call of a tool, as a server makes it."""

    async def asked() -> Answer:
        source = Source(url)
        try:
            return await TOOL[name].call(source, sent)
        finally:
            await source.close()

    return asyncio.run(asked())


def texts(answer: MessagesAnswer) -> list[str]:
    return [" | ".join(part.text for part in message.parts) for message in answer.messages]


def told(answer: Answer) -> str:
    return " ".join(answer.notes)


# --- sessions ----------------------------------------------------------------


def test_sessions_are_listed_with_what_tells_them_apart(filled: str) -> None:
    answer = ask(filled, "list_sessions")
    assert [line.session_id for line in answer.sessions] == ["beta", "alpha"]
    alpha = plain(answer)["sessions"][1]
    assert alpha == {
        "session_id": "alpha",
        "last_activity": "2026-01-02T03:22:00+00:00",
        "message_count": 7,
        "agent_count": 2,
        "title": "Why does the nest leak?",
        "model": "m-2",
        "cwd": "/nest",
    }
    assert answer.next_offset is None
    assert markdown(answer).splitlines()[1] == (
        "- **Why does the nest leak?**: `alpha`, 2026-01-02 03:22:00 UTC, 7 messages, 2 agents, m-2, /nest"
    )


def test_sessions_come_in_pages_and_by_folder_and_with_forks(filled: str) -> None:
    first = ask(filled, "list_sessions", limit=1)
    assert (len(first.sessions), first.next_offset) == (1, 1)
    assert "offset=1" in told(first)
    second = ask(filled, "list_sessions", limit=1, offset=1)
    assert ([line.session_id for line in second.sessions], second.next_offset) == (["alpha"], None)
    assert ask(filled, "list_sessions", include_forks=True).sessions[1].message_count == 8
    assert [line.session_id for line in ask(filled, "list_sessions", cwd="/tree").sessions] == ["beta"]
    nothing = ask(filled, "list_sessions", cwd="/elsewhere")
    assert nothing.sessions == []
    assert "leave cwd out" in told(nothing)


# --- browsing ----------------------------------------------------------------


def test_without_a_query_the_newest_message_is_shown(filled: str) -> None:
    newest = ask(filled, "query_memory")
    assert texts(newest) == ["Another crow entirely."]
    assert newest.next_offset == 1
    assert texts(ask(filled, "query_session", session_id="alpha")) == ["After compaction."]
    assert texts(ask(filled, "query_session", session_id="alpha", query=" \n")) == ["After compaction."]


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("conversation", [("user", ["said"]), ("assistant", ["said"])]),
        ("with_thinking", [("user", ["said"]), ("assistant", ["thought"]), ("assistant", ["said"])]),
        (
            "with_tools",
            [("user", ["said"]), ("assistant", ["called"]), ("tool", ["answered"]), ("assistant", ["said"])],
        ),
        (
            "full",
            [
                ("system", ["said"]),
                ("user", ["said"]),
                ("assistant", ["thought", "called"]),
                ("tool", ["answered"]),
                ("assistant", ["said"]),
                ("developer", ["said"]),
            ],
        ),
    ],
)
def test_modes_show_so_much_of_each_message(filled: str, mode: str, shown: list[Any]) -> None:
    answer = ask(filled, "query_session", session_id="alpha-1-1", mode=mode, order="asc", limit=50)
    assert [(one.role, [part.kind for part in one.parts]) for one in answer.messages] == shown


def test_a_call_and_its_answer_look_like_that(filled: str) -> None:
    text = markdown(ask(filled, "query_session", session_id="alpha-1-1", mode="full", order="asc", limit=4))
    assert '> (thinks) Perhaps the twigs.\n> → Bash {"command": "make test"}' in text
    assert "> ← line 1\n> line 2\n" in text
    assert "## 4. tool, 2026-01-02 03:03:00 UTC, message " in text


def test_pages_hold_every_message_once_in_both_orders(url: str) -> None:
    with Memory.open(url) as memory:
        memory.agents.create("long-1-1", "long")
        talk = [
            {"role": "assistant", "content": None, "tool_calls": []}  # nothing of it is shown, and it does not count
            if number % 3 == 2
            else {"role": "user" if number % 2 else "assistant", "content": f"message {number}"}
            for number in range(300)
        ]
        ids = memory.messages.add_many("long-1-1", talk)
    wanted = [one for number, one in enumerate(ids) if number % 3 != 2]
    for order in ("asc", "desc"):
        found: list[int] = []
        offset: int | None = 0
        while offset is not None:
            page = ask(url, "query_session", session_id="long", order=order, limit=37, offset=offset)
            found += [one.id for one in page.messages]
            offset = page.next_offset
        assert found == (wanted if order == "asc" else wanted[::-1])
    behind = ask(url, "query_session", session_id="long", offset=200)
    assert behind.messages == []
    assert "behind the last message" in told(behind)


@pytest.mark.parametrize("count", [3, 64, 70])
def test_many_agents_of_a_session_are_read_in_the_order_of_all(url: str, count: int) -> None:
    ids = []
    with Memory.open(url) as memory:
        for number in range(1, count + 1):
            memory.agents.create(f"s-{number}-1", "s")
        for turn in range(2):
            for number in range(1, count + 1):
                ids.append(memory.messages.add(f"s-{number}-1", {"role": "user", "content": f"{turn} {number}"}))
    for order in ("asc", "desc"):
        answer = ask(url, "query_session", session_id="s", order=order, limit=200)
        assert [one.id for one in answer.messages] == sorted(ids, reverse=order == "desc")
    only = ask(url, "query_session", session_id="s", agent_idx=2, limit=200)
    assert [one.id for one in only.messages] == [ids[count + 1], ids[1]]


def test_agents_forks_roles_and_times_narrow_it(filled: str) -> None:
    def found(**sent: Any) -> list[str]:
        return texts(ask(filled, "query_session", session_id="alpha", limit=50, order="asc", **sent))

    assert found() == ["Why does the nest leak?", "The twigs are loose.", "After compaction."]
    assert found(include_forks=True)[2:] == ["A fork answers.", "After compaction."]
    assert found(agent_idx=2) == ["After compaction."]
    assert found(after=stamp(4)) == ["After compaction."]
    assert found(before=stamp(4)) == ["Why does the nest leak?"]
    assert texts(ask(filled, "query_session", session_id="alpha-1-2", limit=50)) == ["A fork answers."]
    assert ask(filled, "query_memory", after="2h").messages == []
    assert texts(ask(filled, "query_memory", limit=50, roles=["assistant"])) == ["The twigs are loose."]
    assert [one.role for one in ask(filled, "query_memory", limit=50, roles=["system", "tool"]).messages] == [
        "tool",
        "system",
    ]


# --- searching ---------------------------------------------------------------


def test_a_search_finds_the_best_first_with_its_session(filled: str) -> None:
    answer = ask(filled, "query_memory", query="does the nest leak")
    best = answer.messages[0]
    assert (best.session_id, best.title) == ("alpha", "Why does the nest leak?")
    assert best.snippet == "Why does the «nest» «leak»?"
    assert best.score is not None
    assert best.score < 0


def test_a_search_with_context_shows_what_stands_around(filled: str) -> None:
    answer = ask(filled, "query_session", session_id="alpha", query="loose", context=2, mode="with_tools")
    [found] = answer.messages
    assert [one.role for one in found.before] == ["assistant", "tool"]
    assert found.after == []
    text = markdown(answer)
    assert text.index("### before 1: assistant") < text.index("### before 1: tool") < text.index("## 1. assistant")


def test_a_neighbour_is_written_once(url: str) -> None:
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add_many("s-1-1", [{"role": "user", "content": f"crow {number}"} for number in range(4)])
    text = markdown(ask(url, "query_session", session_id="s", query="crow", context=3, order="asc"))
    assert text.count("> crow 0") == 1
    assert text.count("> crow 3") == 2  # as a neighbour, and as the match that it is itself
    assert text.count("(shown above)") == 3 * 4 - 3


def test_the_order_of_time_keeps_the_page_of_the_best(url: str) -> None:
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        texts_ = ["crow", "crow " + "and much else " * 20, "crow crow", "nothing", "crow once more"]
        memory.messages.add_many("s-1-1", [{"role": "user", "content": text} for text in texts_])
    best = ask(url, "query_session", session_id="s", query="crow", limit=2)
    for order in ("asc", "desc"):
        sorted_ = ask(url, "query_session", session_id="s", query="crow", limit=2, order=order)
        ids = sorted((one.id for one in best.messages), reverse=order == "desc")
        assert [one.id for one in sorted_.messages] == ids
        assert sorted_.next_offset == best.next_offset == 2


def test_what_is_found_in_a_part_that_is_not_shown_is_told_by_its_snippet(filled: str) -> None:
    [found] = ask(filled, "query_memory", query='"perhaps the twigs"').messages
    assert found.parts == []
    assert "«twigs»" in (found.snippet or "")
    assert "matches: " in markdown(MessagesAnswer([found]))


def test_a_search_looks_at_what_its_mode_shows(filled: str) -> None:
    nothing = ask(filled, "query_memory", query='"line 17"')
    assert nothing.messages == []
    assert "with_tools" in told(nothing)
    assert [one.role for one in ask(filled, "query_memory", query='"line 17"', mode="with_tools").messages] == ["tool"]
    assert ask(filled, "query_memory", query="fork").messages == []
    assert texts(ask(filled, "query_memory", query="fork", include_forks=True)) == ["A fork answers."]


def test_searches_come_in_pages(url: str) -> None:
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add_many("s-1-1", [{"role": "user", "content": f"crow {number}"} for number in range(25)])
    found: list[int] = []
    offset: int | None = 0
    while offset is not None:
        page = ask(url, "query_memory", query="crow", offset=offset)
        found += [one.id for one in page.messages]
        offset = page.next_offset
    assert len(found) == len(set(found)) == 25


def test_a_search_in_a_folder(filled: str) -> None:
    assert texts(ask(filled, "query_memory", query="crow", cwd="/tree")) == ["Another crow entirely."]
    assert ask(filled, "query_memory", query="crow entirely", cwd="/nest").messages == []
    assert ask(filled, "query_memory", cwd="/nest").error.kind == "InvalidValue"


# --- what programs put in ----------------------------------------------------


def test_injected_text_is_left_out_unless_everything_is_asked_for(url: str) -> None:
    wrapped = "<system-reminder>\nMind the magpies.\n</system-reminder>"
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add("s-1-1", {"role": "user", "content": "Feed the magpies."})
        memory.messages.add("s-1-1", {"role": "user", "content": "A summary of magpies."}, injected=True)
        memory.messages.add("s-1-1", {"role": "user", "content": wrapped})  # by a program that marks nothing
        both = [{"type": "text", "text": wrapped}, {"type": "text", "text": "And the jays."}]
        memory.messages.add("s-1-1", {"role": "user", "content": both})
    shown = texts(ask(url, "query_session", session_id="s", limit=9, order="asc"))
    assert shown == ["Feed the magpies.", "And the jays."]
    full = texts(ask(url, "query_session", session_id="s", limit=9, order="asc", mode="full"))
    assert full == ["Feed the magpies.", "A summary of magpies.", wrapped, f"{wrapped} | And the jays."]
    found = ask(url, "query_memory", query="summary")
    assert found.messages == []
    assert texts(ask(url, "query_memory", query="summary", mode="full")) == ["A summary of magpies."]


# --- one message -------------------------------------------------------------


def test_a_message_is_read_in_its_place_and_a_long_one_piece_by_piece(url: str) -> None:
    long = "".join(f"{number:09} " for number in range(20_000))
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        first, number, last = memory.messages.add_many(
            "s-1-1", [{"role": "user", "content": text} for text in ("before", long, "after")]
        )
    around = ask(url, "query_session", session_id="s", message_id=number, context=1)
    [found] = around.messages
    assert ([one.id for one in found.before], [one.id for one in found.after]) == ([first], [last])
    read = ""
    start: int | None = 0
    while start is not None:
        answer = ask(url, "query_session", session_id="s", message_id=number, from_character=start)
        [piece] = answer.messages
        read += piece.parts[0].text
        start = piece.next_character
        assert len(json.dumps(plain(answer))) < 100_000
        assert len(markdown(answer)) < 100_000
        assert (start is None) == ("from_character" not in told(answer))
    assert read == long


def test_a_message_of_very_many_parts_is_read_piece_by_piece_too(url: str) -> None:
    blocks = [{"type": "text", "text": str(number % 10)} for number in range(9000)]
    calls = [{"id": "c", "function": {"name": "n" * 5000, "arguments": "{}"}} for _ in range(50)]
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        number = memory.messages.add("s-1-1", {"role": "assistant", "content": blocks, "tool_calls": calls})
    read = ""
    start: int | None = 0
    while start is not None:
        [piece] = ask(
            url, "query_session", session_id="s", message_id=number, from_character=start, mode="full"
        ).messages
        read += "".join(part.text for part in piece.parts)
        start = piece.next_character
        assert len(json.dumps(plain(piece))) < 110_000
    assert read == "0123456789" * 900 + "{}" * 50


def test_a_message_of_another_session_is_not_shown(filled: str) -> None:
    other = ask(filled, "query_memory").messages[0].id
    for wrong in (other, 2**60):
        fault = ask(filled, "query_session", session_id="alpha", message_id=wrong).error
        assert fault.kind == "NotFound"
    assert texts(ask(filled, "query_session", session_id="beta", message_id=other)) == ["Another crow entirely."]


def test_a_message_that_its_mode_hides_is_shown_whole_when_asked_for_by_number(filled: str) -> None:
    [tool] = ask(filled, "query_session", session_id="alpha", mode="with_tools", query='"line 17"').messages
    [found] = ask(filled, "query_session", session_id="alpha", message_id=tool.id).messages
    assert found.parts[0].text.startswith("line 1\nline 2")


# --- size --------------------------------------------------------------------


def test_answers_stay_small_whatever_is_stored(url: str) -> None:
    session = "s" * 2000
    with Memory.open(url) as memory:
        memory.agents.create(f"{session}-1-1", session, cwd="/" + "d" * 100_000, model_identifier="m" * 2000)
        message = {"role": "user", "content": "crow " * 3000}
        memory.messages.add_many(f"{session}-1-1", [message] * 200)
        memory.sessions.set_title(session, "t" * 3000)
        for number in range(60):
            memory.agents.create(f"{session}{number}-1-1", f"{session}{number}")
    asked: list[tuple[str, dict[str, Any]]] = [
        ("list_sessions", {"limit": 200}),
        ("query_memory", {"limit": 200}),
        ("query_memory", {"limit": 200, "query": "crow"}),
        ("query_session", {"session_id": session, "limit": 200, "query": "crow", "context": 20}),
    ]
    for name, sent in asked:
        answer = ask(url, name, **sent)
        assert len(json.dumps(plain(answer))) < 110_000, name
        assert len(markdown(answer)) < 110_000, name
        assert answer.next_offset, name


def test_pages_end_somewhere() -> None:
    answer = sessions_answer([], offset=10_001, more=True)
    assert answer.next_offset is None
    assert "narrower" in told(answer)


def test_short_messages_are_never_cut_and_fill_the_page_that_was_asked_for(url: str) -> None:
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add_many("s-1-1", [{"role": "user", "content": f"crow {number}"} for number in range(300)])
    answer = ask(url, "query_session", session_id="s", limit=200)
    assert len(answer.messages) == 200
    assert all(one.next_character is None for one in answer.messages)


def test_a_long_hit_is_shown_where_it_matches(url: str) -> None:
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add("s-1-1", {"role": "user", "content": "x " * 5000 + "the magpie sits here" + " y" * 50_000})
    [found] = ask(url, "query_memory", query="magpie").messages
    assert "the magpie sits here" in found.parts[0].text
    assert found.from_character
    assert found.next_character


# --- what is wrong -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sent", "kind", "says"),
    [
        ("list_sessions", {"limit": 10**9}, "InvalidValue", "limit is 1,000,000,000, expected 1 to 200"),
        ("list_sessions", {"limit": 0}, "InvalidValue", "limit is 0"),
        ("list_sessions", {"limit": "many"}, "InvalidValue", "limit is of type str"),
        ("list_sessions", {"limit": True}, "InvalidValue", "limit is of type bool"),
        ("list_sessions", {"limit": 2.5}, "InvalidValue", "limit is of type float"),
        ("list_sessions", {"offset": -1}, "InvalidValue", "offset is -1, expected 0 to 10,000"),
        ("list_sessions", {"offset": 10**400}, "InvalidValue", "offset is a number of over 30 digits"),
        ("list_sessions", {"include_forks": "yes"}, "InvalidValue", "include_forks is of type str"),
        ("list_sessions", {"cwd": "/a\0b"}, "InvalidValue", "holds a NUL"),
        ("query_memory", {"max": 3}, "InvalidValue", "there is no argument 'max': this tool takes query, mode"),
        ("query_memory", {"query": "x" * 1_000_000}, "InvalidValue", "query has 1,000,000 characters"),
        ("query_memory", {"query": 7}, "InvalidValue", "query is of type int"),
        ("query_memory", {"mode": "all"}, "InvalidValue", "expected one of 'conversation'"),
        ("query_memory", {"roles": "user"}, "InvalidValue", "roles is of type str, expected a list"),
        ("query_memory", {"roles": [1]}, "InvalidValue", "roles[0] is of type int"),
        ("query_memory", {"after": "yesterday"}, "InvalidValue", "after is 'yesterday', expected a time"),
        ("query_memory", {"after": "9" * 30 + "d"}, "InvalidValue", "before the year 1"),
        ("query_memory", {"before": " "}, "InvalidValue", "before is blank"),
        ("query_session", {}, "InvalidValue", "session_id is missing"),
        ("query_session", {"session_id": ""}, "InvalidValue", "session_id is empty"),
        ("query_session", {"session_id": "a\0"}, "InvalidValue", "holds a NUL at position 1"),
        ("query_session", {"session_id": "\ud83d"}, "InvalidValue", "half a character"),
        ("query_session", {"session_id": "gamma"}, "NotFound", "there is no such session"),
        ("query_session", {"session_id": "alpha-1-9"}, "NotFound", "there is no such session"),
        ("query_session", {"session_id": "alpha", "context": 21}, "InvalidValue", "context is 21, expected 0 to 20"),
        ("query_session", {"session_id": "alpha", "order": "best"}, "InvalidValue", "expected one of 'asc', 'desc'"),
        ("query_session", {"session_id": "alpha", "from_character": 5}, "InvalidValue", "needs message_id"),
        ("query_session", {"session_id": "alpha", "message_id": 1, "query": "x"}, "InvalidValue", "leave query out"),
    ],
)
def test_a_wrong_argument_is_one_typed_error(
    filled: str, name: str, sent: dict[str, Any], kind: str, says: str
) -> None:
    answer = ask(filled, name, **sent)
    assert answer.error is not None
    assert (answer.error.kind, answer.error.retryable) == (kind, False)
    assert says in answer.error.message
    assert answer.error.cure
    assert len(markdown(answer)) < 2000
    json.dumps(plain(answer)).encode()  # nothing that cannot be sent


def test_null_counts_as_left_out_and_whole_floats_as_numbers(filled: str) -> None:
    assert texts(ask(filled, "query_memory", query=None, limit=1.0, mode=None, after=None)) == [
        "Another crow entirely."
    ]


@pytest.mark.parametrize("query", ["a\0b", "\ud83d", '"', "*", "NOT (", "-- ; drop table", "💥" * 5000, "!?" * 5000])
def test_no_query_text_is_an_error(filled: str, query: str) -> None:
    answer = ask(filled, "query_memory", query=query)
    assert answer.error is None
    json.dumps(plain(answer)).encode()


def test_the_beginning_of_a_session_is_enough_while_it_is_only_one(filled: str) -> None:
    assert texts(ask(filled, "query_session", session_id="alp")) == ["After compaction."]
    with Memory.open(filled) as memory:
        memory.agents.create("alps-1-1", "alps")
    fault = ask(filled, "query_session", session_id="alp").error
    assert fault.kind == "InvalidValue"
    assert "alpha" in fault.message
    assert "alps" in fault.message


def test_hostile_text_reaches_the_agent_harmless(url: str) -> None:
    text = "\x1b]0;owned\x07red\x1b[31m \0 \ud83d ‮ end"
    with Memory.open(url) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add("s-1-1", {"role": "user", "content": "first"})
        memory.messages.add("s-1-1", {"role": "user", "content": text})
        memory.sessions.set_title("s", "a\nb `c` **d**")
    answer = ask(url, "query_memory")
    for shown in (markdown(answer), json.dumps(plain(answer), ensure_ascii=False)):
        shown.encode()
        assert "\x1b" not in shown
        assert "\0" not in shown
        assert "end" in shown
    assert markdown(ask(url, "list_sessions")).count("\n") == 0


# --- the store ---------------------------------------------------------------


def test_nothing_can_be_written_through_the_servers_connection(filled: str) -> None:
    async def tried() -> None:
        source = Source(filled)
        async with source.reading() as memory:
            with pytest.raises(ReadOnly):
                await memory.messages.add("alpha-1-1", {"role": "user", "content": "mine"})
            with pytest.raises(ReadOnly):  # past every check of ours: the database refuses it
                await memory._driver.run(statement("session_title"), {"session_id": "alpha", "title": "mine"})
            with pytest.raises(ReadOnly):
                await memory._driver.script("delete from messages")
        await source.close()

    asyncio.run(tried())
    assert ask(filled, "list_sessions").sessions[1].title == "Why does the nest leak?"


def test_calls_may_overlap_while_others_write(filled: str) -> None:
    async def overlapping() -> None:
        source = Source(filled)
        with Memory.open(filled) as writer:
            await asyncio.to_thread(writer.messages.add, "beta-1-1", {"role": "user", "content": "crow zero"})
            calls = [
                TOOL[name].call(source, sent)
                for _ in range(20)
                for name, sent in (
                    ("list_sessions", {}),
                    ("query_memory", {"query": "crow"}),
                    ("query_session", {"session_id": "alpha", "limit": 5, "context": 2}),
                )
            ]
            adding = asyncio.to_thread(
                lambda: [writer.messages.add("beta-1-1", {"role": "user", "content": "crow"}) for _ in range(20)]
            )
            *answers, _ = await asyncio.gather(*calls, adding)
        assert all(answer.error is None for answer in answers)
        assert all(answers[number + 2].messages for number in range(0, 60, 3))
        await source.close()

    asyncio.run(overlapping())


def test_a_call_that_is_cancelled_leaves_the_rest_alone(filled: str) -> None:
    async def cancelled() -> None:
        source = Source(filled)
        task = asyncio.ensure_future(TOOL["query_memory"].call(source, {"query": "crow"}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answer = await TOOL["query_memory"].call(source, {"query": "crow"})
        assert answer.messages
        await source.close()

    asyncio.run(cancelled())


@pytest.fixture(params=["sqlite", "postgres"])
def nowhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is not there."""
    return str(tmp_path / "new" / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_fresh")


def test_a_missing_store_is_an_empty_answer_with_a_hint_until_it_appears(nowhere: str) -> None:
    async def appearing() -> None:
        source = Source(nowhere)
        asked: list[tuple[str, dict[str, Any]]] = [
            ("list_sessions", {}),
            ("query_memory", {"query": "crow"}),
            ("query_session", {"session_id": "alpha"}),
        ]
        for name, sent in asked:
            answer = await TOOL[name].call(source, sent)
            assert answer.error is None
            assert "crowmem import --discover" in told(answer)
            assert "Nothing is remembered yet" in markdown(answer)
        await asyncio.to_thread(fill, nowhere)
        for name, sent in asked:
            answer = await TOOL[name].call(source, sent)
            assert answer.sessions if isinstance(answer, SessionsAnswer) else answer.messages
        await source.close()

    asyncio.run(appearing())


def test_a_store_that_takes_the_place_of_another_is_read_instead(tmp_path: Path) -> None:
    path = tmp_path / "crow.db"

    async def replaced() -> None:
        source = Source(str(path))
        await asyncio.to_thread(fill, str(path))
        assert len((await TOOL["list_sessions"].call(source, {})).sessions) == 2  # type: ignore[union-attr]
        async with source.reading() as old:
            path.unlink()
            answer = await TOOL["list_sessions"].call(source, {})
            assert "there is no store" in told(answer)
            with Memory.open(path) as memory:
                memory.agents.create("new-1-1", "new")
            answer = await TOOL["list_sessions"].call(source, {})
            assert [line.session_id for line in answer.sessions] == ["new"]  # type: ignore[union-attr]
            assert len(await old.sessions.list()) == 2  # a call that began before goes on undisturbed
        await source.close()

    asyncio.run(replaced())


def test_a_store_of_crow_cli_is_an_error_that_names_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "crow.db"
    path.write_bytes(shared_data("transcripts", "derived", "crow-db", "crow.db").read_bytes())
    fault = ask(str(path), "list_sessions").error
    assert fault.kind == "SchemaTooOld"
    assert "crowmem status" in fault.cure
    assert str(path) in fault.message
    Memory.open(path).close()  # what the cure does
    assert ask(str(path), "list_sessions").sessions


def test_a_file_that_is_no_store_and_a_server_that_is_not_there_are_typed_errors(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database at all, and long enough to be read as one" * 100)
    assert ask(str(other), "list_sessions").error.kind == "SchemaMismatch"
    fault = ask("postgresql://nobody@127.0.0.1:9/none", "list_sessions").error
    assert (fault.kind, fault.retryable) == ("Unavailable", True)


def test_messages_of_another_program_that_wait_for_the_index_are_told(filled: str) -> None:
    with Memory.open(filled) as memory:
        memory._driver.file.script(FOREIGN) if memory.status().dialect == "sqlite" else _foreign(filled)  # type: ignore[attr-defined]
    answer = ask(filled, "query_memory", query="unheard")
    assert answer.messages == []
    assert "1 messages of another program are not indexed yet" in told(answer)
    newest = ask(filled, "query_memory")
    assert texts(newest) == ["unheard of"]
    assert markdown(newest).startswith("## 1. user, message ")  # its time is none
    with Memory.open(filled) as memory:
        assert memory.search.messages("unheard")  # a store that may write indexes them
    assert texts(ask(filled, "query_memory", query="unheard")) == ["unheard of"]


FOREIGN = """insert into messages (agent_id, fork_idx, created_at, data, role)
values ('beta-1-1', 1, 'sometime', '{"role": "user", "content": "unheard of"}', 'user')"""


def _foreign(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FOREIGN)


def test_an_error_that_should_not_happen_is_told_by_kind_and_logged(
    filled: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("crowmem.mcp.tools.titles", lambda *_: 1 / 0)
    fault = ask(filled, "query_memory").error
    assert (fault.kind, fault.retryable) == ("Internal", False)
    assert "ZeroDivisionError" in fault.message
    assert "ZeroDivisionError" in caplog.text

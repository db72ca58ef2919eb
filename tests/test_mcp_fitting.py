"""How answers are kept small: caps, pages that end early, pieces of long messages; and the memory that takes."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowmem import Memory
from crowmem.mcp.fitting import AROUND, LEAST, TEXT, WHOLE, beginning, cap, count_that_fit, pieces
from crowmem.mcp.source import Source
from crowmem.mcp.tools import TOOLS
from crowmem.transcript import CALLED, SAID, Part

if TYPE_CHECKING:
    from pathlib import Path


@given(st.lists(st.integers(0, 200_000), max_size=100))
def test_what_is_left_by_short_texts_goes_to_the_long_ones(lengths: list[int]) -> None:
    most = cap(lengths)
    shown = sum(min(length, most) for length in lengths)
    room = min(TEXT, WHOLE - AROUND * len(lengths))
    assert most >= LEAST
    assert shown <= max(room, LEAST * len(lengths))
    if any(length > most for length in lengths) and most > LEAST:
        assert shown > room - len(lengths)  # the room is used
    if sum(lengths) <= room:
        assert shown == sum(lengths)


@given(st.lists(st.integers(0, 100_000), max_size=50))
def test_a_page_ends_before_it_is_too_large_and_never_before_it_begins(costs: list[int]) -> None:
    count = count_that_fit(costs)
    assert count <= len(costs)
    assert count >= min(1, len(costs))
    assert count <= 1 or sum(costs[:count]) <= WHOLE
    if 0 < count < len(costs):
        assert sum(costs[: count + 1]) > WHOLE


@given(st.lists(st.text(max_size=30), max_size=6), st.integers(1, 40))
def test_pieces_put_together_are_the_whole(texts: list[str], most: int) -> None:
    parts = [Part(SAID, text) for text in texts]
    whole = "".join(texts)
    read = [piece.text for start in range(0, len(whole) or 1, most) for piece in pieces(parts, start, most, 99)]
    assert "".join(read) == whole
    assert all(sum(len(piece.text) for piece in pieces(parts, start, most, 99)) <= most for start in range(len(whole)))


def test_pieces_keep_what_they_are_of() -> None:
    parts = [Part(SAID, "12345"), Part(CALLED, "{...}", "Bash"), Part("answered", "no", "", is_error=True)]
    [said, call] = pieces(parts, 3, 4, 2)
    assert (said.text, call.kind, call.text, call.name, call.is_error) == ("45", CALLED, "{.", "Bash", None)
    assert pieces(parts, 10, 9, 1)[0].is_error is True


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(8, 500))
def test_a_piece_begins_where_its_word_is_seen(before: int, after: int, most: int) -> None:
    parts = [Part(SAID, "x" * before), Part(SAID, "magpie" + "y" * after)]
    start = beginning(parts, most, "magpie")
    assert "magpie" in "".join(piece.text for piece in pieces(parts, start, most, 99))
    assert start == 0 or start + most <= before + 6 + after
    assert beginning(parts, most, "jay") == beginning(parts, most, "") == 0


LARGE = 2 * 1024 * 1024


@pytest.fixture(params=["sqlite", "postgres"])
def agents(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with 20 agents of 2 MiB of prompt and of tools each."""
    url = str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")
    with Memory.open(url) as memory:
        for number in range(20):
            session = f"session-{number}"
            memory.agents.create(
                f"{session}-1-1",
                session,
                system_prompt="p" * LARGE,
                tool_definitions=[{"type": "function", "function": {"name": "t", "description": "d" * LARGE}}],
            )
            talk = [{"role": "user", "content": f"crow {number}"}, {"role": "assistant", "content": "a nest"}]
            memory.messages.add_many(f"{session}-1-1", talk)
    return url


def test_listing_and_searching_read_no_prompts(agents: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_sessions", {}),
        ("list_sessions", {"include_forks": True}),
        ("query_memory", {"limit": 50}),
        ("query_memory", {"query": "crow nest", "limit": 50}),
        ("query_session", {"session_id": "session-7", "limit": 5}),
        ("query_session", {"session_id": "session-7-1-1", "query": "crow", "context": 2}),
        ("query_session", {"session_id": "session-1", "query": "crow", "mode": "full"}),
    ]

    async def peak() -> int:
        source = Source(agents)
        tools = {tool.name: tool for tool in TOOLS}
        async with source.reading():
            tracemalloc.start()
            try:
                for name, sent in calls:
                    answer = await tools[name].call(source, sent)
                    assert answer.error is None, answer.error
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                await source.close()

    assert asyncio.run(peak()) < 5_000_000

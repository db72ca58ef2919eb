"""Sessions with a rare word in every corner, deleted in any order: the word is in no byte of a file, no row, no index entry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest
from pictures import openai_block, png
from test_known_faults import tables_with

from crowmem import Memory

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = [pytest.param(6, id="short"), pytest.param(60, id="long", marks=pytest.mark.slow)]
LETTERS = "bcdfghjklmnpqrstvwxz"


def fill(memory: Memory, session: str, word: str, chance: random.Random, number: int) -> None:
    """A session of some of everything, with the word in each text that goes with it."""
    agent = memory.agents.create(
        f"{session}-1-1", session, system_prompt=word, cwd=f"/{word}", prompt_args={word: word}, model_identifier=word
    ).agent_id
    kinds: list[Any] = [
        {"role": "user", "content": f"{word} {word.upper()} and more"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": word, "arguments": word}}]},
        {"role": "assistant", "content": "x", "reasoning_content": word},
        {"role": "user", "content": [{"type": "text", "text": word}, openai_block(png(number))]},
        {"role": "user", "content": " ".join([word] * 9000)},  # several index rows
        {"role": "tool", "content": f"{word}\0{word}悬空{word}", word: {word: [word]}},
    ]
    for _ in range(chance.randrange(1, 12)):
        memory.messages.add(agent, chance.choice(kinds), injected=chance.random() < 0.2)
    fork = memory.agents.fork(agent, at=1)
    memory.messages.add_many(fork.agent_id, [chance.choice(kinds) for _ in range(chance.randrange(4))])
    memory.sessions.set_title(session, word)
    memory.tasks.launch(f"{word}-task", session, prompt=word, tool_call_id=word)
    if chance.random() < 0.5:
        memory.tasks.finish(f"{word}-task", result=word, content=word)
    memory.mailbox.send(session, word, key=word)
    memory.mailbox.send(agent, word, delay_s=1000)
    for one in memory.mailbox.lease(session, word, limit=1):
        memory.mailbox.release(one, error=word)
    memory.payloads.save(session, {word: word})
    memory.leases.acquire(session, word, lease_s=1000)
    memory.tapes.append(session, [{"id": word, "kind": "message", "payload": {word: word}} for _ in range(3)])
    memory.checkpoints.save(session, label=word, plugin_states={word: word}, session_id=session)
    memory.tapes.append(session, [{"id": f"{word}2", "kind": "message", "payload": {}}])
    memory.search.messages(word)


def look(url: str, folder: Path, words: list[str]) -> list[str]:
    """Where one of the words still is."""
    if url.startswith("postgresql"):
        found = [f"{word} in {table}" for word in words for table in tables_with(url, word)]
        with psycopg.connect(url) as connection:
            connection.execute("set enable_seqscan = off")  # by way of the index's entries
            for word in words:
                if connection.execute(
                    "select 1 from message_index where tsv @@ %s::tsquery limit 1", (word,)
                ).fetchone():
                    found.append(f"{word} in the index")
        return found
    connection = apsw.Connection(url)
    connection.set_busy_timeout(10_000)
    assert connection.execute("pragma wal_checkpoint(truncate)").fetchall() == [(0, 0, 0)]  # nobody holds it up
    connection.close()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 0
    return [
        f"{word} in {path.name}"
        for path in files
        for word in words
        if word.encode() in path.read_bytes().lower() or word in path.name
    ]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_no_byte_of_a_deleted_session_is_left(
    request: pytest.FixtureRequest, tmp_path: Path, dialect: str, rounds: int
) -> None:
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_clean")
    chance = random.Random(rounds)
    alive: dict[str, str] = {}
    gone: list[str] = []
    with Memory.open(url, images=tmp_path / "images") as memory:
        for number in range(rounds):
            word = "".join(chance.choices(LETTERS, k=14))
            fill(memory, f"s{number}", word, chance, number)
            alive[f"s{number}"] = word
            while alive and chance.random() < 0.5:
                session = chance.choice(sorted(alive))
                assert memory.sessions.delete(session) is not None
                gone.append(alive.pop(session))
                memory.images.collect(grace_s=0)
                assert look(url, tmp_path, gone) == []
        for session in sorted(alive):
            assert len(memory.search.messages(alive[session])) > 0
            assert memory.sessions.delete(session) is not None
        gone += alive.values()
        memory.images.collect(grace_s=0)
        assert look(url, tmp_path, gone) == []
        assert list(tmp_path.rglob("*.png")) == []
        assert memory.check(deep=True) == []
    assert look(url, tmp_path, gone) == []


@pytest.mark.parametrize("at_once", [True, False], ids=["one session", "two sessions"])
def test_a_counted_word_goes_with_the_last_session_that_has_it(pg_fresh: str, tmp_path: Path, at_once: bool) -> None:
    with Memory.open(pg_fresh, images=tmp_path / "images") as memory:
        for number in range(60):
            memory.messages.add(f"{'a' if at_once or number % 2 else 'b'}-1-1", {"role": "user", "content": "zyxquux"})
        memory.messages.add_many("other-1-1", [{"role": "user", "content": f"kept common {n}"} for n in range(30)])
        memory.search.optimize()
        with psycopg.connect(pg_fresh, autocommit=True) as other:
            words = "select word from search_words order by word"
            assert {"zyxquux", "common"} <= {word for (word,) in other.execute(words)}
            for session in ("a", "b"):
                memory.sessions.delete(session)
            if not at_once:  # the count knew of both
                memory.search.optimize()
            left = {word for (word,) in other.execute(words)}
            assert "zyxquux" not in left
            assert at_once is False or "common" in left
        assert len(memory.search.messages("common", limit=100)) == 30
        assert memory.check(deep=True) == []

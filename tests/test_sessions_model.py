"""The list of sessions stays true, whoever writes and in whatever order rows come and go."""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest
from test_search_index import foreign

from crowmem import Memory
from crowmem.errors import Conflict, InvalidValue, NotFound, Unavailable
from crowmem.scope import agent_parts

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMAS = Path(__file__).parents[1] / "sql"
AGENTS = ("s-1-1", "s-1-2", "s-2-1", "s-3-2", "s-1-1-1-1", "odd", "s-1-99999999999", "s-01-1", "-1-1", "t-1-1")
INSERT = (
    "insert into messages (agent_id, fork_idx, created_at, data, role) values ('{agent}', 1, '{stamp}', '{{}}', 'user')"
)
INSERT_AGENT = (
    "insert into agents (agent_id, session_id, agent_idx, fork_idx, cwd, system_prompt, tool_definitions,"
    " request_params, model_identifier, status, created_at)"
    " values ('{agent}', '{session}', {index}, {fork}, '/{agent}', '', '[]', '{{}}', 'm{agent}', '', '{stamp}')"
)
OF_SESSION = "delete from messages where agent_id in (select agent_id from agents where session_id = 's')"


def turn(memory: Any, backend: Any, dice: random.Random) -> None:
    """One change, by crowmem or as another program makes it."""
    agent = dice.choice(AGENTS)
    stamp = f"2026-01-{dice.randint(1, 9):02d}T00:00:00.000000+00:00"
    place = agent_parts(agent)
    if agent == "odd":  # its row names another session than the id does
        place = agent_parts("s-4-1")
    row = INSERT_AGENT.format(
        agent=agent, session=place.session_id, index=place.agent_idx, fork=place.fork_idx, stamp=stamp
    )
    deletions = [OF_SESSION, "delete from agents where session_id = 's'"]
    dice.shuffle(deletions)
    changes = [
        lambda: memory.messages.add(agent, {"role": "user", "content": "x"}, created_at=stamp),
        lambda: memory.messages.add_many(agent, [{"n": 1}, {"n": 2}, {"n": 3}], created_ats=[stamp] * 3),
        lambda: memory.agents.create(agent, place.session_id, created_at=stamp, model_identifier=f"m{agent}"),
        lambda: memory.agents.fork(agent),
        lambda: memory.sessions.delete(place.session_id),
        lambda: foreign(backend, *deletions),
        lambda: foreign(backend, "delete from messages where id = (select max(id) from messages)"),
        lambda: foreign(backend, f"delete from messages where agent_id = '{agent}' and id % 3 = {dice.randint(0, 2)}"),
        lambda: foreign(backend, f"delete from messages where agent_id = '{agent}'"),
        lambda: foreign(backend, f"delete from agents where agent_id = '{agent}'"),
        *[lambda: foreign(backend, INSERT.format(agent=agent, stamp=stamp))] * 3,
        *[lambda: foreign(backend, row)] * 2,
    ]
    try:
        dice.choice(changes)()
    except (Conflict, InvalidValue, NotFound, psycopg.errors.UniqueViolation):
        return
    except apsw.ConstraintError as error:
        if str(error) != "UNIQUE constraint failed: agents.agent_id":
            raise


@pytest.mark.parametrize("seed", range(6))
def test_the_list_is_true_after_every_change_of_any_writer(backend: Any, memory: Any, seed: int) -> None:
    dice = random.Random(seed)  # the same dice every time
    for _ in range(40):
        turn(memory, backend, dice)
        assert memory.check(deep=True) == []
    for session in memory.sessions.list(include_forks=True):
        assert memory.sessions.exists(session.session_id)
        assert memory.sessions.delete(session.session_id) is not None
    assert memory.sessions.list(include_forks=True) == []
    assert {memory.status().rows[name] for name in ("messages", "agents")} == {0}
    assert memory.check(deep=True) == []


def meet(memory: Memory, other: psycopg.Connection, dice: random.Random) -> None:
    """One change of a session that others change, too. Two who wait for each other are told so; one of them goes on."""
    agent = dice.choice(("s-1-1", "s-2-1"))
    changes: list[Callable[[], object]] = [
        lambda: memory.messages.add(agent, {"content": "x"}),
        lambda: memory.messages.add_many(agent, [{"n": 1}] * 3),
        lambda: memory.agents.create(agent, "s"),
        lambda: memory.sessions.delete("s"),
        lambda: other.execute(INSERT.format(agent=agent, stamp="2026-01-01")),
        lambda: other.execute("delete from agents where agent_id = %s", (agent,)),
    ]
    with contextlib.suppress(Conflict, Unavailable, psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
        dice.choice(changes)()


def test_the_list_is_true_after_writers_that_met(pg_clean: str) -> None:
    def work(seed: int) -> None:
        try:
            with psycopg.connect(pg_clean, autocommit=True) as other:
                dice = random.Random(seed)  # the same dice every time
                for _ in range(60):
                    meet(memory, other, dice)
        except BaseException as error:  # kept for the assertion
            failures.append(error)

    failures: list[BaseException] = []
    with Memory.open(pg_clean) as memory:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        memory.search.messages("x")
        assert memory.check(deep=True) == []
        memory.sessions.delete("s")
        assert memory.status().rows["messages"] == 0


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_store_of_the_crow_format_is_counted_when_it_is_opened(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tables = (SCHEMAS / dialect / "schema" / "0001_crow.sql").read_text(encoding="utf-8").replace("main.", "")
    rows = [
        INSERT_AGENT.format(agent="s-1-1", session="s", index=1, fork=1, stamp="2026-01-01"),
        *(INSERT.format(agent=agent, stamp="2026-01-02") for agent in ("s-1-1", "s-1-2", "lost-1-1", "odd")),
    ]
    url = str(tmp_path / "crow.db") if dialect == "sqlite" else request.getfixturevalue("pg_fresh")
    if dialect == "sqlite":
        connection = apsw.Connection(url)
        connection.execute(tables + ";".join(rows))
        connection.close()
    else:
        with psycopg.connect(url) as server:
            server.execute(tables)
            for row in rows:
                server.execute(row)
    with Memory.open(url) as memory:
        found = {one.session_id: one.message_count for one in memory.sessions.list(include_forks=True)}
        assert found == {"s": 2, "lost": 1, "odd": 1}
        assert memory.check(deep=True) == []
        for session_id in found:
            assert memory.sessions.delete(session_id) is not None
        assert memory.status().rows["messages"] == 0

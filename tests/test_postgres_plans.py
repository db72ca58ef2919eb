"""PostgreSQL plans the list of sessions once, not at each call."""

from __future__ import annotations

import psycopg
import pytest

from crowmem import Memory
from crowmem.repositories.sessions import LIST_ALL, LIST_TRUNK
from crowmem.statement import in_schema

PAGE = {"activity": "~", "after": "", "limit": 50, "offset": 0}
CALLS, TRIED = 12, 5  # PostgreSQL makes five plans for given values before it compares them with the general one


@pytest.fixture(scope="module")
def crowded(pg_shared):
    """A store of 2,000 sessions, one message each, analyzed."""
    url = pg_shared.clean()
    with Memory.open(url) as memory, memory.transaction() as tx:
        for number in range(2_000):
            tx.messages.add(f"session-{number:04}-1-1", {"role": "user", "content": "caw"})
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("analyze")
    return url


@pytest.mark.parametrize("bound", [LIST_TRUNK, LIST_ALL], ids=lambda bound: bound.name)
def test_a_page_is_planned_once(crowded, bound):
    """Planning took longer than the page itself, and more the more sessions there were."""
    values = [PAGE[name] for name in bound.params]
    text = in_schema(bound.texts["postgres"], "public").encode()
    with psycopg.connect(crowded, autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor) as other:
        for _ in range(CALLS):
            assert len(other.execute(text, values).fetchall()) == 50
        [plans] = other.execute(
            "select generic_plans, custom_plans from pg_prepared_statements where statement = $1", [text.decode()]
        ).fetchall()
    assert plans == (CALLS - TRIED, TRIED)

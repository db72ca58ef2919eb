"""Sessions' summaries, compared with what counting finds, and counted again.

Triggers keep them true for any writer. Wrong ones come of a writer that turned triggers off, and of changes that no
program makes by itself, such as another agent id for messages that are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowmem.ids import build_agent_id
from crowmem.indexing import give_titles
from crowmem.statement import statement

if TYPE_CHECKING:
    from crowmem.drivers import Driver

WRONG = statement("session_wrong")
STRAYS_WRONG = statement("session_strays_wrong")
NOTE_STRAY = statement("session_stray_note")
DROP_STRAY = statement("session_stray_drop")
MEND = statement("session_mend")

MOST = 1000  # of one look, which reads all messages' stamps


async def summary_problems(driver: Driver) -> list[str]:
    """Agents that belong to no session, and sessions that are counted wrong, in plain words."""
    found: list[str] = []
    strays = await driver.run(STRAYS_WRONG, {"most": MOST})
    if strays:
        found.append(
            f"sessions: {_number(strays)} agents have messages that no session knows of, or are known and have none, "
            f"the first is {strays[0][0]!r}; run `crowmem reindex`"
        )
    wrong = await driver.run(WRONG, {"most": MOST})
    if wrong:
        found.append(
            f"sessions: {_number(wrong)} are counted wrong, the first is {wrong[0][0]!r}; run `crowmem reindex`"
        )
    return found


def _number(rows: list[tuple[object, ...]]) -> str:
    return f"{len(rows):,}" if len(rows) < MOST else f"{MOST:,} or more"


async def mend_summaries(driver: Driver) -> None:
    """Make every summary true again, each in a transaction of its own; titles that are there stay.

    Args:
        driver: a driver outside a transaction.
    """
    seen: set[tuple[object, ...]] = set()
    while strays := [row for row in await driver.run(STRAYS_WRONG, {"most": MOST}) if row not in seen]:
        seen |= set(strays)
        async with driver.transaction() as tx:
            for agent_id, missing in strays:
                await tx.run(NOTE_STRAY if missing else DROP_STRAY, {"agent_id": agent_id})
    seen.clear()
    while wrong := [row for row in await driver.run(WRONG, {"most": MOST}) if row not in seen]:
        seen |= set(wrong)
        for (session_id,) in wrong:
            async with driver.transaction() as tx:
                await tx.run(MEND, {"session_id": session_id})
                await give_titles(tx, {build_agent_id(session_id, 1)})

"""Another store of our kind, a crow.db, taken over: its prompts and agents before its messages, the rest after them.

A message has a new number here unless the store was empty; the anchors of forks, which are numbers of messages, are
found by the keys under which messages are known. Tasks and mail are known by keys as well, so that mail which was taken
out meanwhile does not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.records import Agent, Task
from crowmem.statement import statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.drivers import Driver

LOCK = statement("import_lock")
IS_EMPTY = statement("import_is_empty")
AGENTS_KNOWN = statement("import_agents_known")
AGENT_ADD = statement("import_agent_add")
KEYS_KNOWN = statement("import_keys_known")
KEY_PUT = statement("import_key_put")
FORK_PUT = statement("import_fork_put")
TASK_PUT = statement("import_task_put")
DELIVERY_PUT = statement("import_delivery_put")
SEQUENCE = statement("import_sequence")
PROMPT_ADD = statement("prompt_add")
AGENT_NEW = statement("agent_add", Agent)
TASK_GET = statement("task_get", Task)

MAILBOX = "mailbox"  # stands for the agent of an address that is no session


async def begin(tx: Driver, prompts: Sequence[dict[str, Any]], agents: Sequence[dict[str, Any]]) -> bool:
    """Add prompts and agents that are not there yet; forks wait for their anchors.

    Returns:
        Whether the store has no messages, so that those of the file can keep their numbers.
    """
    sessions = sorted({agent["session_id"] for agent in agents})
    await tx.run(LOCK, {"session_ids": sessions})
    [(empty,)] = await tx.run(IS_EMPTY, {})
    if prompts:
        await tx.run_batch(PROMPT_ADD, prompts)
    known = {agent_id for _session, _name, _number, agent_id, *_ in await _known(tx, sessions)}
    if agents:
        await tx.run_batch(AGENT_NEW, [{**agent, "forked_at": None} for agent in agents])
    new = [agent for agent in agents if agent["agent_id"] not in known]
    names = [
        {"session_id": agent["session_id"], "name": agent["agent_id"], "agent_id": agent["agent_id"]} for agent in new
    ]
    if names:
        await tx.run_batch(AGENT_ADD, names)
    return bool(empty)


async def end(
    tx: Driver,
    forks: Sequence[dict[str, Any]],
    tasks: Sequence[dict[str, Any]],
    deliveries: Sequence[dict[str, Any]],
    numbered: bool,
) -> None:
    """Give forks their anchors, and take over the tasks and mail that were not taken before.

    Args:
        tx: an open transaction.
        forks: agent id, trunk, the trunk's session, and the keys of the message that may be the anchor.
        tasks: columns of tasks, and a key each.
        deliveries: columns of mail, a key each, and their number in the file.
        numbered: whether the messages kept their numbers.
    """
    sessions = {task["owner_session"] for task in tasks} | {mail["session_id"] for mail in deliveries}
    wanted = sorted(sessions | {fork["session_id"] for fork in forks})
    await tx.run(LOCK, {"session_ids": wanted})
    if numbered and tx.dialect == "postgres":
        await tx.run(SEQUENCE, {})
    known = await _known(tx, wanted)
    numbers = {agent_id: number for _session, _name, number, agent_id, *_ in known}
    for fork in forks:
        await _anchor(tx, fork, numbers.get(fork["trunk"], 0))
    owners = {session: number for session, _name, number, *_ in reversed(known)}
    for session in sorted(sessions - owners.keys()):
        agent = {"session_id": session, "name": MAILBOX, "agent_id": f"{MAILBOX}:{session}"}
        [(owners[session],)] = await tx.run(AGENT_ADD, agent)
    renamed = {task["task_id"]: await _task(tx, task, owners[task["owner_session"]]) for task in tasks}
    for mail in deliveries:
        if await _is_new(tx, owners[mail["session_id"]], mail["key"], mail["number"]):
            await tx.run(DELIVERY_PUT, {**mail, "task_id": renamed.get(mail["task_id"], mail["task_id"])})


async def _known(tx: Driver, sessions: list[str]) -> list[tuple[Any, ...]]:
    return await tx.run(AGENTS_KNOWN, {"session_ids": sessions})


async def _anchor(tx: Driver, fork: dict[str, Any], trunk: int) -> None:
    """The message that a fork shares last, under the number it has here."""
    seen = await tx.run(KEYS_KNOWN, {"agent": trunk, "keys": fork["keys"]})
    found = {key: message_id for key, message_id, _parts in seen}
    anchor = next((found[key] for key in fork["keys"] if key in found), 0)
    await tx.run(FORK_PUT, {"agent_id": fork["agent_id"], "forked_at": str(anchor)})


async def _is_new(tx: Driver, agent: int, key: int, number: int) -> bool:
    """Whether something comes for the first time; from now on it is known."""
    if await tx.run(KEYS_KNOWN, {"agent": agent, "keys": [key]}):
        return False
    await tx.run(KEY_PUT, {"agent": agent, "key": key, "message_id": number, "parts": 1})
    return True


async def _task(tx: Driver, task: dict[str, Any], owner: int) -> str:
    """Take over one task; the id it has here: one of its own when another task has its id."""
    task_id: str = task["task_id"]
    found = await tx.run(TASK_GET, {"task_id": task_id})
    same = bool(found) and (found[0].owner_session, found[0].prompt) == (task["owner_session"], task["prompt"])
    name = f"{task_id}.{task['key'] & 0xFFFFFFFF:08x}" if found and not same else task_id
    if await _is_new(tx, owner, task["key"], 0) and not same:
        await tx.run(TASK_PUT, {**task, "task_id": name})
    return name

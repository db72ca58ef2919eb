"""Tasks: work handed from one session to another, whose end is mail to its owner."""

from __future__ import annotations

import pytest

from crowmem.errors import Conflict, InvalidValue


def test_a_task_is_registered_running(memory):
    made = memory.tasks.launch("t", "owner", tool_call_id="call", prompt="look", model="m", priority="high")
    assert (made.kind, made.status, made.result, made.finished_at) == ("subagent", "running", None, None)
    assert memory.tasks.get("t") == made
    assert memory.tasks.get("other") is None


def test_a_task_id_is_taken_once(memory):
    memory.tasks.launch("t", "a", prompt="first")
    with pytest.raises(Conflict, match="'t'"):
        memory.tasks.launch("t", "b", prompt="second")
    assert memory.tasks.get("t").prompt == "first"


def test_the_next_task_has_the_next_number_whatever_its_kind_and_owner(memory):
    assert memory.tasks.launch_next("a").task_id == "task-1"
    memory.tasks.launch("task-41", "b", kind="shell")
    memory.tasks.launch("task-x", "b")
    memory.tasks.launch("task-9000000000000000000000", "b")
    memory.tasks.launch("task-007b", "b")
    assert memory.tasks.launch_next("b", kind="shell", prompt="p").task_id == "task-42"
    assert memory.tasks.launch_next("a").task_id == "task-43"


def test_tasks_are_listed_in_the_order_of_launch(memory):
    for number in range(12):
        memory.tasks.launch_next("ab"[number % 2])
    assert [task.task_id for task in memory.tasks.list()] == [f"task-{n}" for n in range(1, 13)]
    assert [task.task_id for task in memory.tasks.list("a", limit=3)] == ["task-1", "task-3", "task-5"]
    memory.tasks.finish("task-1")
    assert [task.task_id for task in memory.tasks.list("a", status="running", limit=1)] == ["task-3"]
    assert [task.task_id for task in memory.tasks.list(status="completed")] == ["task-1"]
    assert (memory.tasks.count(), memory.tasks.count("a"), memory.tasks.count("nobody")) == (12, 6, 0)


def test_the_newest_task_of_a_sub_session(memory):
    memory.tasks.launch("one", "a", sub_session="sub")
    memory.tasks.launch("two", "a")
    assert memory.tasks.by_sub_session("sub").task_id == "one"
    memory.tasks.set_sub_session("two", "sub")
    memory.tasks.set_sub_session("unknown", "sub")
    assert memory.tasks.by_sub_session("sub").task_id == "two"
    assert memory.tasks.by_sub_session("other") is None


def test_finishing_delivers_once(memory):
    memory.tasks.launch("t", "owner", priority="high")
    assert memory.tasks.finish("t", result="r", content="done") is True
    assert memory.tasks.finish("t", result="again", content="twice") is False
    task = memory.tasks.get("t")
    assert (task.status, task.result) == ("completed", "r")
    assert task.finished_at >= task.created_at
    [mail] = memory.mailbox.pending("owner")
    assert (mail.task_id, mail.content, mail.priority, mail.status) == ("t", "done", "high", "pending")


def test_finishing_what_is_not_there_delivers_nothing(memory):
    assert memory.tasks.finish("unknown", content="x") is False
    assert memory.mailbox.pending("owner") == []


def test_finishing_without_delivery(memory):
    memory.tasks.launch("t", "owner")
    assert memory.tasks.finish("t", status="failed", deliver=False) is True
    assert memory.tasks.get("t").status == "failed"
    assert memory.mailbox.count("owner")["pending"] == 0


def test_cancelling_sends_no_mail(memory):
    memory.tasks.launch("t", "owner")
    assert memory.tasks.cancel("t") is True
    assert memory.tasks.cancel("t") is False
    assert memory.tasks.finish("t", content="late") is False
    assert memory.tasks.get("t").status == "cancelled"
    assert memory.mailbox.pending("owner") == []


def test_a_reopened_task_runs_again_and_its_mail_stays(memory):
    memory.tasks.launch("t", "owner")
    assert memory.tasks.reopen("t") is False
    memory.tasks.finish("t", content="first")
    assert memory.tasks.reopen("t") is True
    assert memory.tasks.reopen("t") is False
    task = memory.tasks.get("t")
    assert (task.status, task.finished_at) == ("running", None)
    memory.tasks.finish("t", content="second")
    assert [mail.content for mail in memory.mailbox.pending("owner")] == ["first", "second"]
    assert memory.tasks.reopen("unknown") is False


def test_a_rolled_back_finish_delivers_nothing(memory):
    memory.tasks.launch("t", "owner")
    with pytest.raises(LookupError), memory.transaction() as tx:
        assert tx.tasks.finish("t", content="x") is True
        raise LookupError
    assert memory.tasks.get("t").status == "running"
    assert memory.mailbox.pending("owner") == []
    with memory.transaction() as tx:
        assert tx.tasks.finish("t", content="x") is True
    assert len(memory.mailbox.pending("owner")) == 1


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"task_id": ""}, "task_id"),
        ({"task_id": "a\0b"}, "task_id"),
        ({"owner_session": 7}, "owner_session"),
        ({"prompt": "half \ud83d"}, "prompt"),
        ({"model": 3}, "model"),
        ({"priority": ""}, "priority"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(memory, values, place):
    given = {"task_id": "t", "owner_session": "o", **values}
    with pytest.raises(InvalidValue, match=place):
        memory.tasks.launch(given.pop("task_id"), given.pop("owner_session"), **given)
    assert memory.tasks.count() == 0


def test_a_task_cannot_end_running(memory):
    memory.tasks.launch("t", "owner")
    with pytest.raises(InvalidValue, match="reopen"):
        memory.tasks.finish("t", status="running")
    with pytest.raises(InvalidValue, match="content"):
        memory.tasks.finish("t", content="\0")
    assert memory.tasks.get("t").status == "running"

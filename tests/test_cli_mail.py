"""``crowmem mail``: the mailbox from a shell."""

from __future__ import annotations

import json

import pytest

from crowmem import Memory
from crowmem.cli import main


@pytest.fixture
def mail(tmp_path, capsys):
    """Runs the command on a store of this test's own: its exit code and what it printed."""

    def call(*words, code=0):
        found = main(["--db", str(tmp_path / "crow.db"), "mail", *words])
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed.out

    return call


def test_sending_and_claiming(mail):
    assert mail("send", "a", "one", "two").split() == ["1", "2"]
    assert mail("pending", "a").splitlines()[-1].endswith("two")
    assert mail("claim", "a", "--limit", "1") == "one\n"
    assert mail("claim", "a") == "two\n"
    assert mail("claim", "a") == ""


def test_a_key_with_several_contents_is_wrong_usage_and_sends_none(mail):
    mail("send", "a", "zero")
    mail("send", "a", "one", "two", "--key", "k", code=2)
    assert mail("count", "a").split()[:2] == ["pending", "1"]


def test_a_key_sends_once_and_a_priority_is_claimed_alone(mail):
    assert mail("send", "a", "x", "--key", "k") == mail("send", "a", "y", "--key", "k")
    mail("send", "a", "urgent", "--priority", "high", "--task", "task-1")
    [row] = [json.loads(line) for line in mail("claim", "a", "--priority", "high", "--json").splitlines()]
    assert (row["content"], row["task_id"], row["status"]) == ("urgent", "task-1", "delivered")


def test_leasing_and_acknowledging(mail):
    mail("send", "a", "x")
    [row] = [json.loads(line) for line in mail("lease", "a", "--for", "1h", "--json").splitlines()]
    assert "leased     1" in mail("count", "a")
    mail("ack", str(row["id"]), str(row["lease_token"] + 1), code=1)
    mail("ack", str(row["id"]), str(row["lease_token"]))
    mail("ack", str(row["id"]), str(row["lease_token"]), code=1)
    mail("ack", "99", "1", code=1)
    assert json.loads(mail("count", "a", "--json"))["delivered"] == 1


def test_the_dead_are_listed_and_revived(mail, tmp_path):
    with Memory.open(tmp_path / "crow.db", max_attempts=1) as memory:
        sent = memory.mailbox.send("a", "poison")
        memory.mailbox.release(memory.mailbox.lease("a", "w")[0], error="broke")
    assert "broke" in mail("dead", "a")
    mail("revive", str(sent.id))
    mail("revive", str(sent.id), code=1)
    assert mail("dead", "a") == ""


def test_waiting(mail):
    mail("send", "a", "x")
    mail("wait", "a", "--timeout", "30s")
    mail("claim", "a")
    mail("wait", "a", "--timeout", "0s", code=1)


def test_what_a_terminal_obeys_is_not_printed(mail):
    mail("send", "a", "\x1b[2Jgone")
    assert "\x1b" not in mail("pending", "a")
    assert "\x1b" not in mail("claim", "a")


def test_a_delay(mail):
    mail("send", "a", "later", "--delay", "2h")
    assert "waiting    1" in mail("count", "a")

"""The mailbox under real concurrency: threads, processes, kills, locks and plans that would hand things out twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from mailboxes import execute, let_time_pass

from crowmem import Memory
from crowmem.errors import Busy, LeaseLost

ROUNDS = 60  # of each race here; the full measurement (bench/claim.py) runs a thousand
ROOT = Path(__file__).resolve().parents[1]


def in_processes(count, body, url, *arguments):
    """Run a body in fresh processes that start together; their printed lines."""
    script = (
        "import sys\nfrom crowmem import Memory\nfrom crowmem.errors import *\n"
        "url, number = sys.argv[1], int(sys.argv[2])\n"
        "arguments = sys.argv[3:]\n"
        "memory = Memory.open(url, busy_timeout_s=60)\nprint('ready', flush=True)\nsys.stdin.readline()\n" + body
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, url, str(number), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number in range(count)
    ]
    for one in started:
        assert one.stdout.readline() == "ready\n"
    for one in started:
        one.stdin.write("go\n")
        one.stdin.flush()
    outputs = [one.communicate()[0].split() for one in started]
    assert [one.returncode for one in started] == [0] * count
    return outputs


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "crow.db")
    return request.getfixturevalue("pg_clean")


@pytest.fixture
def store(url):
    with Memory.open(url, busy_timeout_s=60) as memory:
        yield memory


def race(*calls):
    """Call all at the same moment; the results, exceptions included."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait()
        try:
            return call()
        except LeaseLost as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


# --- exactly one wins ---


def test_two_processes_finish_the_same_tasks(store, url):
    for number in range(200):
        store.tasks.launch(f"t{number}", "owner")
    body = "print(sum(memory.tasks.finish(f't{n}', content='done') for n in range(200)))"
    won = in_processes(2, body, url)
    assert sum(int(count) for [count] in won) == 200
    mail = store.mailbox.pending("owner")
    assert sorted(one.task_id for one in mail) == sorted(f"t{n}" for n in range(200))


def test_finish_against_cancel_and_reopen_against_reopen(url):
    with Memory.open(url, busy_timeout_s=60) as one, Memory.open(url, busy_timeout_s=60) as two:
        for number in range(ROUNDS):
            task = f"t{number}"
            one.tasks.launch(task, "owner")
            finished, cancelled = race(lambda t=task: one.tasks.finish(t), lambda t=task: two.tasks.cancel(t))
            assert finished + cancelled == 1
            assert sum(mail.task_id == task for mail in one.mailbox.pending("owner")) == finished
            reopened = race(lambda t=task: one.tasks.reopen(t), lambda t=task: two.tasks.reopen(t))
            assert sum(reopened) == 1
            finishes = race(lambda t=task: one.tasks.finish(t), lambda t=task: two.tasks.finish(t))
            assert sum(finishes) == 1


def test_an_ended_lease_against_its_late_acknowledgement(url):
    with Memory.open(url, busy_timeout_s=60) as one, Memory.open(url, busy_timeout_s=60) as two:
        for number in range(ROUNDS):
            box = f"box{number}"
            one.mailbox.send(box, "x")
            [held] = one.mailbox.lease(box, "A", lease_s=30)
            let_time_pass(one, 31)
            acked, taken = race(lambda h=held: one.mailbox.ack(h), lambda b=box: two.mailbox.lease(b, "B"))
            if acked is not None:
                assert isinstance(acked, LeaseLost)
                # An acknowledgement that comes as the item goes back holds its row for that moment, and B passes over it.
                taken = taken or two.mailbox.lease(box, "B")
                assert taken[0].token > held.token
            assert (acked is None) != bool(taken)
            assert one.mailbox.lease(box, "C") == []


def test_two_leases_race_for_one_item(url):
    with Memory.open(url, busy_timeout_s=60) as one, Memory.open(url, busy_timeout_s=60) as two:
        for number in range(ROUNDS):
            box = f"box{number}"
            one.mailbox.send(box, "x")
            got = race(lambda b=box: one.mailbox.lease(b, "A"), lambda b=box: two.mailbox.lease(b, "B"))
            assert sorted(map(len, got)) == [0, 1]
            [held] = got[0] or got[1]
            acks = race(lambda h=held: one.mailbox.ack(h), lambda h=held: two.mailbox.ack(h))
            assert sorted(isinstance(ack, LeaseLost) for ack in acks) == [False, True]


def test_the_same_rows_acknowledged_in_opposite_orders(url):
    with Memory.open(url, busy_timeout_s=60) as one, Memory.open(url, busy_timeout_s=60) as two:
        for _ in range(10):
            one.mailbox.send_many("a", ["x"] * 200)
            held = one.mailbox.lease("a", "w", limit=200)
            race(lambda h=held: one.mailbox.ack_many(h), lambda h=held: two.mailbox.ack_many(h[::-1]))
            counts = one.mailbox.count("a")
            assert (counts["leased"], counts["pending"]) == (0, 0)
        assert counts["delivered"] == 2000


def test_racing_for_numbers_and_keys(url):
    with Memory.open(url, busy_timeout_s=60) as one, Memory.open(url, busy_timeout_s=60) as two:
        for number in range(ROUNDS // 3):
            made = race(*[lambda s=store: s.tasks.launch_next("o").task_id for store in (one, two) * 3])
            assert sorted(made, key=lambda name: int(name[5:])) == [f"task-{6 * number + n}" for n in range(1, 7)]
            sent = race(
                *[lambda s=store, n=number: s.mailbox.send("a", "x", key=f"k{n}").id for store in (one, two) * 3]
            )
            assert len(set(sent)) == 1


# --- every item once ---


def test_eight_processes_drain_a_mailbox(store, url):
    sent = store.mailbox.send_many("a", ["x"] * 3000)
    body = """
idle = 0
while idle < 20:
    rows = memory.mailbox.claim("a", limit=7)
    print(*[row.id for row in rows])
    idle = 0 if rows else idle + 1
"""
    claimed = [int(found) for ids in in_processes(8, body, url) for found in ids]
    assert len(claimed) == 3000
    assert sorted(claimed) == sent


def test_leasing_processes_that_are_killed_lose_nothing(store, url, tmp_path):
    sent = store.mailbox.send_many("a", ["x"] * 300)
    body = """
import os, pathlib, signal, time
marks = pathlib.Path(MARKS)
held = []
while not number and len(list(marks.iterdir())) < 3:  # each that is to be killed has had work
    time.sleep(0.01)
while True:
    held = memory.mailbox.lease("a", f"w{number}", limit=5, lease_s=0.3, ack=held)
    if not held:
        break
    print(*[row.id for row in held], flush=True)
    if number:
        (marks / str(number)).touch()
    if number and held[0].attempts == 1 and held[0].id % 3 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    marks = tmp_path / "marks"
    marks.mkdir()
    script = body.replace("MARKS", repr(str(marks)))
    with pytest.raises(AssertionError, match="-9"):
        in_processes(4, script, url)
    deadline = time.monotonic() + 60
    while (counts := store.mailbox.count("a"))["delivered"] + counts["dead"] < 300 and time.monotonic() < deadline:
        held = store.mailbox.lease("a", "rest", limit=50)
        store.mailbox.ack_many(held)
        store.mailbox.wait("a", timeout_s=0.5)
    assert counts == {"pending": 0, "waiting": 0, "leased": 0, "delivered": len(sent), "dead": 0}


def test_threads_share_one_store(store):
    sent = store.mailbox.send_many("a", ["x"] * 1000)

    def drain():
        found = []
        while rows := store.mailbox.claim("a", limit=3):
            found += [row.id for row in rows]
        return found

    claimed = [one for found in race(*[drain] * 8) for one in found]
    assert sorted(claimed) == sent


def test_a_killed_consumer_has_had_its_attempt(store, url):
    sent = store.mailbox.send("a", "x")
    body = "import os; memory.mailbox.lease('a', 'child', lease_s=0.3); os.kill(os.getpid(), 9)"
    with pytest.raises(AssertionError, match="-9"):
        in_processes(1, body, url)
    early = store.mailbox.lease("a", "parent")
    assert [one.attempts for one in early] in ([], [2])  # [2]: this machine took 0.3 s for it
    if not early:
        assert store.mailbox.wait("a", timeout_s=10) is True
        [late] = store.mailbox.lease("a", "parent")
        assert (late.id, late.attempts) == (sent.id, 2)


# --- plans, histories, snapshots (PostgreSQL) ---


def test_an_acknowledgement_that_meets_a_renewal_counts(pg_clean):
    """The one round trip looks for the row where it was; it has moved meanwhile, and the lease still holds."""
    with Memory.open(pg_clean) as memory, psycopg.connect(pg_clean) as other, ThreadPoolExecutor(1) as pool:
        first, second = memory.mailbox.send("a", "x"), memory.mailbox.send("a", "y")
        held = memory.mailbox.lease("a", "w")
        other.execute("update task_deliveries set due_at = due_at + interval '1 minute' where id = %s", [first.id])
        leasing = pool.submit(lambda: memory.mailbox.lease("a", "w", ack=held))
        with psycopg.connect(pg_clean, autocommit=True) as looker:
            while not looker.execute("select 1 from pg_stat_activity where wait_event_type = 'Lock'").fetchall():
                time.sleep(0.001)
        other.commit()
        assert [row.id for row in leasing.result()] == [second.id]
        assert memory.mailbox.get(first.id).status == "delivered"


def test_what_others_hold_is_passed_over_until_they_let_go(pg_clean):
    with Memory.open(pg_clean) as memory, psycopg.connect(pg_clean) as other:
        sent = memory.mailbox.send_many("a", [str(n) for n in range(8)])
        assert [row.id for row in memory.mailbox.claim("a", limit=1)] == sent[:1]
        other.execute("select 1 from task_deliveries where id = any(%s) for update", [sent[1:4]])
        assert [row.id for row in memory.mailbox.claim("a", limit=2)] == sent[4:6]  # from the mark
        other.rollback()
        assert [row.id for row in memory.mailbox.claim("a", limit=9)] == [*sent[1:4], *sent[6:]]  # and from the start


def test_leases_of_several_tokens_are_acknowledged_together(url):
    with Memory.open(url) as memory:
        memory.mailbox.send_many("a", ["1", "2", "3"])
        lost = memory.mailbox.lease("a", "w")
        let_time_pass(memory, 100)
        held = memory.mailbox.lease("a", "w", limit=3)
        assert sorted(one.lease_token for one in held) == [1, 1, 2]
        after = memory.mailbox.send("a", "4")
        assert [one.id for one in memory.mailbox.lease("a", "w", ack=held)] == [after.id]
        assert memory.mailbox.count("a") == {"pending": 0, "waiting": 0, "leased": 1, "delivered": 3, "dead": 0}
        with pytest.raises(LeaseLost):
            memory.mailbox.lease("a", "w", ack=[*lost, *held])


def test_a_limit_holds_whatever_the_planner_thinks(pg_clean):
    with Memory.open(pg_clean) as memory:
        memory.mailbox.send_many("a", ["x"] * 2000)
    for off in (["hashagg"], ["hashagg", "hashjoin", "mergejoin", "sort", "material"], ["indexscan", "bitmapscan"]):
        options = "%20".join(f"-c%20enable_{name}%3Doff" for name in off)
        with Memory.open(f"{pg_clean}&options={options}") as memory:
            before = memory.mailbox.count("a")["pending"]
            assert len(memory.mailbox.claim("a", limit=1)) == 1
            assert len(memory.mailbox.lease("a", "w", limit=1)) == 1
            assert memory.mailbox.count("a")["pending"] == before - 2


@pytest.fixture(scope="module")
def long_history(pg_shared):
    """A mailbox with 200,000 delivered items, and one with 50,000 low ones before a high one."""
    url = pg_shared.clean()
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "insert into task_deliveries (session_id, task_id, priority, content, status, created_at, delivered_at)"
            " select 'a', '', 'low', 'x', 'delivered', '2026', '2026' from generate_series(1, 200000)"
        )
        other.execute(
            "insert into task_deliveries (session_id, task_id, priority, content, status, created_at)"
            " select 'b', '', case when n = 50001 then 'high' else 'low' end, 'x', 'pending', '2026'"
            " from generate_series(1, 50001) n"
        )
        other.execute("vacuum analyze task_deliveries")
    return url


PINNED = [
    "mailbox_claim",
    "mailbox_claim_urgent",
    "mailbox_lease",
    "mailbox_lease_urgent",
    "mailbox_ack_lease",
    "mailbox_sweep",
    "mailbox_pending",
    "mailbox_dead",
]


@pytest.mark.parametrize("name", PINNED)
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_plans_after_200_000_finished_items(long_history, name, mode):
    """Each statement uses the index its header names, and reads no table from end to end."""
    from crowmem.repositories import mailbox

    bound = next(one for one in vars(mailbox).values() if getattr(one, "name", "") == name)
    with psycopg.connect(long_history) as other:
        given = _prepare_pinned(other, bound, "high" if "urgent" in name else None).replace("'b'", "'a'")
        other.execute(f"set plan_cache_mode = {mode}")
        other.execute(f"execute pinned ({given})".encode())  # the first one also reads the catalog
        cursor = other.execute(f"explain (analyze, buffers, timing off) execute pinned ({given})".encode())
        plan = "\n".join(line for (line,) in cursor)
        other.rollback()
    assert f" {bound.plans['postgres']} " in plan, plan
    assert "Seq Scan" not in plan, plan
    buffers = int(plan.split("shared hit=")[1].split()[0].rstrip("\n"))
    assert buffers <= 40, plan


@pytest.mark.parametrize("name", [name for name in PINNED if name not in ("mailbox_pending", "mailbox_dead")])
def test_the_general_plan_is_no_dearer_than_one_made_for_a_call(long_history, name):
    """Otherwise every call is planned anew, which costs more than the call: with 300,000 rows waiting it once was."""
    from crowmem.repositories import mailbox

    bound = next(one for one in vars(mailbox).values() if getattr(one, "name", "") == name)
    costs = {}
    with psycopg.connect(long_history) as other:
        given = _prepare_pinned(other, bound, "high" if "urgent" in name else None)
        for mode in ("force_generic_plan", "force_custom_plan"):
            other.execute(f"set plan_cache_mode = {mode}")
            [[first], *_] = other.execute(f"explain execute pinned ({given})".encode()).fetchall()
            costs[mode] = float(first.split("..")[1].split()[0])
    assert costs["force_generic_plan"] == pytest.approx(costs["force_custom_plan"], rel=0.001)


def _prepare_pinned(other, bound, priority):
    """Prepare a statement as `pinned`; what to execute it with."""
    values = {
        "address": "b",
        "mark": 0,
        "priority": priority,
        "limit": 1,
        "worker": "w",
        "lease_us": 1000,
        "ids": [1],
        "token": 1,
        "max_attempts": 5,
    }
    types = {
        "address": "text", "mark": "bigint", "priority": "text", "limit": "bigint", "worker": "text",
        "lease_us": "bigint", "ids": "bigint[]", "token": "bigint", "max_attempts": "integer",
    }  # fmt: skip
    declared = ", ".join(types[param] for param in bound.params)
    text = bound.texts["postgres"].replace("main.", "public.")
    other.execute(f"prepare pinned ({declared}) as {text}".encode())
    return ", ".join(psycopg.sql.Literal(values[param]).as_string(other) for param in bound.params)


def test_the_high_one_behind_50_000_low_ones(long_history):
    with Memory.open(long_history) as memory:
        assert memory.mailbox.claim("none", priority="high", limit=1) == []
        with memory.transaction() as tx:
            assert [row.priority for row in tx.mailbox.claim("b", priority="high", limit=1)] == ["high"]
            assert tx.mailbox.claim("b", priority="high", limit=1) == []


@pytest.mark.parametrize("name", [name for name in PINNED if name not in ("mailbox_pending", "mailbox_dead")])
def test_a_plan_made_while_the_table_is_empty_serves_when_it_is_long(pg_clean, name):
    """A connection keeps its plans until the table is analysed: one that reads it whole took 26 ms a claim by then."""
    from crowmem.drivers.postgres_settings import Settings
    from crowmem.repositories import mailbox

    bound = next(one for one in vars(mailbox).values() if getattr(one, "name", "") == name)
    with psycopg.connect(**Settings(pg_clean, "store").arguments) as other:
        given = _prepare_pinned(other, bound, "high" if "urgent" in name else None)
        other.execute("set plan_cache_mode = force_generic_plan")
        plan = "\n".join(line for (line,) in other.execute(f"explain execute pinned ({given})".encode()))
    assert "Seq Scan" not in plan, plan


def test_the_high_one_behind_50_000_low_ones_on_sqlite(tmp_path):
    with Memory.open(tmp_path / "crow.db") as memory:
        memory.mailbox.send_many("b", ["x"] * 50_000)
        high = memory.mailbox.send("b", "y", priority="high")
        file = memory._driver.file
        steps = file.writer.execute("explain query plan " + _sqlite_text("mailbox_claim_urgent"), None).fetchall()
        assert any("mailbox_ready_priority" in row[3] for row in steps), steps
        assert [row.id for row in memory.mailbox.claim("b", priority="high", limit=1)] == [high.id]


def _sqlite_text(name):
    from crowmem.repositories import mailbox

    text = next(one for one in vars(mailbox).values() if getattr(one, "name", "") == name).texts["sqlite"]
    for param in ("address", "priority", "limit", "mark"):
        text = text.replace(f":{param}", "'1'")
    return text


# --- locks of others (SQLite) ---


def test_a_claim_outlasts_another_writers_lock(tmp_path):
    import apsw

    with Memory.open(tmp_path / "crow.db", busy_timeout_s=60) as memory:
        sent = memory.mailbox.send("a", "x")
        other = apsw.Connection(str(tmp_path / "crow.db"))
        other.execute("begin immediate")
        claiming = ThreadPoolExecutor(1)
        found = claiming.submit(memory.mailbox.claim, "a", limit=1)
        while not memory._driver.file.turn.held and memory._driver.file.turn._owner is None:
            time.sleep(0.001)
        time.sleep(0.3)  # the claim is in SQLite's own wait now, far past its first naps
        assert not found.done()
        other.execute("commit")
        assert [row.id for row in found.result()] == [sent.id]
        claiming.shutdown()
        other.close()


@pytest.mark.slow
def test_a_claim_outlasts_a_lock_of_six_seconds(tmp_path):
    import apsw

    with Memory.open(tmp_path / "crow.db", busy_timeout_s=10) as memory:
        sent = memory.mailbox.send("a", "x")
        other = apsw.Connection(str(tmp_path / "crow.db"))
        other.execute("begin immediate")
        began = time.monotonic()
        ending = threading.Timer(6, lambda: other.execute("commit"))
        ending.start()
        assert [row.id for row in memory.mailbox.claim("a", limit=1)] == [sent.id]
        assert time.monotonic() - began > 5.9
        ending.join()
        other.close()


def test_a_lock_that_lasts_is_busy_after_the_timeout(tmp_path):
    import apsw

    with Memory.open(tmp_path / "crow.db", busy_timeout_s=0.2) as memory:
        sent = memory.mailbox.send("a", "x")
        other = apsw.Connection(str(tmp_path / "crow.db"))
        other.execute("begin immediate")
        with pytest.raises(Busy):
            memory.mailbox.claim("a")
        other.execute("rollback")
        other.close()
        assert [row.id for row in memory.mailbox.claim("a")] == [sent.id]


def test_a_process_that_keeps_its_transaction_makes_others_busy_and_its_death_frees_them(tmp_path):
    url = str(tmp_path / "crow.db")
    script = (
        "import sys; from crowmem import Memory\nm = Memory.open(sys.argv[1])\n"
        "with m.transaction() as tx:\n    tx.mailbox.send('a', 'x'); print('in', flush=True); sys.stdin.readline()"
    )
    with Memory.open(url, busy_timeout_s=0.3) as memory:
        sent = memory.mailbox.send("a", "mine")
        holder = subprocess.Popen(
            [sys.executable, "-c", script, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert holder.stdout.readline() == "in\n"
        with pytest.raises(Busy, match="writers"):
            memory.mailbox.claim("a")
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
        assert [row.id for row in memory.mailbox.claim("a")] == [sent.id]


def test_the_file_of_turns_is_private_and_goes_with_the_last_user(tmp_path):
    turn = tmp_path / "crow.db-turn"
    with Memory.open(tmp_path / "crow.db") as one:
        one.mailbox.send("a", "x")
        assert turn.stat().st_mode & 0o777 == 0o600
        assert turn.stat().st_size == 0
        with Memory.open(tmp_path / "crow.db") as two:
            two.mailbox.claim("a")
        one.mailbox.send("a", "y")
        assert turn.exists()
        turn.unlink()  # somebody tidies up
        one.mailbox.send("a", "z")
    assert not turn.exists()


def test_a_folder_that_takes_no_file_of_turns_is_written_to_all_the_same(tmp_path):
    (tmp_path / "crow.db-turn").mkdir()
    with Memory.open(tmp_path / "crow.db") as memory:
        memory.mailbox.send("a", "x")
        assert len(memory.mailbox.claim("a")) == 1


def test_a_forked_child_has_a_turn_of_its_own(tmp_path):
    with Memory.open(tmp_path / "crow.db", busy_timeout_s=30) as memory:
        memory.mailbox.send("a", "x")
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:  # it waits for its parent's transaction like any other process
            code = 1
            try:
                os.read(ready, 1)
                code = 0 if memory.mailbox.send("b", "z").id else 2
            finally:
                os._exit(code)
        with memory.transaction() as tx:
            tx.mailbox.send("a", "y")
            os.write(go, b"!")
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
        _, status = os.waitpid(child, 0)
        os.close(ready)
        os.close(go)
        assert os.waitstatus_to_exitcode(status) == 0
        assert memory.mailbox.count("a")["pending"] == 2
        assert memory.mailbox.count("b")["pending"] == 1


def test_another_programs_lock_leaves_the_rows_alone(url, store):
    """What another program deletes while it is leased is lost to its holder, and nobody else's."""

    class Other:
        dialect = "sqlite" if url.endswith(".db") else "postgres"

    Other.url = url
    sent = store.mailbox.send_many("a", ["1", "2"])
    held = store.mailbox.lease("a", "w", limit=2)
    execute(Other, f"delete from task_deliveries where id = {sent[0]}")
    with pytest.raises(LeaseLost):
        store.mailbox.ack(held[0])
    store.mailbox.ack(held[1])

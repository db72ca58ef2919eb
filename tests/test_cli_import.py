"""``crowmem import`` on both databases: what it reports, how it ends, and its bar on a terminal."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from data import EXAMPLES
from doors import Door
from test_cli_terminal import COLOUR, HOSTILE, OBEYED, on_terminal

from crowmem.ingest import import_paths

SAMPLES = EXAMPLES / "transcripts"
CLAUDE = "5b0f7f1e-3c52-4a53-9d7e-6a1f0c2d9e11"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def door(request: pytest.FixtureRequest, tmp_path: Path, capsys: Any) -> Door:
    """The command line on a store that is not there yet, or is empty."""
    url = str(tmp_path / "new" / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")
    return Door(url, capsys)


def numbers(text: str) -> dict[str, int]:
    """The table of an import by label."""
    rows = [line.rsplit(maxsplit=1) for line in text.splitlines()]
    return {
        row[0]: int(row[1].replace(",", "")) for row in rows if len(row) == 2 and row[1].replace(",", "").isdecimal()
    }


def test_the_samples_come_in_once(door: Door) -> None:
    ran = door("import", str(SAMPLES))
    assert (ran.code, ran.err) == (0, "")
    assert numbers(ran.out) == {
        "files read": 3,
        "files unchanged": 0,
        "files of no known format": 0,
        "sessions": 3,
        "messages added": 26,
        "messages already there": 0,
        "parts skipped": 0,
    }
    again = numbers(door("import", str(SAMPLES)).out)
    assert (again["messages added"], again["files unchanged"]) == (0, 3)
    assert len(door("search", "--all", "nightly import", "--json").records) >= 2
    assert door("status", "--json").records[0]["search"]["lagging"] == 0


def test_what_a_killed_run_left_is_indexed_by_the_next(door: Door) -> None:
    """A server that only reads, such as `crowmem mcp`, cannot do it."""
    with door.open() as memory:
        import_paths(memory, [SAMPLES])
        assert memory.search.lagging() == 26
    assert numbers(door("import", str(SAMPLES)).out)["messages added"] == 0
    with door.open() as memory:
        assert memory.search.lagging() == 0


def test_as_json_the_report_is_one_object(door: Door) -> None:
    [report] = door("import", "--json", str(SAMPLES)).records
    assert report["messages_added"] == 26
    assert report["skips"] == []
    assert not [name for name in report if name.startswith("_")]
    assert sum(report["formats"].values()) == 3


def test_a_broken_line_is_told_with_its_place_and_costs_that_line_only(door: Door, tmp_path: Path) -> None:
    lines = (SAMPLES / "claude-code.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("".join([*lines[:5], '{"type": "user", "mess\n', *lines[5:]]), encoding="utf-8")
    ran = door("import", str(broken))
    assert ran.code == 0
    assert f"skipped: {broken}:6: " in ran.out
    assert numbers(ran.out)["parts skipped"] == 1
    assert numbers(ran.out)["messages added"] == 12
    [skip] = door("import", "--json", str(broken)).records[0]["skips"] or [None]
    assert skip is None or skip["line"] == 6


@pytest.mark.parametrize("kind", ["missing", "unknown"])
def test_what_was_named_and_cannot_be_read_is_a_failure(door: Door, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "notes.txt"
    if kind == "unknown":
        path.write_text("no history at all\n", encoding="utf-8")
    ran = door("import", str(SAMPLES), str(path))
    assert ran.code == 1
    assert str(path) in ran.out
    assert numbers(ran.out)["messages added"] == 26
    assert len(door("sessions", "--json").records) == 3


def test_a_folder_may_hold_other_files(door: Door, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES, tmp_path / "mixed")
    (tmp_path / "mixed" / "notes.txt").write_text("no history at all\n", encoding="utf-8")
    ran = door("import", str(tmp_path / "mixed"))
    assert ran.code == 0
    assert f"no known format: {tmp_path / 'mixed' / 'notes.txt'}" in ran.out


def test_without_a_path_it_is_wrong_usage(door: Door) -> None:
    ran = door("import")
    assert (ran.code, ran.out) == (2, "")
    assert "--discover" in ran.err


def test_discover_finds_the_users_own_histories(door: Door, tmp_path: Path) -> None:
    ran = door("import", "--discover")
    assert (ran.code, ran.out) == (0, "")
    assert "no histories were found" in ran.err
    project = Path.home() / ".claude" / "projects" / "-home-dev-rookery"
    project.mkdir(parents=True)
    shutil.copy(SAMPLES / "claude-code.jsonl", project / f"{CLAUDE}.jsonl")
    ran = door("import", "--discover")
    assert ran.code == 0
    assert str(Path.home() / ".claude" / "projects") in ran.err
    assert numbers(ran.out)["messages added"] == 12


def test_show_says_how_to_go_on_in_the_sessions_own_tool(door: Door) -> None:
    door("import", str(SAMPLES))
    assert door("show", CLAUDE[:8]).lines[-1] == f"to go on with it: cd /home/dev/rookery && claude --resume {CLAUDE}"
    assert "codex resume 019cd0aa" in door("show", "019c").lines[-1]
    assert "to go on" not in door("show", "chat").out


def test_only_what_pi_wrote_is_resumed_with_pi(door: Door, tmp_path: Path) -> None:
    """OpenClaw writes pi's lines; pi does not know its sessions."""
    for name, folder in (("crow-of-pi", ".pi/agent/sessions/--tmp--"), ("crow-of-claw", ".openclaw/agents/a/sessions")):
        lines = [
            {"type": "session", "id": name, "version": 3, "timestamp": "2026-02-24T10:00:00Z", "cwd": "/nest"},
            {"type": "message", "id": "m1", "message": {"role": "user", "content": "Build a nest."}},
        ]
        file = tmp_path / folder / f"{name}.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        assert door("import", str(file)).code == 0
    assert door("show", "crow-of-pi").lines[-1] == "to go on with it: cd /nest && pi --session crow-of-pi"
    shown = door("show", "crow-of-claw")
    assert "Build a nest." in shown.out
    assert "to go on with it" not in shown.out


def test_a_file_with_a_hostile_name_is_told_harmlessly(door: Door, tmp_path: Path) -> None:
    name = HOSTILE.replace("\0", "").replace("/", "").encode(errors="ignore").decode()[:60]
    (tmp_path / name).write_text("nothing\n", encoding="utf-8")
    ran = door("import", str(tmp_path / name))
    assert ran.code == 1
    assert not OBEYED.search(ran.out + ran.err)
    ran = door("import", str(tmp_path / name), "--json")
    assert not OBEYED.search(ran.out)
    assert json.loads(ran.out)["unrecognised"] == [str(tmp_path / name)]


def test_a_terminal_sees_one_bar_that_goes_away(tmp_path: Path) -> None:
    code, got = on_terminal(["--db", str(tmp_path / "crow.db"), "import", str(SAMPLES)], {})
    assert code == 0
    drawn, wiped, table = got.rpartition("\r\x1b[K")
    assert "importing [" in drawn
    assert wiped
    assert COLOUR.sub("", table).startswith("IMPORTED")
    assert all(len(piece) < 60 for piece in drawn.split("\r\x1b[K"))
    assert "\n" not in drawn
    code, dumb = on_terminal(["--db", str(tmp_path / "other.db"), "import", str(SAMPLES)], {"TERM": "dumb"})
    assert code == 0
    assert "\x1b" not in dumb
    assert "importing" not in dumb


def test_watch_imports_what_changes_until_it_is_interrupted(tmp_path: Path) -> None:
    lines = (SAMPLES / "claude-code.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    history = tmp_path / "histories" / "session.jsonl"
    history.parent.mkdir()
    history.write_text("".join(lines[:9]), encoding="utf-8")
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "crowmem",
            "--db",
            str(tmp_path / "crow.db"),
            "--json",
            "import",
            "--watch",
            str(history.parent),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=EXAMPLES.parent,
    )
    assert child.stdout is not None
    first = json.loads(child.stdout.readline())
    with history.open("a", encoding="utf-8") as file:
        file.writelines(lines[9:])
    second = json.loads(child.stdout.readline())
    child.send_signal(signal.SIGINT)
    rest, told = child.communicate()
    assert first["messages_added"] > 0
    assert first["messages_added"] + second["messages_added"] == 12
    assert (child.returncode, rest, told) == (130, "", "watching; Ctrl-C ends it\n")

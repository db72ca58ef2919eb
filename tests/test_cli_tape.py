"""``crowmem tape`` and ``crowmem leases`` on both databases."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from doors import Door
from test_tapes import handoff, messages

from crowmem import Memory

DIALECTS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=DIALECTS)
def door(request: pytest.FixtureRequest, tmp_path: Path, capsys: Any) -> Door:
    url = str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")
    Memory.open(url).close()
    return Door(url, capsys)


def test_tapes_are_listed(door: Door) -> None:
    ran = door("tape", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no tapes\n")
    with door.open() as memory:
        memory.tapes.append("b", [*messages(0), handoff(), *messages(2)])
        memory.tapes.append("a\x1b[31m", messages(0))
    ran = door("tape", "list")
    assert ran.code == 0
    assert ran.lines[0].split() == ["TAPE", "ENTRIES", "WINDOW", "FROM", "MADE"]
    assert ran.lines[2].split()[:3] == ["b", "3", "1"]
    assert "\x1b" not in ran.out
    [one] = door("--json", "tape", "list", "--limit", "1", "--offset", "1").records
    assert (one["tape_id"], one["length"], one["window_start"]) == ("b", 3, 1)


def test_the_start_of_an_id_is_enough(door: Door, tmp_path: Path) -> None:
    with door.open() as memory:
        for name in ("nest-1", "nest-2", "nest", "roof-17"):
            memory.tapes.append(name, messages(0))
        memory.tapes.truncate("nest", 0)
    assert len(door("tape", "show", "roof").lines) == 1
    assert door("tape", "show", "nest").lines == []  # empty, and there
    assert door("--json", "tape", "export", "ro", str(tmp_path / "x")).records[0]["tape"] == "roof-17"
    several = door("tape", "show", "nest-")
    assert several.code == 2
    assert "'nest-' begins the names of 2 tapes (nest-1, nest-2)" in several.err
    for name in ("nowhere", ""):
        assert door("tape", "export", name, str(tmp_path / "y")).code == 1


def test_entries_are_shown(door: Door) -> None:
    call = {"kind": "tool_call", "payload": {"name": "Bash", "arguments": {"command": "ls"}}}
    odd = {"kind": "event", "payload": {"n": 1}}
    with door.open() as memory:
        memory.tapes.append("t", [*messages(0), handoff("go on\nhere"), call, odd, {"free": "form"}])
    ran = door("tape", "show", "t")
    assert [line.split(None, 2) for line in ran.lines] == [
        ["0", "message", "user: 0"],
        ["1", "anchor", "go on here"],
        ["2", "tool_call", 'Bash {"command": "ls"}'],
        ["3", "event", '{"n": 1}'],
        ["4", '{"free":', '"form"}'],
    ]
    assert [line[0] for line in door("tape", "show", "t", "--last", "2").lines] == ["3", "4"]
    assert [line[0] for line in door("tape", "show", "t", "--window", "--stop", "3").lines] == ["1", "2"]
    assert [line[0] for line in door("tape", "show", "t", "--start", "1", "--stop", "2").lines] == ["1"]
    assert door("--json", "tape", "show", "t", "--start", "3").records == [odd, {"free": "form"}]
    missing = door("tape", "show", "none")
    assert missing.code == 1
    assert "there is no tape 'none'" in missing.err


def test_files_go_in_and_out(door: Door, tmp_path: Path) -> None:
    source, copy = tmp_path / "mine.jsonl", tmp_path / "copy.jsonl"
    source.write_bytes(b'{"a":  1}\n{"b": "\\u00e9"}\n')
    ran = door("tape", "import", str(source))
    assert (ran.code, ran.out) == (0, "mine: 2 entries\n")
    again = door("tape", "import", str(source))
    assert again.code == 1
    assert "tape 'mine' has entries already: give --append" in again.err
    assert door("tape", "import", "--append", "--as", "mine", str(source)).code == 0
    assert door("--json", "tape", "export", "mine", str(copy)).records == [
        {"tape": "mine", "path": str(copy), "entries": 4}
    ]
    assert copy.read_bytes() == source.read_bytes() * 2
    assert door("tape", "export", "mine", str(copy)).out == f"{copy}: 4 entries\n"
    for options in ([], ["--json"]):  # on stdout there is the tape and nothing else
        ran = door(*options, "tape", "export", "mine", "-")
        assert (ran.code, ran.out.encode(), ran.err) == (0, copy.read_bytes(), "")
    assert not Path("-").exists()
    assert door("tape", "export", "none", "-").code == 1
    source.write_bytes(b"{}\nnot json\n")
    broken = door("tape", "import", "--as", "new", str(source))
    assert broken.code == 2
    assert "mine.jsonl:2" in broken.err
    assert door("tape", "import", "--as", "x", str(source), str(source)).code == 2
    assert door("tape", "export", "none", str(copy)).code == 1


def test_an_import_makes_the_store(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "t.jsonl"
    source.write_bytes(b"{}\n")
    new = Door(str(tmp_path / "new.db"), capsys)
    assert new("tape", "list").code == 1
    assert new("tape", "import", str(source)).code == 0
    assert [one["tape_id"] for one in new("--json", "tape", "list").records] == ["t"]


def test_leases_are_listed(door: Door) -> None:
    ran = door("leases")
    assert (ran.code, ran.out, ran.err) == (0, "", "no leases\n")
    with door.open() as memory:
        lease = memory.leases.acquire("n", "worker\x07")
        assert lease is not None
        with memory.sessions.lock("s"):
            ran = door("leases")
            assert ran.lines[0].split() == ["NAME", "OWNER", "TOKEN", "UNTIL"]
            assert any(line.startswith("n ") for line in ran.lines)
            assert ("session s (locked)" in ran.out) == (not door.url.startswith("postgresql"))
            assert "\x07" not in ran.out
        [one] = door("--json", "leases").records
        assert (one["name"], one["token"]) == ("n", lease.token)


def test_a_tape_is_imported_from_stdin(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'{"kind": "message", "n": 1.0}\n{"kind":"event"}\n'

    def feed() -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))

    feed()
    ran = door("tape", "import", "-")
    assert (ran.code, "give --as TAPE" in ran.err) == (2, True)
    ran = door("--json", "tape", "import", "-", "--as", "t")
    assert ran.records == [{"tape": "t", "path": "-", "entries": 2}]
    feed()
    assert door("tape", "import", "-", "--as", "t").code == 1
    with door.open() as memory:
        assert memory.tapes.load_json("t") == '[{"kind": "message", "n": 1.0},{"kind":"event"}]'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}\nnonsense\n")))
    ran = door("tape", "import", "-", "--as", "u")
    assert (ran.code, "stdin:2 is not JSON" in ran.err) == (2, True)

"""What reaches a terminal: never what stored text would make it do, in columns that line up, through a pager."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doors import Door, fill
from hypothesis import given
from hypothesis import strategies as st

from crowmem import Memory
from crowmem.terminal import Paint, clean, clean_json, colour_wanted, cut, one_line, pad, table, width

# Everything a terminal may obey, or that reorders what is read: all but line breaks and printable text.
OBEYED = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \x9b5m \x9d0;x\x9c \x1bc \x1b]8;;http://x\x1b\\link \x1b[?1049h \x1b"
    " bell\x07 back\x08\x08 cr\rover \x7f \x85 \u202eevil\u2066 \u2028 tab\tend \x00nul \x1bP1$q\x1b\\ \x1b_apc\x1b\\ \x1b[6n"
)
WORD = HOSTILE.replace("\0", "")  # plain columns hold no NUL


# --- text --------------------------------------------------------------------


@given(st.text())
def test_cleaned_text_holds_nothing_a_terminal_obeys(text: str) -> None:
    assert not OBEYED.search(clean(text))
    assert "\n" not in one_line(text)


@given(st.text(alphabet="\x1b\x9b\x9d[]()0;?mHJ\\\x07a \n\x18", max_size=40))
def test_cleaning_leaves_no_half_of_a_sequence_to_join_another(text: str) -> None:
    once = clean(text)
    assert not OBEYED.search(once)
    assert clean(once) == once


def test_cleaning_keeps_what_was_written() -> None:
    assert clean("naïve 悬空 🤖 \U000e0041\n  two\u200dthree") == "naïve 悬空 🤖 \U000e0041\n  two\u200dthree"
    assert clean("a\r\nb\rc\u2028d") == "a\nb\nc\nd"
    assert clean("\x1b[1;31mred\x1b[0m \x1b]0;title\x07text") == "red text"
    assert clean("nul\0 bell\x07 delete\x7f \x9b5m \ud83d") == "nul␀ bell␇ delete␡  \ufffd"
    assert clean("\x1b]0;not closed, and it goes on") == "0;not closed, and it goes on"
    assert one_line(" a\n\t b\r\nc ") == "a b c"


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner, max_size=3)))
def test_cleaned_json_is_the_same_value_and_safe(value: Any) -> None:
    text = clean_json(json.dumps(value, ensure_ascii=False))
    assert not OBEYED.search(text)
    assert json.loads(text) == value


def test_cleaning_megabytes_of_escapes_takes_no_longer_than_their_length() -> None:
    for unit in ("\x1b]", "\x1b[", "\x1b[1;", "\x9d", "\x1bP\x1b"):
        assert not OBEYED.search(clean(unit * 300_000))


@pytest.mark.parametrize(
    ("text", "columns"), [("crow", 4), ("悬空", 4), ("e\u0301", 1), ("\uff43", 2), ("\u200b", 0), ("", 0), ("한글x", 5)]
)
def test_width_counts_columns(text: str, columns: int) -> None:
    assert width(text) == columns
    assert width(pad(text, 9)) == width(pad(text, 9, right=True)) == 9


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf"))), st.integers(1, 20))
def test_a_cut_text_fits(text: str, columns: int) -> None:
    found = cut(text, columns)
    assert width(found) <= max(columns, width(text) if width(text) <= columns else columns)
    assert found == text or (found.endswith("…") and text.startswith(found[:-1]))


def test_a_table_lines_up_and_fits_the_terminal() -> None:
    rows = [["crow", 7, "a title that is much too long for it"], ["悬空引用", 12345, "短" * 30]]
    lines = table(["NAME", "N", "TITLE"], rows, paint=Paint(False), columns=40)
    assert all(width(line) <= 40 for line in lines)
    assert [line[: len("NAME")] for line in lines[:2]] == ["NAME", "crow"]
    assert {width(line.partition(title)[0]) for line, title in zip(lines, ("TITLE", "a title", "短"), strict=True)} == {
        18
    }
    whole = table(["NAME", "N", "TITLE"], rows, paint=Paint(False), columns=None)
    assert rows[0][2] in whole[1]
    assert table(["A"], [], paint=Paint(False), columns=4) == ["A"]


@pytest.mark.parametrize(
    ("env", "terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_for_those_who_can_see_it(
    monkeypatch: Any, env: dict[str, str], terminal: bool, wanted: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    assert colour_wanted(stream) is wanted


# --- every command over a hostile store --------------------------------------


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def hostile(request: pytest.FixtureRequest, tmp_path: Path, capsys: Any) -> Door:
    """A store in which every text tries something."""
    url = str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")
    with Memory.open(url) as memory:
        memory.agents.create(f"{WORD}-1-1", WORD, model_identifier=WORD, cwd=WORD, status=WORD)
        call = {"id": HOSTILE, "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
        for message in (
            {"role": "user", "content": f"{HOSTILE} needle \ud83d"},
            {"role": "assistant", "content": [{"type": "text", "text": HOSTILE}], "reasoning_content": HOSTILE},
            {"role": "assistant", "content": None, "tool_calls": [call, {"x": HOSTILE}, HOSTILE, 7]},
            {
                "role": "tool",
                "name": HOSTILE,
                "content": [{"type": "text", "text": HOSTILE}, {"type": HOSTILE}],
                "is_error": True,
            },
            {
                "role": WORD,
                "name": HOSTILE,
                "content": [HOSTILE, {"type": "image_url", "image_url": {"url": HOSTILE}}, 3],
            },
            {"role": "user", "content": {"type": HOSTILE, HOSTILE: [HOSTILE]}},
            {"role": "user", "content": [{"type": "tool_result", "content": HOSTILE}, {"type": "tool_use", "name": 3}]},
        ):
            memory.messages.add(f"{WORD}-1-1", message)
        memory.sessions.set_title(WORD, WORD)
    return Door(url, capsys)


COMMANDS = [
    ["sessions"],
    ["agents"],
    ["agents", WORD],
    ["show", WORD],
    *(["show", WORD, "--mode", mode] for mode in ("conversation", "with_thinking", "with_tools", "full")),
    ["search", "needle"],
    ["search", "needle", "-C", "5"],
    ["search", HOSTILE],
    ["show", WORD + "\x1b[5mnot there"],
    ["status"],
    ["check"],
    ["delete", WORD, "--yes"],
    ["delete", WORD, "--session\x1b[5m"],
    ["\x1b[5mno such command"],
]


@pytest.mark.parametrize("argv", COMMANDS, ids=lambda argv: argv[0].strip("\x1b"))
def test_nothing_stored_reaches_the_terminal_raw(hostile: Door, argv: list[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    ran = hostile(*argv)
    assert not OBEYED.search(COLOUR.sub("", ran.out))
    assert not OBEYED.search(COLOUR.sub("", ran.err))
    assert not COLOUR.search(ran.err)
    assert "this should not happen" not in ran.err
    assert ran.out or ran.err


@pytest.mark.parametrize("argv", COMMANDS[:11], ids=lambda argv: argv[0])
def test_json_is_safe_as_well_and_keeps_every_character(hostile: Door, argv: list[str]) -> None:
    ran = hostile("--json", *argv)
    assert ran.code == 0
    assert not OBEYED.search(ran.out)
    with hostile.open() as memory:
        if argv[0] == "show":
            assert [one["data"] for one in ran.records] == memory.messages.load(f"{WORD}-1-1")
        elif argv[0] == "sessions":
            assert ran.records[0]["title"] == WORD


# --- a real terminal ---------------------------------------------------------


def on_terminal(argv: list[str], env: dict[str, str], typed: bytes = b"") -> tuple[int, str]:
    """Run a command with a terminal for all three streams; its exit code and what the terminal got."""
    mine, its = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "crowmem.cli", *argv],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "60", "TZ": "UTC", **env},
        cwd=Path(__file__).resolve().parents[1],
    )
    os.close(its)
    if typed:
        os.write(mine, typed)
    got = b""
    while True:
        try:
            piece = os.read(mine, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        got += piece
    os.close(mine)
    return child.wait(), got.decode().replace("\r\n", "\n")


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "crow.db")
    fill(url)
    return url


def test_a_terminal_gets_colours_and_lines_that_fit(url: str) -> None:
    with Memory.open(url) as memory:
        memory.sessions.set_title("alpha", "a title that goes on and on and on and on")
    code, got = on_terminal(["--db", url, "sessions"], {})
    assert code == 0
    assert "\x1b[2mSESSION" in got
    assert all(width(COLOUR.sub("", line)) <= 60 for line in got.splitlines())
    assert "…" in got
    code, got = on_terminal(["--db", url, "search", "twigs"], {})
    assert "The \x1b[1;31mtwigs\x1b[0m are loose." in got
    assert "«" not in got
    assert "\x1b" not in on_terminal(["--db", url, "search", "twigs"], {"NO_COLOR": "1"})[1]


def test_a_terminal_pages(url: str, tmp_path: Path) -> None:
    pager = tmp_path / "my pager"
    pager.write_text('#!/bin/sh\necho "PAGER $1 $LESS"\ncat\n', encoding="utf-8")
    pager.chmod(0o755)
    env = {"PAGER": f"'{pager}' one"}
    env_less = os.environ.get("LESS", "FRX")
    code, got = on_terminal(["--db", url, "show", "alpha"], env)
    assert code == 0
    assert got.startswith(f"PAGER one {env_less}\n")
    assert "\x1b[1;36muser" in got
    assert "PAGER" not in on_terminal(["--db", url, "show", "alpha", "--no-pager"], env)[1]
    assert "PAGER" not in on_terminal(["--db", url, "show", "alpha", "--json"], env)[1]


@pytest.mark.parametrize("pager", ["", "cat", "/nonexistent/pager", "'open quote"])
def test_without_a_usable_pager_the_text_is_printed(url: str, pager: str) -> None:
    code, got = on_terminal(["--db", url, "show", "alpha"], {"PAGER": pager})
    assert code == 0
    assert "The twigs are loose." in got


def test_leaving_the_pager_early_is_no_error(url: str) -> None:
    with Memory.open(url) as memory:
        memory.messages.add_many("alpha-1-1", [{"role": "user", "content": "x" * 10_000} for _ in range(100)])
    code, got = on_terminal(["--db", url, "show", "alpha"], {"PAGER": "head -n 1"})
    assert (code, COLOUR.sub("", got)) == (0, "Why does the nest leak?\n")


def test_delete_asks_the_person_at_the_terminal(url: str) -> None:
    code, got = on_terminal(["--db", url, "delete", "alpha"], {}, typed=b"no\n")
    assert code == 1
    assert "nothing was deleted" in got
    code, got = on_terminal(["--db", url, "delete", "alpha"], {}, typed=b"y\n")
    assert code == 0
    assert "deleted session alpha: 8 messages" in got

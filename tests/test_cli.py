"""The command line over a store, on both databases: what it prints, and how it ends."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import apsw
import psycopg
import pytest
from data import shared_data
from doors import TALK, Door, fill, stamp
from pictures import png

from crowmem import Memory, __version__
from crowmem.cli import command_parser, main
from crowmem.commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

DIALECTS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    time.tzset()


@pytest.fixture(params=DIALECTS)
def empty(request: pytest.FixtureRequest, tmp_path: Path, capsys: Any) -> Door:
    """The command line on an empty store of either kind."""
    url = str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")
    Memory.open(url).close()
    return Door(url, capsys)


@pytest.fixture
def door(empty: Door) -> Door:
    """The command line on a small store of either kind."""
    fill(empty.url)
    return empty


@pytest.fixture
def local(tmp_path: Path, capsys: Any) -> Door:
    """The command line with a path where no store is."""
    return Door(str(tmp_path / "none.db"), capsys)


# --- the frame ---------------------------------------------------------------


def test_version_in_every_spelling(local: Door) -> None:
    for argv in (["--version"], ["version"]):
        assert local.bare(*argv).out == f"crowmem {__version__}\n"
    [found] = local.bare("version", "--json").records
    assert found["crowmem"] == __version__
    assert "apsw" in found


def test_help_names_every_command(local: Door) -> None:
    ran = local.bare("--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert f"\n  {command.name} " in ran.out
        assert command.summary in ran.out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(local: Door, command: Any) -> None:
    ran = local.bare(command.name, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"usage: crowmem {command.name}" in ran.out
    assert command.summary in " ".join(ran.out.split())


def test_every_module_with_a_command_is_registered() -> None:
    folder = Path(__file__).resolve().parents[1] / "crowmem" / "commands"
    have = {path.stem for path in folder.glob("*.py") if "\ndef run(" in path.read_text(encoding="utf-8")}
    assert have == {command.file or command.name for command in COMMANDS}


def test_no_command_is_wrong_usage_and_shows_the_help(local: Door) -> None:
    ran = local.bare()
    assert (ran.code, ran.out) == (2, "")
    assert "commands:" in ran.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sesions"], "did you mean 'sessions'?"),
        (["xyzzy"], "there is no command 'xyzzy'"),
        (["--nonsense", "sessions"], "unrecognized arguments: --nonsense (words that begin with - stand after --)"),
        (["--js", "sessions"], "unrecognized arguments: --js"),  # no abbreviations: scripts outlive them
        (["sessions", "--limit", "0"], "'0' is no whole number from 1 to 100,000"),
        (["sessions", "--limit", "many"], "'many' is no whole number"),
        (["sessions", "--limit", "9" * 5000], "is no whole number"),
        (["search"], "QUERY"),
        (["search", "x", "--after", "yesterday"], "'yesterday' is no time"),
        (["search", "x", "--after", "99999999999d"], "is no time"),
        (["show"], "SESSION"),
        (["show", "x", "--mode", "loud"], "invalid choice"),
        (["--db"], "expected one argument"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(local: Door, argv: list[str], said: str) -> None:
    ran = local.bare(*argv)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_options_of_every_command_stand_before_or_after_it(door: Door) -> None:
    before = door.bare("--json", "--db", door.url, "sessions")
    after = door.bare("sessions", "--json", "-c", door.url)
    assert before == after
    assert len(before.records) == 2


def test_the_store_is_found_in_environment_and_configuration(door: Door, tmp_path: Path, monkeypatch: Any) -> None:
    wanted = door("sessions")
    config = tmp_path / "config.yaml"
    config.write_text(f"db_uri: {json.dumps(door.url)}\n", encoding="utf-8")
    assert door.bare("--config", str(config), "sessions") == wanted
    monkeypatch.setenv("CROW_DB_URI", door.url)
    assert door.bare("sessions") == wanted


# --- how it fails ------------------------------------------------------------


@pytest.mark.parametrize("argv", [["sessions"], ["search", "x"], ["show", "x"], ["status"], ["check"], ["agents"]])
def test_a_command_that_reads_makes_no_store_where_a_name_is_misspelt(local: Door, argv: list[str]) -> None:
    ran = local(*argv)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"crowmem {argv[0]}: there is no store at {local.url}: check --db")
    assert not Path(local.url).exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["check"],
        ["check", "--deep"],
        ["sessions"],
        ["delete", "x", "--yes"],
        ["gc"],
        ["reindex"],
        ["mail", "count", "a"],
        ["mail", "claim", "a"],
        ["mail", "revive", "1"],
        ["tape", "list"],
        ["purge", "--mail", "7d", "--yes"],
    ],
    ids=" ".join,
)
def test_a_command_makes_no_tables_in_an_empty_database(pg_fresh: str, capsys: Any, argv: list[str]) -> None:
    ran = Door(pg_fresh, capsys)(*argv)
    assert (ran.code, ran.out) == (1, "")
    assert "there is no store there yet" in ran.err
    with psycopg.connect(pg_fresh) as connection:
        made = connection.execute("select relname from pg_class where relnamespace = 'public'::regnamespace").fetchall()
    assert made == []


def test_an_unreachable_server_ends_with_3_and_hides_the_password(local: Door, tmp_path: Path) -> None:
    ran = local.bare("--db", f"postgresql://crow:verysecret@localhost/crow?host={tmp_path}", "sessions")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert "verysecret" not in ran.err
    debugged = local.bare("--debug", "--db", f"postgresql://crow:verysecret@localhost/crow?host={tmp_path}", "sessions")
    assert debugged.code == 3
    assert "Traceback" in debugged.err
    assert "verysecret" not in debugged.err


@pytest.mark.parametrize("place", ["argument", "environment", "configuration"])
@pytest.mark.parametrize("how", ["very%40secret", "verysecret"])
def test_no_text_of_a_library_gives_a_password_away(
    local: Door, tmp_path: Path, monkeypatch: Any, place: str, how: str
) -> None:
    def talkative(*_args: Any, **_named: Any) -> None:
        raise RuntimeError(f"cannot log in with {how} or {unquote(how)}")

    monkeypatch.setattr(Memory, "open", talkative)
    url = f"postgresql://crow:{how}@localhost/crow"
    argv = ["sessions"]
    if place == "argument":
        argv = ["--db", url, *argv]
    elif place == "environment":
        monkeypatch.setenv("CROW_DB_URI", url)
    else:
        config = tmp_path / "config.yaml"
        config.write_text(f"db_uri: {url}\n", encoding="utf-8")
        argv = ["--config", str(config), *argv]
    for options in ([], ["--debug"]):
        ran = local.bare(*options, *argv)
        assert ran.code == 1
        assert "cannot log in with *** or ***" in ran.err
        assert "secret" not in ran.err


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("mysql://crow:verysecret@host/x", 2),
        ("postgresql://crow:very%secret@host:port/x", 2),
        ("host=x password=verysecret", 2),
    ],
)
def test_a_wrong_address_is_one_line_without_its_password(local: Door, url: str, code: int) -> None:
    ran = local.bare("--db", url, "sessions")
    assert ran.code == code
    assert ran.err.count("\n") == 1
    assert "secret" not in ran.err
    assert "Traceback" not in ran.err


def test_a_file_of_another_kind_is_refused_untouched(local: Door) -> None:
    path = Path(local.url)
    path.write_text("not a database, but a poem " * 100, encoding="utf-8")
    before = path.read_bytes()
    ran = local("sessions")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert path.read_bytes() == before


def test_a_missing_configuration_is_named(local: Door) -> None:
    ran = local.bare("--config", "/nonexistent/config.yaml", "sessions")
    assert ran.code == 2
    assert "/nonexistent/config.yaml does not exist" in ran.err


def test_what_should_not_happen_is_one_line_too(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any, **_named: Any) -> None:
        raise RuntimeError("first\nsecond \x1b[31mred")

    monkeypatch.setattr(Memory, "status", broken)
    ran = door("status")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "crowmem status: this should not happen: RuntimeError: first second red (--debug shows where)\n"
    assert "Traceback" in door("status", "--debug").err


def test_an_interrupt_ends_with_130_in_silence(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Memory, "status", interrupted)
    assert door("status").code == 130


# --- rights -----------------------------------------------------------------


READING = [["sessions"], ["agents"], ["show", "alpha"], ["search", "twigs"], ["status"], ["check"]]


def refusing(url: str) -> str:
    """The address of the same store, where every write is refused."""
    if "://" not in url:
        return f"file:{url}?mode=ro"
    return f"{url}{'&' if '?' in url else '?'}options=-c%20default_transaction_read_only%3Don"


@pytest.mark.parametrize("argv", READING, ids=lambda argv: argv[0])
def test_reading_needs_no_right_to_write(door: Door, argv: list[str]) -> None:
    wanted = door(*argv)
    ran = door.bare("--db", refusing(door.url), *argv)
    assert ran.code == 0, ran.err
    assert argv == ["status"] or ran == wanted
    assert door.bare("--db", refusing(door.url), "delete", "alpha", "--yes").code == 1


def test_search_finds_what_another_program_wrote_or_says_that_it_cannot(door: Door) -> None:
    insert = (
        "insert into messages (agent_id, fork_idx, created_at, data, role) values ('beta-1-1', 1, '{}', '{}', 'user')"
    )
    text = insert.format(stamp(40), json.dumps({"role": "user", "content": "zymurgy"}))
    if "://" in door.url:
        with psycopg.connect(door.url) as server:
            server.execute(text)
    else:
        apsw.Connection(door.url).execute(text)
    ran = door.bare("--db", refusing(door.url), "search", "zymurgy")
    assert (ran.code, ran.out) == (0, "")
    assert "not all messages that other programs wrote are indexed yet" in ran.err
    assert len(door("search", "zymurgy", "--json").records) == 1
    ran = door.bare("--db", refusing(door.url), "search", "zymurgy")
    assert "«zymurgy»" in ran.out
    assert ran.err == ""


def test_a_reading_command_leaves_the_file_as_it_is(tmp_path: Path, capsys: Any) -> None:
    door = Door(str(tmp_path / "crow.db"), capsys)
    fill(door.url)
    before = Path(door.url).read_bytes()
    for argv in READING:
        assert door(*argv).code == 0
    assert Path(door.url).read_bytes() == before


def test_a_database_of_crow_cli_opens_in_place(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "crow.db"
    path.write_bytes(shared_data("transcripts", "derived", "crow-db", "crow.db").read_bytes())
    door = Door(str(path), capsys)
    assert len(door("sessions", "--json").records) == 5
    fork = door("show", "slate-finch-of-kind-logs-1-2", "--json")
    with door.open() as memory:
        assert [one["data"] for one in fork.records] == memory.messages.load("slate-finch-of-kind-logs-1-2")
    assert len(door("search", "--all", "business class flights", "--json").records) >= 1


# --- sessions and agents -----------------------------------------------------


def test_sessions_are_listed_newest_first(door: Door) -> None:
    ran = door("sessions")
    assert ran.code == 0
    assert [line.split() for line in ran.lines[:3]] == [
        ["SESSION", "LAST", "ACTIVITY", "MESSAGES", "AGENTS", "MODEL", "TITLE"],
        ["beta", "2026-01-02", "03:31", "1", "1", "m-1"],
        ["alpha", "2026-01-02", "03:22", "7", "2", "m-2", "Why", "does", "the", "nest", "leak?"],
    ]
    assert ran.err == ""


def test_sessions_as_json_are_the_records(door: Door) -> None:
    beta, alpha = door("sessions", "--json").records
    assert beta["session_id"] == "beta"
    assert alpha == {
        "session_id": "alpha",
        "last_activity": "2026-01-02T03:22:00+00:00",
        "message_count": 7,
        "agent_count": 2,
        "model_identifier": "m-2",
        "cwd": "/nest",
        "title": "Why does the nest leak?",
    }


def test_sessions_are_filtered_and_paged(door: Door) -> None:
    def names(*argv: str) -> list[str]:
        return [one["session_id"] for one in door("sessions", "--json", *argv).records]

    assert names("--limit", "1") == ["beta"]
    assert names("-n", "1", "--offset", "1") == ["alpha"]
    assert names("--cwd", "/nest") == names("--project", "/nest/../nest/") == ["alpha"]
    assert [one["message_count"] for one in door("sessions", "--json", "--forks").records] == [1, 8]
    with door.open() as memory:
        memory.agents.create("windows-1-1", "windows", cwd="D:\\nest\\src")
    assert names("--cwd", "D:\\nest\\src") == ["windows"]


def test_an_empty_store_says_so_on_stderr(empty: Door) -> None:
    for argv, said in (
        (["sessions"], "no sessions\n"),
        (["agents"], "no agents\n"),
        (["search", "x"], "nothing found\n"),
    ):
        ran = empty(*argv)
        assert (ran.code, ran.out, ran.err) == (0, "", said)
        assert empty(*argv, "--json").out == ""


def test_agents_are_listed_with_their_forks(door: Door) -> None:
    assert [line.split()[0] for line in door("agents").lines] == [
        "AGENT",
        "alpha-1-1",
        "alpha-1-2",
        "alpha-2-1",
        "beta-1-1",
    ]
    for name in ("beta", "be"):
        assert [agent["agent_id"] for agent in door("agents", name, "--json").records] == ["beta-1-1"]
    assert len(door("agents", "alpha-1-2", "--json").records) == 3


# --- show --------------------------------------------------------------------


def test_show_reads_like_a_conversation(door: Door) -> None:
    ran = door("show", "alpha", "--agent", "1")
    assert ran.lines == [
        "Why does the nest leak?",
        "alpha · 2026-01-02 03:22 · 8 messages · m-2 · /nest",
        "",
        "user 2026-01-02 03:01",
        "Why does the nest leak?",
        "",
        "assistant 2026-01-02 03:02",
        '  → Bash {"command": "make test"}',
        "  ← line 1",
        *(f"    line {number}" for number in range(2, 9)),
        "    … 12 more lines",
        "The twigs are loose.",
    ]


def test_show_has_four_modes(door: Door) -> None:
    def text(mode: str) -> str:
        return door("show", "alpha", "--agent", "1", "--mode", mode).out

    assert "→" not in text("conversation")
    assert "Perhaps" not in text("conversation")
    assert "  | Perhaps the twigs." in text("with_thinking")
    assert "→" not in text("with_thinking")
    assert "Perhaps" not in text("with_tools")
    full = text("full")
    for wanted in ("careful crow", "| Perhaps the twigs.", "→ Bash", "line 20", "developer reminder", "inserted by"):
        assert wanted in full
    assert "more lines" not in full


def test_show_takes_every_agent_of_the_trunk_in_turn(door: Door) -> None:
    ran = door("show", "alpha")
    assert [line for line in ran.lines if "──" in line] == ["── agent alpha-1-1 ──", "── agent alpha-2-1 ──"]
    assert "After compaction." in ran.out
    assert "A fork answers." not in ran.out


def test_show_a_fork_begins_with_what_it_shares(door: Door) -> None:
    messages = door("show", "alpha-1-2", "--json").records
    with door.open() as memory:
        assert [message["data"] for message in messages] == memory.messages.load("alpha-1-2")
    assert [message["agent_id"] for message in messages] == ["alpha-1-1", "alpha-1-1", "alpha-1-2"]
    assert [message["data"] for message in door("show", "alpha-1-2", "-n", "2", "--json").records] == [
        TALK[1],
        {"role": "assistant", "content": "A fork answers."},
    ]


def test_show_a_fork_of_a_fork(door: Door) -> None:
    with door.open() as memory:
        inner = memory.agents.fork("alpha-1-2").agent_id
        memory.messages.add("alpha-1-2", {"role": "user", "content": "not seen by the inner one"})
        memory.messages.add(inner, {"role": "user", "content": "inner"})
        wanted = memory.messages.load(inner)
    assert [message["data"] for message in door("show", inner, "--json").records] == wanted
    assert len(wanted) == 4


def test_show_as_json_gives_whole_messages(door: Door) -> None:
    messages = door("show", "alpha", "--json").records
    assert [message["data"] for message in messages[: len(TALK)]] == TALK
    assert set(messages[0]) >= {"id", "agent_id", "role", "created_at", "data", "prompt_tokens"}


def test_the_last_messages_are_the_last_of_those_that_the_mode_shows(empty: Door) -> None:
    answers = [{"role": "tool", "tool_call_id": "c", "content": "seen"}] * 60
    with empty.open() as memory:
        memory.agents.create("s-1-1", "s")
        ids = memory.messages.add_many("s-1-1", [{"role": "user", "content": f"said {n}"} for n in range(3)])
        memory.messages.add_many("s-1-1", answers)
        memory.agents.fork("s-1-1", at=ids[1])
        memory.messages.add_many("s-1-2", [*answers, {"role": "assistant", "content": "said by a fork"}, *answers])

    def said(*argv: str) -> list[str]:
        lines = empty("show", *argv, "--mode", "conversation").lines[1:]  # after the title
        return [line for line in lines if line.startswith("said")]

    assert said("s", "-n", "2") == ["said 1", "said 2"]
    assert said("s", "-n", "9") == ["said 0", "said 1", "said 2"]
    assert said("s-1-2", "-n", "1") == ["said by a fork"]
    assert said("s-1-2", "-n", "2") == ["said 1", "said by a fork"]
    assert len(empty("show", "s-1-2", "-n", "2", "--mode", "conversation", "--json").records) == 2


def test_show_more_than_a_page(empty: Door) -> None:
    with empty.open() as memory:
        memory.agents.create("long-1-1", "long")
        memory.messages.add_many("long-1-1", [{"role": "user", "content": f"number {n}"} for n in range(1203)])
    assert [one["data"]["content"] for one in empty("show", "long", "--json").records] == [
        f"number {n}" for n in range(1203)
    ]
    assert [one["data"]["content"] for one in empty("show", "long", "--json", "-n", "2").records] == [
        "number 1201",
        "number 1202",
    ]


def test_the_start_of_a_session_name_is_enough_when_it_is_the_only_one(door: Door) -> None:
    assert door("show", "al") == door("show", "alpha")
    with door.open() as memory:
        memory.agents.create("alps-1-1", "alps")
    ran = door("show", "al")
    assert ran.code == 2
    assert "'al' begins the names of 2 sessions" in ran.err
    ran = door("show", "x")
    assert (ran.code, ran.err) == (1, "crowmem show: there is no session 'x'; `crowmem sessions` lists them\n")
    ran = door("show", "alpha", "--agent", "7")
    assert ran.code == 1
    assert "has no agent '7'" in ran.err


# --- search ------------------------------------------------------------------


def test_search_shows_session_time_role_and_the_match(door: Door) -> None:
    ran = door("search", "twigs")
    assert ran.code == 0
    assert "alpha  2026-01-02 03:04  assistant" in ran.lines
    assert "    The «twigs» are loose." in ran.lines


def test_search_takes_any_word_unless_told_otherwise(door: Door) -> None:
    def found(*argv: str) -> int:
        return len(door("search", "--json", *argv).records)

    assert found("twigs", "crow") > found("twigs")
    assert found("--all", "twigs", "crow") == found("--match", "all", "twigs crow") == 0
    assert found("another crow", "--all") == 1


def test_search_filters(door: Door) -> None:
    def ids(*argv: str) -> list[str]:
        return sorted(
            {hit["agent_id"] for hit in door("search", "crow twigs answers compaction", "--json", *argv).records}
        )

    assert ids() == ["alpha-1-1", "alpha-1-2", "alpha-2-1", "beta-1-1"]
    assert ids("--session", "be") == ["beta-1-1"]
    assert ids("--agent", "2") == ["alpha-2-1"]
    assert ids("--no-forks") == ["alpha-1-1", "alpha-2-1", "beta-1-1"]
    assert ids("--role", "user", "--role", "system") == ["alpha-1-1", "alpha-2-1", "beta-1-1"]
    assert ids("--after", "2026-01-02T03:25") == ["beta-1-1"]
    assert ids("--before", "2026-01-02T03:10", "--role", "assistant") == ["alpha-1-1"]
    assert ids("--after", "1h") == []
    assert ids("--cwd", "/tree") == ids("--project", "/tree") == ["beta-1-1"]
    assert ids("--model", "m-2") == ["alpha-2-1"]
    assert ids("--exclude", "twigs", "--session", "alpha") == ["alpha-1-1", "alpha-1-2", "alpha-2-1"]
    assert [hit["role"] for hit in door("search", "twigs", "make", "--tool", "Bash", "--json").records] == ["assistant"]


def test_search_leaves_out_what_programs_put_in(door: Door) -> None:
    with door.open() as memory:
        memory.messages.add("beta-1-1", {"role": "developer", "content": "zymurgy"}, injected=True)
    assert door("search", "zymurgy").out == ""
    assert len(door("search", "zymurgy", "--injected", "--json").records) == 1


def test_search_as_json_gives_hits_and_their_surroundings(door: Door) -> None:
    [hit] = door("search", "loose", "--json").records
    assert hit["session_id"] == "alpha"
    assert hit["data"] == TALK[4]
    assert hit["score"] < 0
    [hit] = door("search", "loose", "--json", "-C", "2").records
    assert [message["data"] for message in hit["context_before"]] == TALK[2:4]
    assert [message["data"] for message in hit["context_after"]] == TALK[5:6]


def test_search_shows_what_stands_around_a_hit(door: Door) -> None:
    assert door("search", "loose", "-C", "1").lines == [
        "    tool: Bash line 1 line 2 line 3 line 4 line 5 line 6 line 7 line 8 line 9 line 10 line 11 line 12 line 13 "
        "line 14 line 15 line 16 line 17 line 18 line 19 line 20",
        "alpha  2026-01-02 03:04  assistant",
        "    The twigs are «loose».",
        "    developer: inserted by the tool",
    ]


@pytest.mark.parametrize(
    "query",
    ["", " ", "'", '"', "*", "foo AND", "(x", "-foo", "--", "C++", "\U0001f600", "rm -rf main", "%", "\\", "a" * 9000],
)
def test_no_query_fails(door: Door, query: str) -> None:
    ran = door("search", "--", query)
    assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err


# --- the rest ----------------------------------------------------------------


def test_delete_asks_and_without_anybody_there_refuses(door: Door, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    ran = door("delete", "alpha")
    assert (ran.code, ran.out) == (2, "")
    assert "Delete session alpha with 8 messages?" in ran.err
    assert "--yes" in ran.err
    assert len(door("sessions", "--json").records) == 2


@pytest.mark.parametrize("answer", ["y\n", "YES\n", "n\n", "\n", ""])
def test_delete_does_what_the_answer_says(door: Door, monkeypatch: Any, answer: str) -> None:
    stdin = io.StringIO(answer)
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", stdin)
    ran = door("delete", "alpha")
    gone = answer.strip().lower() in ("y", "yes")
    assert ran.code == (0 if gone else 1)
    assert ran.err.startswith("Delete session alpha with 8 messages? [y/N] ")
    assert ("nothing was deleted" in ran.err) is not gone
    assert len(door("sessions", "--json").records) == (1 if gone else 2)


def test_delete_says_what_went(door: Door) -> None:
    ran = door("delete", "alpha", "--yes")
    assert ran.code == 0
    assert ran.out == "deleted session alpha: 8 messages, 3 agents\n"
    ran = door("delete", "alpha", "--yes")
    assert (ran.code, ran.out) == (1, "")
    [told] = door("delete", "beta", "-y", "--json").records
    assert (told["session_id"], told["counts"]["messages"]) == ("beta", 1)


def test_delete_takes_no_abbreviation(door: Door) -> None:
    assert door("delete", "alph", "--yes").code == 1
    assert len(door("sessions", "--json").records) == 2


def test_status_tells_how_the_store_is(door: Door) -> None:
    [status] = door("status", "--json").records
    assert status["rows"]["messages"] == 9
    lines = dict(line.split("  ", 1) for line in door("status").lines)
    assert lines["dialect"].strip() == status["dialect"]
    assert lines["rows.messages"].strip() == "9"


def test_check_finds_a_sound_store_sound(door: Door) -> None:
    for argv in (["check"], ["check", "--deep"]):
        ran = door(*argv)
        assert (ran.code, ran.out, ran.err) == (0, "", "no problems found\n")


def test_check_ends_with_1_when_there_are_problems(door: Door, monkeypatch: Any) -> None:
    monkeypatch.setattr(Memory, "check", lambda _self, deep: ["a twig\nis \x1b[5mloose"] * (2 if deep else 1))
    ran = door("check", "--deep")
    assert (ran.code, ran.lines) == (1, ["a twig is loose"] * 2)
    assert door("check", "--json").records == [{"problem": "a twig\nis \x1b[5mloose"}]


def test_reindex_counts_messages(door: Door) -> None:
    assert door("reindex").out == "9 messages indexed\n"
    assert door("reindex", "--json").records == [{"messages": 9}]
    assert len(door("search", "twigs", "--json").records) >= 1


def test_backup_is_a_store_of_its_own(tmp_path: Path, capsys: Any) -> None:
    door = Door(str(tmp_path / "crow.db"), capsys)
    fill(door.url)
    target = tmp_path / "copy.db"
    ran = door("backup", str(target))
    assert (ran.code, ran.out) == (0, f"{target}: {target.stat().st_size:,} bytes\n")
    assert target.stat().st_mode & 0o777 == 0o600
    assert Door(str(target), capsys)("sessions") == door("sessions")
    ran = door("backup", str(target))
    assert (ran.code, ran.out) == (1, "")
    assert "exists already" in ran.err
    ran = door("backup", str(tmp_path / "missing" / "copy.db"))
    assert (ran.code, ran.out) == (1, "")
    assert "missing/copy.db: there is no such file or folder" in ran.err
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("schema", ["public", "it's mine"])
def test_roles_are_sql_for_people_and_json_for_programs(local: Door, schema: str) -> None:
    sql = local.bare("roles", "--schema", schema).out
    assert "create role crowmem_reader" in sql
    assert local.bare("roles", "--schema", schema, "--json").records == [{"schema": schema, "sql": sql[:-1]}]


def test_one_thing_is_not_told_in_the_plural(empty: Door) -> None:
    with empty.open() as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add("s-1-1", {"role": "user", "content": "hello"})
    assert empty("reindex").out == "1 message indexed\n"
    assert "1 message" in empty("show", "s").lines[0]
    assert empty("delete", "s", "--yes").out == "deleted session s: 1 message, 1 agent\n"


def test_gc_removes_what_no_message_names(door: Door, tmp_path: Path) -> None:
    with Memory.open(door.url, images=tmp_path / "images") as memory:
        memory.images.put(png())
    config = tmp_path / "config.yaml"
    config.write_text(f"images_dir: {json.dumps(str(tmp_path / 'images'))}\n", encoding="utf-8")
    assert door("gc", "--config", str(config)).out == "0 images removed\n"
    assert door("gc", "--config", str(config), "--grace", "0", "--json").records == [{"removed": 1}]
    assert door("images", "sync", "--config", str(config)).out == "0 images uploaded\n"
    assert door("images", "--json", "sync", "--config", str(config)).records == [{"uploaded": 0}]
    assert door("images", "sync", "--json", "--config", str(config)).records == [{"uploaded": 0}]
    for text in ("soon", "-1", "nan", "1y", "", "9e99"):
        assert door("gc", f"--grace={text}").code == 2


@pytest.mark.postgres
def test_backup_of_a_server_names_the_way(pg_clean: str, tmp_path: Path, capsys: Any) -> None:
    ran = Door(pg_clean, capsys)("backup", str(tmp_path / "copy.db"))
    assert ran.code == 1
    assert "pg_dump" in ran.err


def test_init_writes_a_configuration_that_opens(tmp_path: Path, capsys: Any) -> None:
    door, folder = Door("", capsys), tmp_path / "new"
    ran = door.bare("init", str(folder), "--yes")
    assert ran.code == 0
    assert {path.name for path in folder.iterdir()} == {"config.yaml", ".env", "compose.yaml"}
    assert "password" not in ran.out.lower()
    [again] = door.bare("init", str(folder), "--yes", "--json").records
    assert again["config.yaml"] == "kept"
    assert "there is no store at" in door.bare("--config", str(folder), "sessions").err


def test_init_without_anybody_there_asks_for_yes(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    ran = Door("", capsys).bare("init", str(tmp_path / "new"))
    assert ran.code == 2
    assert "--yes" in ran.err
    assert not (tmp_path / "new").exists()


def test_every_option_of_every_command_has_help() -> None:
    def helpless(parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            if not action.help:
                yield f"{parser.prog} {' '.join(action.option_strings) or action.dest}"
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield from helpless(inner)

    assert not [found for command in COMMANDS for found in helpless(command_parser(command))]


def test_a_folder_that_may_not_be_entered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path, **_: Any) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)  # root may enter any
    assert main(["--db", str(tmp_path / "crow.db"), "sessions"]) == 1
    assert f"{tmp_path / 'crow.db'}: Permission denied" in capsys.readouterr().err

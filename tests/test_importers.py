"""Every format over the real transcripts: recognised by content, counted as the READMEs count, resumable anywhere."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from data import ABOUT, SHARED, shared_data

from crowmem.importers import FORMATS, Mark, Skip, Source, Turn, discover, recognise

TOP = SHARED / "transcripts"
ROW = re.compile(r"^\| (\S+) \| (\d+|-) \| \d+ \|")

# what the READMEs count that is no message, or a part of one; docs/importers.md says so too
NOT_MESSAGES = {
    "derived/agentkit-tape/17bfb0ec-7bf6-5ce2-abf0-883c67869b77.jsonl": 2,  # an event and an anchor
    "derived/agentkit-tape/275dabbe-1b46-5642-9ea7-d20efc680942.jsonl": 2,
    "derived/reproduced/glued-records.jsonl": 4,  # bookkeeping (5), and the whole record in the glued line (-1)
    "derived/reproduced/truncated-tail.jsonl": 4,  # bookkeeping
    "other-cli-fixtures/antigravity/cli_small.jsonl": 1,  # a step without content
    "other-cli-fixtures/codex/small.jsonl": 96,  # every record type there is; 22 are response items
    "other-cli-fixtures/copilot/small.jsonl": 20,  # events that are no messages
    "other-cli-fixtures/droid/session_store_large.jsonl": 1,  # the header
    "other-cli-fixtures/gemini/jsonl_v040.jsonl": 2,  # the header and an update
    "other-cli-fixtures/hermes/large.json": 1,  # the session itself
    "other-cli-fixtures/kimi/assistant_tools.jsonl": 75,  # requests, usage, configuration
    "other-cli-fixtures/kimi/subagent_agent-0.jsonl": 13,
    "other-cli-fixtures/openclaw/large.jsonl": 5,  # header, changes of model and level, custom entries
    "other-cli-fixtures/opencode/storage_v2/message/s_stage0_large/msg_0002.json": 1,  # read with its session
    "other-cli-fixtures/opencode/storage_v2/part/m_assistant_large_1/001.json": 1,  # read with its session
    "other-cli-fixtures/pi/small.jsonl": 5,  # header, changes of model and level, compactions
    "other-cli-fixtures/qwen/019f0000-0000-7000-8000-000000000004.jsonl": 4,  # system records
    "other-cli-fixtures/qwen/system_telemetry.jsonl": 6,  # system records
}
SQLITE = {
    "derived/crow-db/crow.db",
    "derived/crow-db/images/83a9b40f64c1edfaa1d34c1174f89710567b877b8565f6f27e4f25f8a891985e.jpg",
}
NAMES = {
    "claude-code": "claude-code",
    "codex-rollout": "codex",
    "openai-chat": "openai-chat",
    "aider": "aider",
    "anthropic-messages": "anthropic-messages",
    "chatgpt-export": "chatgpt-export",
    "cline": "cline",
    "copilot-cli": "copilot-cli",
    "gemini-cli": "gemini-cli",
    "inspect-ai": "inspect-ai",
    "opencode": "opencode",
    "openhands": "openhands",
    "pi": "pi",
    "specstory": "specstory",
    "toolbench": "toolbench",
    "trae-agent": "trae-agent",
}
FIXTURES = {
    "claude": "claude-code",
    "copilot": "copilot-cli",
    "droid": "droid",
    "gemini": "gemini-cli",
    "openclaw": "pi",
    "qwen": "qwen-code",
}


def counts() -> dict[str, int]:
    """The message counts of all READMEs, by path below the transcripts."""
    found = {}
    for readme in sorted(TOP.glob("*/README.md")):
        for line in readme.read_text().splitlines():
            if row := ROW.match(line):
                found[f"{readme.parent.name}/{row[1]}"] = 0 if row[2] == "-" else int(row[2])
    return found


def files() -> list[str]:
    if not TOP.is_dir():
        return []
    return sorted(str(path.relative_to(TOP)) for path in TOP.rglob("*") if path.is_file() and path.name not in ABOUT)


def items(path: Path, source: Source | None = None) -> list[object]:
    found = recognise(path)
    assert found is not None, path
    return list(found.read(source or Source(path)))


def turns(path: Path) -> list[Turn]:
    return [item for item in items(path) if isinstance(item, Turn)]


def latest(found: list[object]) -> dict[tuple[object, ...], Turn]:
    """The turns by session, agent and keys; of one read twice the larger, as a store keeps it."""
    kept: dict[tuple[object, ...], Turn] = {}
    for turn in found:
        if isinstance(turn, Turn):
            key = (turn.session_id, turn.agent, turn.keys)
            if key not in kept or turn.parts > kept[key].parts:
                kept[key] = turn
    return kept


def test_every_transcript_has_a_count() -> None:
    shared_data("transcripts")
    assert set(files()) == set(counts())
    assert len(files()) == 113


@pytest.mark.parametrize("name", [name for name in files() if name not in SQLITE])
def test_transcript_is_counted_as_its_readme_counts(name: str) -> None:
    source = Source(TOP / name)
    found = items(source.path, source)
    assert source.records == counts()[name] - NOT_MESSAGES.get(name, 0)
    assert isinstance(found[-1], Mark)
    for turn in found:
        if isinstance(turn, Turn):
            assert turn.session_id
            assert turn.agent
            assert turn.keys
            assert turn.message["role"]
            assert turn.line >= 1
            assert turn.created_at is None or turn.created_at.tzinfo is not None


@pytest.mark.parametrize("name", [name for name in files() if name not in SQLITE])
def test_transcript_is_recognised_by_its_content(name: str, tmp_path: Path) -> None:
    """Under another name, as a checkpoint tool keeps all formats as ``full.jsonl``."""
    copy = tmp_path / "full.jsonl"
    copy.write_bytes((TOP / name).read_bytes())
    found = recognise(copy)
    assert found is not None
    folder, inner = name.split("/")[:2]
    if folder in NAMES:
        assert found.name == NAMES[folder]
    elif folder == "other-cli-fixtures":
        assert found.name == FIXTURES.get(inner, inner)
    elif folder == "multilingual":
        assert found.name == ("sharegpt" if inner.startswith("zh") else "question-set")


@pytest.mark.parametrize("name", [name for name in files() if name not in SQLITE])
def test_reading_twice_gives_the_same_keys(name: str) -> None:
    assert list(latest(items(TOP / name))) == list(latest(items(TOP / name)))


@pytest.mark.parametrize("name", [name for name in files() if name.endswith(".jsonl") and "opencode" not in name])
def test_a_file_that_grew_gives_what_the_whole_gives(name: str, tmp_path: Path) -> None:
    """Cut after a third and after two thirds of its lines, and read on from each mark."""
    whole = (TOP / name).read_bytes()
    lines = whole.splitlines(keepends=True)
    path = tmp_path / Path(name).name
    path.write_bytes(whole)
    found = recognise(path)
    assert found is not None
    source = Source(path)
    grown: list[object] = []
    for share in (len(lines) // 3, 2 * len(lines) // 3, len(lines)):
        path.write_bytes(b"".join(lines[:share]))
        again = Source(path, source.offset, source.line, dict(source.state))
        grown += list(found.read(again))
        mark = grown[-1]
        assert isinstance(mark, Mark)
        source = Source(path, mark.offset, mark.line, again.state)
    path.write_bytes(whole)
    expected, kept = latest(list(found.read(Source(path)))), latest(grown)
    assert Counter(kept) == Counter(expected)
    for key, turn in expected.items():
        assert kept[key].message == turn.message
        assert kept[key].usage == turn.usage


def test_formats_have_names_of_their_own() -> None:
    assert len({found.name for found in FORMATS}) == len(FORMATS)


def test_discover_finds_the_places_that_exist(tmp_path: Path) -> None:
    for place in (
        ".claude/projects/-a",
        ".codex/sessions/2026",
        ".gemini/tmp/x/chats",
        ".pi/agent/sessions",
        ".factory/sessions",
        "tapes/tapes",
    ):
        (tmp_path / place).mkdir(parents=True)
    found = {(kind.name, path.relative_to(tmp_path).as_posix()) for kind, path in discover(tmp_path, {})}
    assert found == {
        ("claude-code", ".claude/projects"),
        ("codex", ".codex/sessions"),
        ("gemini-cli", ".gemini/tmp/x/chats"),
        ("pi", ".pi/agent/sessions"),
        ("droid", ".factory/sessions"),
    }
    named = {"CLAUDE_CONFIG_DIR": str(tmp_path / "none"), "AGENT_DATA_DIR": str(tmp_path / "tapes")}
    found = {(kind.name, path.relative_to(tmp_path).as_posix()) for kind, path in discover(tmp_path, named)}
    assert ("agentkit-tape", "tapes/tapes") in found
    assert not any(name == "claude-code" for name, _path in found)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\0" * 100,
        b"{}",
        b"[]",
        b"null",
        b"not a transcript\n",
        b"# A markdown file\n\n- with a list\n",
        b'{"name": "package", "version": "1.0.0"}',
        b'{"type": "Feature", "id": 1, "message": "no"}\n' * 3,
        b"[1, 2, 3]",
        b"\xff\xfe\x00\x01" * 50,
        b"PK\x03\x04 not a zip",
        b"SQLite format 3\0" + b"\0" * 100,
        b'{"a":' * 5000,
    ],
)
def test_other_files_are_no_transcripts(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert recognise(path) is None


def test_a_compressed_rollout_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "rollout.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
    with pytest.raises(OSError, match="Zstandard"):
        recognise(path)


def test_skips_name_the_file_and_the_line() -> None:
    path = shared_data("transcripts", "claude-code", "m-claude", "broken-lines-9be1d737.jsonl")
    skips = [item for item in items(path) if isinstance(item, Skip)]
    assert [(skip.path, skip.line) for skip in skips] == [(str(path), 93), (str(path), 107), (str(path), 114)]
    assert all("not JSON" in skip.reason for skip in skips)


DOCS = Path(__file__).resolve().parents[1] / "docs" / "importers.md"


def test_every_format_is_described() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for form in FORMATS:
        assert f"`{form.name}`" in text, form.name


def test_every_difference_to_a_readme_is_described() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name in NOT_MESSAGES:
        described = name if "agentkit-tape" not in name else "derived/agentkit-tape/*.jsonl"
        assert f"| `{described}` |" in text, name

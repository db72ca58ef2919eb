"""JSON lines and documents as they are found: damaged, glued, endless. Each loss is told, and costs nothing else."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowmem.importers import Skip, Source, lines
from crowmem.importers.document import members
from crowmem.importers.lines import CUT, Line, read_lines
from crowmem.importers.source import Head

if TYPE_CHECKING:
    from collections import deque
    from pathlib import Path


def is_record(value: dict[str, Any]) -> bool:
    return "id" in value


def looked_at(path: Path) -> deque[tuple[bytes, dict[str, Any]]]:
    """What recognising a file parsed of it."""
    head = Head(path)
    assert all(isinstance(record, dict) for record in head.records)
    return head.begun


def read(path: Path, content: bytes) -> tuple[list[Any], list[tuple[int, str]], Source]:
    path.write_bytes(content)
    source = Source(path)
    found = list(read_lines(source, is_record))
    again = Source(path, begun=looked_at(path))
    assert (list(read_lines(again, is_record)), again.offset) == (found, source.offset)
    values = [one.value for one in found if isinstance(one, Line)]
    return values, [(one.line, one.reason) for one in found if isinstance(one, Skip)], source


A, B = b'{"id":1,"text":"a"}', b'{"id":2,"text":"b"}'
VALUES = [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]


@pytest.mark.parametrize(
    "content",
    [
        A + b"\n" + B + b"\n",
        A + b"\r\n" + B + b"\r\n",
        A + b"\n\n \t\n" + B,
        b"\xef\xbb\xbf" + A + b"\n" + B + b"\n",
        b"  " + A + b"  \n\t" + B,
        A + B + b"\n",  # two records in one line, both whole
        A + b"  " + B + b"\n",
    ],
)
def test_whole_records_are_read_without_a_word(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "x", content)[:2] == (VALUES, [])


def test_what_was_parsed_to_recognise_a_file_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x"
    file.write_bytes(A + b"\n\nbroken\n" + B + b"\n")
    begun = looked_at(file)
    parsed: list[bytes] = []
    monkeypatch.setattr(lines, "parse", lambda data, _kinds: parsed.append(data))
    source = Source(file, begun=begun)
    assert [one.value for one in read_lines(source, is_record) if isinstance(one, Line)] == VALUES
    assert parsed == [b"\n", b"broken\n"]
    assert not begun


def test_a_file_that_changed_since_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(A + b"\n" + A + b"\n")
    begun = looked_at(file)
    file.write_bytes(B + b"\n" + A + b"\n" + B + b"\n")
    found = list(read_lines(Source(file, begun=begun), is_record))
    assert found == list(read_lines(Source(file), is_record))


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'{"id":3,"text":"cut', "not JSON (Unterminated string starting at at character 16)"),
        (b"// a comment", "a comment, not a JSON record"),
        (b"\0" * 4096, "a block of 4,096 NUL bytes"),
        (b"[1, 2]", "a JSON value that is no object (list)"),
        (b"17", "a JSON value that is no object (int)"),
        (b"<html>", "not JSON (Expecting value at character 1)"),
        (b'{"id":3}garbage', "a JSON object that is no record of this format, with more text after it"),
        (b'{"id":' + b"9" * 5000 + b"}", "not readable (ValueError"),
        (b'{"id":' + b"[" * 100_000, "not readable (RecursionError"),
        (b'{"id":3,"text":"cut{"id":2,"nested":{"x":9}', "not JSON"),
    ],
)
def test_a_broken_line_costs_itself(tmp_path: Path, broken: bytes, reason: str) -> None:
    values, skips, _source = read(tmp_path / "x", A + b"\n" + broken + b"\n" + B + b"\n")
    assert values == VALUES
    assert [line for line, _reason in skips] == [2]
    assert skips[0][1].startswith(reason)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            b'{"id":9,"text":"half a rec' + A + b"\n",
            "a cut record of 26 characters; the whole record in the same line was read",
        ),
        (b'{"id":9,"inner":{"id":8},"t":' + A + B + b"\n", "a cut record of 29 characters; 2 whole ones were read"),
        (b"\0" * 512 + A + b"\n", "a block of 512 NUL bytes; the whole record in the same line was read"),
        (A + b'{"id":9,"text":"half\n', "a cut record of 20 characters; the whole record in the same line was read"),
        (b'{"id":1,"text":"a","bytes":"\xff"}\n', "bytes that are not UTF-8, kept as half characters"),
    ],
)
def test_a_whole_record_in_a_broken_line_is_read(tmp_path: Path, content: bytes, reason: str) -> None:
    values, skips, _source = read(tmp_path / "x", content)
    assert values[0]["text"] == "a"
    assert skips == [(1, reason)]


def test_a_cut_last_line_waits(tmp_path: Path) -> None:
    values, skips, source = read(tmp_path / "x", A + b"\n" + B[:10])
    assert (values, skips) == (VALUES[:1], [(2, CUT)])
    assert (source.offset, source.line) == (len(A) + 1, 1)
    (tmp_path / "x").write_bytes(A + b"\n" + B)
    assert [one.value for one in read_lines(source, is_record) if isinstance(one, Line)] == VALUES[1:]


def test_a_line_over_the_limit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_LIMIT", 3_000_000)
    long = b'{"id":3,"text":"' + b"x" * 4_000_000 + b'"}\n'
    fits = b'{"id":4,"text":"' + b"x" * 2_000_000 + b'"}\n'
    values, skips, _source = read(tmp_path / "x", A + b"\n" + long + fits + B)
    assert [value["id"] for value in values] == [1, 4, 2]
    assert skips == [(2, f"a line of {len(long):,} bytes; at most 3,000,000 are read")]


@pytest.mark.parametrize("beginning", [b'{"a":[' * 400_000, b'{"x' * 20_000_000])
def test_a_broken_line_full_of_beginnings_ends_soon(tmp_path: Path, beginning: bytes) -> None:
    """No record in it can be found by trying each brace to the end of a long line, or by as many short tries."""
    values, skips, _source = read(tmp_path / "x", b'{"id":1,"x":[' + beginning + b"\n" + B + b"\n")
    assert values == VALUES[1:]
    assert len(skips) == 1


def test_no_number_becomes_null(tmp_path: Path) -> None:
    [value] = read(tmp_path / "x", b'{"id":NaN,"a":[-Infinity, 1e400, -1e400, 1.5, 2e3]}\n')[0]
    assert value == {"id": None, "a": [None, None, None, 1.5, 2000.0]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Slow(io.BytesIO):
    """Gives a few bytes at a time, so that every border falls somewhere once."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(7, size if size and size > 0 else 7))


@given(JSON, st.booleans(), st.sampled_from([None, 2]))
@settings(deadline=None)
def test_a_document_in_pieces_is_the_document(value: Any, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    found = list(members(Slow(data)))
    if not isinstance(value, (dict, list)):
        assert found[-1].broken
        return
    assert not any(member.broken for member in found)
    if isinstance(value, list):
        assert [member.value for member in found] == value
        return
    whole: dict[str, Any] = {}
    for member in found:
        assert member.key is not None
        if member.index is None:
            whole[member.key] = member.value
        else:
            whole.setdefault(member.key, []).append(member.value)
    assert whole == value


@pytest.mark.parametrize(
    ("content", "whole", "reason"),
    [
        (b'[{"a": 1}, {"b"', [{"a": 1}], "not JSON"),
        (b'[{"a": 1}, nonsense]', [{"a": 1}], "not JSON"),
        (b'[{"a": 1}]trailing', [{"a": 1}], "more text after the end of the JSON document"),
        (b'[{"a": 1} {"b": 2}]', [{"a": 1}], "'{' where ',' was expected"),
        (b"[1, 2", [1, 2], "cut at the end of the file"),
        (b"", [], "neither a JSON object nor an array"),
        (b"[" + b"[" * 100_000, [], "not readable (RecursionError"),
        (b"[1" + b"0" * 5000 + b"]", [], "not readable (ValueError"),
    ],
)
def test_a_broken_document_gives_what_comes_before(content: bytes, whole: list[Any], reason: str) -> None:
    *found, last = members(io.BytesIO(content))
    assert [member.value for member in found] == whole
    assert last.broken.startswith(reason)


def test_the_lines_of_a_document_are_counted() -> None:
    document = json.dumps([{"n": number} for number in range(3)], indent=1).encode()
    assert [member.line for member in members(Slow(document))] == [2, 5, 8]

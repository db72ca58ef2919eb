"""Real transcripts with their values exchanged for others: whatever a record holds, it costs at most itself."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from test_importers import TOP, files, items

from crowmem.importers import Mark, Skip, Source, Turn, recognise

JUNK: list[Any] = [
    None,
    True,
    7,
    -1.5,
    "",
    "text",
    [],
    {},
    [None, 1, "x", {"type": "text"}],
    {"a": {"b": [1]}},
    "\ud83d\0",
]
SAMPLES = [name for name in files() if not name.endswith((".db", ".jpg", ".md"))]


def spoiled(value: Any, random: random.Random, share: float) -> Any:
    """A value with some of the values inside it exchanged."""
    if random.random() < share:
        return random.choice(JUNK)
    if isinstance(value, dict):
        return {key: spoiled(inner, random, share) for key, inner in value.items() if random.random() > share / 2}
    if isinstance(value, list):
        return [spoiled(inner, random, share) for inner in value[:40]]
    return value


def spoiled_file(name: str, random: random.Random, share: float) -> bytes:
    """A file with some values exchanged, but for those it is recognised by."""
    data = (TOP / name).read_bytes()
    if name.endswith(".jsonl"):
        lines = []
        for line in data.splitlines()[:150]:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            keep = {key: value[key] for key in ("type", "kind", "payload") if isinstance(value.get(key), str)}
            lines.append(json.dumps({**{key: spoiled(inner, random, share) for key, inner in value.items()}, **keep}))
        return "\n".join(lines).encode() + b"\n"
    value = json.loads(data)
    if isinstance(value, list):
        return json.dumps([spoiled(inner, random, share) for inner in value[:40]]).encode()
    return json.dumps({key: spoiled(inner, random, share) for key, inner in value.items()}).encode()


@pytest.mark.parametrize("name", SAMPLES)
def test_no_value_stops_an_import(name: str, tmp_path: Any) -> None:
    form = recognise(TOP / name)
    assert form is not None
    for seed in range(6):
        chance = random.Random(f"{name} {seed}")
        path = tmp_path / "file.json"
        path.write_bytes(spoiled_file(name, chance, 0.02 * (seed + 1)))
        recognise(path)
        found = list(form.read(Source(path)))
        assert isinstance(found[-1], Mark)
        for item in found:
            if isinstance(item, Turn):
                assert isinstance(item.session_id, str)
                assert isinstance(item.agent, str)
                assert all(isinstance(key, str) for key in item.keys)
                assert isinstance(item.message, dict)
                assert isinstance(item.model, str)
                assert isinstance(item.cwd, str)
                assert isinstance(item.git_branch, str)


def test_a_record_of_an_unknown_shape_is_told(tmp_path: Any) -> None:
    path = tmp_path / "x.jsonl"
    good = {
        "type": "message",
        "id": "1",
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "user", "content": "a"},
    }
    bad = {
        **good,
        "id": "2",
        "message": {"role": "assistant", "content": [], "usage": {"input": "x"}, "errorMessage": "e"},
    }
    path.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n" + json.dumps({**good, "id": "3"}) + "\n")
    found = items(path)
    assert (
        len([item for item in found if isinstance(item, Turn)])
        + len([item for item in found if isinstance(item, Skip)])
        == 3
    )

"""How a message of any shape is read for showing it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowmem.transcript import ANSWERED, CALLED, IMAGE, MODES, SAID, THOUGHT, Part, parts, visible_parts

PICTURE = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "hello"}, [Part(SAID, "hello")]),
        (
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
                {"id": "1", "function": {"name": "Bash", "arguments": '{"a": 1}'}},
                {"id": "2", "function": {"name": "Read", "arguments": {"path": "é"}}},
                {"id": "3", "type": "custom", "custom": {"name": "patch", "input": "+ a"}},
            ]},
            [Part(THOUGHT, "hm"), Part(CALLED, '{"a": 1}', "Bash"), Part(CALLED, '{"path": "é"}', "Read"), Part(CALLED, "+ a", "patch")],
        ),
        ({"role": "assistant", "content": "x", "function_call": {"name": "old", "arguments": "{}"}}, [Part(SAID, "x"), Part(CALLED, "{}", "old")]),
        ({"role": "tool", "name": "Bash", "content": "done"}, [Part(ANSWERED, "done", "Bash")]),
        ({"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "is_error": True}, [Part(ANSWERED, "a\nb", "", True)]),
        ({"role": "tool", "content": {"ok": True}}, [Part(ANSWERED, '{"ok": true}')]),
        ({"role": "tool", "content": [{"type": "image_ref", "path": "ab.png", "mime": "image/png"}]}, [Part(ANSWERED, ""), Part(IMAGE, "ab.png")]),
        (
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "ls"}},
            ]},
            [Part(THOUGHT, "hm"), Part(SAID, "so"), Part(CALLED, '{"command": "ls"}', "Bash")],
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "out"}], "is_error": True}]},
            [Part(ANSWERED, "out", "", True)],
        ),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}, [Part(IMAGE, "image/png")]),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]}, [Part(IMAGE, "https://example.com/a.png")]),
        ({"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO" * 100}}]}, [Part(IMAGE, "image/png")]),
        ({"role": "user", "content": [{"type": "image", "mimeType": "image/webp", "data": "UklG" * 100}]}, [Part(IMAGE, "image/webp")]),
        ({"role": "user", "content": [{"type": "file", "file": {"id": 1}}]}, [Part(SAID, '{"type": "file", "file": {"id": 1}}')]),
        ({"role": "user", "content": 7}, []),
        ({}, []),
    ],
)  # fmt: skip
def test_parts_of_every_shape(message: dict[str, Any], expected: list[Part]) -> None:
    assert list(parts(message)) == expected


def test_modes_show_what_they_say() -> None:
    message = {
        "role": "assistant",
        "content": "said",
        "reasoning_content": "thought",
        "tool_calls": [{"function": {"name": "t", "arguments": "{}"}}],
    }
    shown = {mode: {part.kind for part in visible_parts(message, mode)} for mode in MODES}
    assert shown == {
        "conversation": {SAID},
        "with_thinking": {SAID, THOUGHT},
        "with_tools": {SAID, CALLED},
        "full": {SAID, THOUGHT, CALLED},
    }
    for role in ("system", "developer", "", "critic"):
        assert [bool(visible_parts({"role": role, "content": "x"}, mode)) for mode in MODES] == [False] * 3 + [True]
    assert visible_parts({"role": "user", "content": " \n"}, "full") == []


SHAPES = "role content tool_calls function name arguments type text image_url url source data path mime custom input"
MORE = "function_call reasoning_content is_error thinking tool_use tool_result image"
KEYS = st.sampled_from(f"{SHAPES} {MORE}".split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_no_message_fails(message: dict[str, Any]) -> None:
    for mode in MODES:
        for part in visible_parts(message, mode):
            assert isinstance(part.text, str)
            assert isinstance(part.name, str)

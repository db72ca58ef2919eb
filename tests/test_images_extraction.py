"""Images in messages: every form goes out and comes back letter for letter, and nothing else is touched."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import pytest
from data import transcript_files
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import GIF, JPEG, WEBP, data_url, openai_block, png

from crowmem.blobs.encodings import ENCODINGS, decode
from crowmem.blobs.keys import image_key
from crowmem.errors import InvalidValue
from crowmem.images import extract, hydrate, references, remove

DATA = png(1)
KEY = image_key(DATA)
B64 = base64.b64encode(DATA).decode()
REF = {"type": "image_ref", "path": KEY, "mime": "image/png"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def there_and_back(message: dict[str, Any]) -> dict[str, Any]:
    """The stored form, after checking that it hydrates to the same text and that the given dict is as it was."""
    before = json.dumps(message)
    found = extract(message)
    assert json.dumps(message) == before
    stored = json.loads(json.dumps(found.message))
    assert json.dumps(hydrate(stored, found.blobs)) == before
    assert references(stored) == found.keys
    assert set(found.blobs) <= set(found.keys)
    return stored


FORMS: dict[str, dict[str, Any]] = {
    "OpenAI image_url": openai_block(DATA),
    "OpenAI image_url with detail": {"type": "image_url", "image_url": {"url": data_url(DATA), "detail": "high"}},
    "OpenAI image_url, keys the other way": {"image_url": {"url": data_url(DATA)}, "type": "image_url"},
    "OpenAI image_url, name inside": {"type": "image_url", "image_url": data_url(DATA)},
    "OpenAI responses": {"type": "input_image", "image_url": data_url(DATA), "detail": "auto"},
    "ACP": {"type": "image", "data": B64, "mimeType": "image/png"},
    "ACP with uri": {"type": "image", "mimeType": "image/png", "data": B64, "uri": "file:///tmp/a.png"},
    "Anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": B64},
        "cache_control": {"type": "ephemeral"},
    },
    "AI SDK": {"type": "image", "image": data_url(DATA), "mediaType": "image/png"},
    "AI SDK, base64 alone": {"type": "image", "image": B64},
    "url field": {"type": "image", "url": data_url(DATA)},
    "file part": {"type": "file", "mime": "image/png", "url": data_url(DATA)},
    "MCP resource": {"type": "resource", "resource": {"uri": "x://y", "mimeType": "image/png", "blob": B64}},
    "Gemini": {"inlineData": {"mimeType": "image/png", "data": B64}},
    "Gemini, other spelling": {"inline_data": {"mime_type": "image/png", "data": B64}},
    "generated": {"type": "image_generation_call", "id": "ig_1", "result": B64},
    "wrong type declared": openai_block(DATA, "image/jpeg"),
    "odd type declared": openai_block(JPEG, "image/jpg"),
    "jpeg": openai_block(JPEG, "image/jpeg"),
    "gif": openai_block(GIF, "image/gif"),
    "webp": openai_block(WEBP, "image/webp"),
}


@pytest.mark.parametrize("block", FORMS.values(), ids=FORMS.keys())
def test_every_form_goes_out_and_comes_back(block):
    for message in (
        user({"type": "text", "text": "look"}, block, block),
        {"role": "assistant", "content": block},
        {"role": "user", "parts": [block]},
        user({"type": "tool_result", "tool_use_id": "t", "content": [block, {"type": "text", "text": "x"}]}),
        {"type": "function_call_output", "call_id": "c", "output": [block]},
        {"role": "tool", "content": [{"type": "content", "content": block}]},
        {"type": "compacted", "replacement_history": [user(block)]},
        {"role": "tool", "toolUseResult": {"content": [block]}},
    ):
        stored = json.dumps(there_and_back(message))
        assert B64[:40] not in stored
        assert "image_ref" in stored


def test_crows_own_form_is_as_short_as_crow_writes_it():
    assert extract(user(openai_block(DATA))).message == user(REF)
    assert extract(user(openai_block(DATA))).blobs == {KEY: DATA}
    assert hydrate(user(REF), {KEY: DATA}) == user(openai_block(DATA))


def test_the_stored_type_is_what_the_bytes_say():
    [block] = extract(user(openai_block(DATA, "image/jpeg"))).message["content"]
    assert block["mime"] == "image/png"
    assert block["path"] == KEY
    [block] = extract(user(openai_block(JPEG, "image/jpg"))).message["content"]
    assert block["mime"] == "image/jpeg"


def test_the_same_image_twice_is_one_blob():
    found = extract(user(openai_block(DATA), FORMS["ACP"]))
    assert found.keys == (KEY,)
    assert len(found.blobs) == 1


# --- the grammar of data URLs ---

HEADS = [
    "data:image/png;base64,",
    "DATA:image/PNG;BASE64,",
    "data:image/png;charset=utf-8;base64,",
    'data:image/png;name="a,b;c";base64,',
    "data:image/png;name=a%2Cb.png;base64,",
    "data:;base64,",
    "data:image/png; base64,",
]
PERCENT_HEADS = ["data:,", "data:image/png,", "data:image/png;charset=x,", "Data:;name=base64,"]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", [name for name in ENCODINGS if name.startswith("base64")])
def test_base64_data_urls_in_every_spelling(head, name):
    for data in (png(1), png(2, 1), png(3, 2), JPEG, GIF, WEBP):
        stored = there_and_back(user({"type": "image_url", "image_url": {"url": head + ENCODINGS[name](data)}}))
        assert stored["content"][0]["path"] == image_key(data)


@pytest.mark.parametrize("head", PERCENT_HEADS)
@pytest.mark.parametrize("name", [name for name in ENCODINGS if name.startswith("percent")])
def test_percent_data_urls_in_every_spelling(head, name):
    for data in (DATA, JPEG, GIF, WEBP):
        stored = there_and_back(user({"type": "image_url", "image_url": {"url": head + ENCODINGS[name](data)}}))
        assert stored["content"][0]["path"] == image_key(data)


STAY = {
    "no base64": "data:image/png;base64,!!!!",
    "base64 of text": "data:image/png;base64,aGVsbG8=",
    "redacted": "data:image/png;base64,REDACTED/tqFx11VVXXXXVVVd",
    "scrubbed": "data:image/png;base64,<scrubbed>",
    "cut in the middle": data_url(DATA)[:-3],
    "with a stray letter": data_url(DATA)[:60] + "!" + data_url(DATA)[60:],
    "with stray bits": "data:image/gif;base64,"
    + base64.b64encode(b"GIF89a" + b"\0" * 7).decode().replace("A==", "B=="),
    "half of the padding": "data:image/gif;base64," + base64.b64encode(b"GIF89a" + b"\0" * 7).decode()[:-1],
    "broken lines of no known width": "data:image/png;base64," + B64[:10] + "\n" + B64[10:],
    "a web page": "data:text/html;base64," + base64.b64encode(b"<html>").decode(),
    "an svg": "data:image/svg+xml,%3Csvg%3E",
    "a link": "https://example.com/a.png",
    "a path": "/tmp/a.png",
    "no comma": "data:image/png;base64",
    "an open quote": 'data:image/png;name="a;base64,' + B64,
    "a head without end": "data:" + ";a=b" * 5000 + ",x",
    "empty": "",
    "half a character": "data:image/png;base64,iVBORw0KGgo\ud800",
    "half a character in percent": "data:,%89PNG\ud800",
    "a percent sign and no digits": "data:,%89PNG%",
    "not latin": "data:image/png;base64,iVBORw0KGgoéé",
    "mixed percent case": "data:,%89PNG%0D%0a%1A%0a",
}


@pytest.mark.parametrize("url", STAY.values(), ids=STAY.keys())
def test_what_is_no_image_or_could_not_be_rebuilt_stays_as_it_came(url):
    for block in (
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image", "image": url},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url}},
    ):
        message = user(block)
        found = extract(message)
        assert found.message is message
        assert found.blobs == {}


def test_other_blocks_pass_untouched_and_the_very_dict_is_returned():
    for message in (
        {"role": "user", "content": "data:image/png;base64," + B64},
        user({"type": "text", "text": data_url(DATA)}),
        user({"type": "tool_use", "id": "1", "name": "x", "input": {"image": openai_block(DATA)}}),
        user(
            {"type": "image"},
            {"type": "image", "source": "x"},
            {"type": "image", "data": 5},
            {"type": ["image"]},
            3,
            None,
            [openai_block(DATA)],
        ),
        {"role": "user", "content": None},
        {"role": "user"},
        {},
        {
            "type": "image_url",
            "image_url": {"url": data_url(DATA)},
            "role": "user",
        },  # a message as a whole is never replaced
    ):
        found = extract(message)
        assert found.message is message
        assert found.blobs == {}
        assert hydrate(message, {KEY: DATA}) is message


def test_deep_nesting_is_neither_followed_for_ever_nor_an_error():
    message = block = {"role": "user"}
    for _ in range(3 * sys.getrecursionlimit()):
        block["content"] = {"type": "content"}
        block = block["content"]
    block["content"] = [openai_block(DATA)]
    found = extract(message)
    assert found.message is message
    assert hydrate(message, {}) is message


@pytest.mark.parametrize("name", ["OpenAI image_url", "generated"])
def test_whatever_is_taken_out_of_a_nest_is_put_back(name):
    taken = []
    for depth in range(16):
        block = FORMS[name]
        for _ in range(depth):
            block = {"type": "tool_result", "content": [block]}
        taken.append("image_ref" in json.dumps(there_and_back(user(block))))
    assert taken == [True] * 12 + [False] * 4


# --- references ---


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "C:\\x", KEY + "\0", "%2e%2e%2fx", "", None, 5, KEY.upper()])
def test_a_reference_to_no_key_is_refused_with_its_place(path):
    with pytest.raises(InvalidValue, match=r"^message\.content\[1\]\.content\[0\]\.path is "):
        extract(user({"type": "text", "text": "x"}, {"type": "tool_result", "content": [{**REF, "path": path}]}))


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", None, 5, KEY.upper()])
def test_a_stored_reference_to_no_key_is_left_in_place(path):
    message = user({**REF, "path": path})
    assert hydrate(message, {"../x": DATA, "/etc/passwd": DATA}) is message
    assert references(message) == ()


def test_a_missing_blob_leaves_its_reference_in_place():
    message = user(REF, {**REF, "path": image_key(JPEG), "mime": "image/jpeg"})
    assert hydrate(message, {KEY: DATA}) == user(openai_block(DATA), message["content"][1])


BROKEN_PARTS = [
    {"block": {"type": "image", "data": ""}},
    {"block": {"type": "image", "data": ""}, "at": "data"},
    {"block": {"type": "image", "data": ""}, "at": ["source", "data"]},
    {"block": {"type": "image", "data": 5}, "at": ["data"]},
    {"block": {"type": "image", "data": ""}, "at": [0]},
    {"block": {"type": "image", "data": ""}, "at": []},
    {"block": [], "at": ["data"]},
    {"block": None, "at": ["data"]},
    {"block": "data:", "at": ["data"]},
    {"encoding": "rot13"},
    {"encoding": ["base64"]},
    {"encoding": None},
]


@pytest.mark.parametrize("parts", BROKEN_PARTS, ids=str)
def test_a_reference_whose_parts_do_not_fit_is_left_in_place(parts):
    message = user({**REF, **parts})
    assert hydrate(message, {KEY: DATA}) == message


def test_one_image_can_be_taken_out_for_good():
    message = there_and_back(
        user(
            {"type": "text", "text": "a"},
            openai_block(DATA),
            openai_block(JPEG, "image/jpeg"),
            FORMS["generated"],
            FORMS["Anthropic"],
        )
    )
    before = json.dumps(message)
    freed = remove(message, KEY, "[image removed]")
    assert json.dumps(message) == before
    assert references(freed) == (image_key(JPEG),)
    assert freed["content"][1] == {"type": "text", "text": "[image removed]"}
    assert freed["content"][3] == {"type": "image_generation_call", "id": "ig_1", "result": "[image removed]"}
    assert remove(freed, KEY, "x") is freed


# --- real ones, and made-up ones ---


def objects(value: Any):
    """Every object of a file that may be a message."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


def test_every_message_of_the_transcripts_comes_back():
    found = 0
    for path in transcript_files(
        "anthropic-messages",
        "openai-chat",
        "claude-code",
        "codex-rollout",
        "inspect-ai",
        "opencode",
        "other-cli-fixtures",
    ):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix not in (".json", ".jsonl") or "mage" not in text:
            continue
        for line in text.splitlines() if path.suffix == ".jsonl" else [text]:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            for message in objects(value):
                found += there_and_back(message) != message
    assert found >= 15


blocks = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.text(max_size=8),
        st.sampled_from(
            [data_url(DATA), B64, openai_block(JPEG), FORMS["Anthropic"], FORMS["ACP"], FORMS["generated"]]
        ),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "content", "image_url", "url", "data", "source", "result", "block", "at", "output", "x"]
            ),
            inner | st.sampled_from(["image", "image_url", "tool_result", "file", "resource"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(content=blocks)
def test_whatever_shape_comes_back(content):
    there_and_back({"role": "user", "content": content})


@settings(max_examples=300, deadline=None)
@given(
    head=st.sampled_from([*HEADS, *PERCENT_HEADS, ""]), body=st.text(alphabet="iVBORw0KGgo/9j=%_-\n\r A1", max_size=60)
)
def test_what_decodes_encodes_to_the_same_text(head, body):
    text = head + "iVBORw0KGgo" + body
    found = decode(text)
    if found is not None:
        prefix, encoding, data = found
        assert prefix + ENCODINGS[encoding](data) == text

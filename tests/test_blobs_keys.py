"""Keys: nothing but a hash and a known ending ever becomes a path or a URL."""

from __future__ import annotations

import hashlib

import pytest
from pictures import GIF, JPEG, WEBP, png

from crowmem.blobs.keys import check_bytes, check_key, image_key, is_key, matches, mime_of, sniff
from crowmem.errors import InvalidValue

GOOD = "0" * 64 + ".png"
HOSTILE = [
    "../x",
    "/etc/x",
    "C:\\x",
    "..\\x",
    "",
    ".png",
    GOOD + "\0",
    "\0" + GOOD,
    GOOD + "\n",
    GOOD + "/../x",
    "../" + GOOD,
    "%2e%2e%2f" + GOOD,
    GOOD.replace("0", "%30", 1),
    GOOD.upper(),
    "0" * 63 + "g.png",
    "0" * 63 + ".png",
    "0" * 65 + ".png",
    "\uff10" * 64 + ".png",
    "0" * 64 + ".svg",
    "0" * 64 + ".PNG",
    "0" * 64,
    "\ud800",
    None,
    7,
    b"0" * 64 + b".png",
    ["x"],
    {},
]


@pytest.mark.parametrize("key", HOSTILE, ids=repr)
def test_what_is_no_key_is_refused_with_its_place(key):
    assert not is_key(key)
    with pytest.raises(InvalidValue, match=r"^content\[1\]\.path is "):
        check_key(key, "content[1].path")


def test_a_long_value_is_shown_cut():
    with pytest.raises(InvalidValue) as caught:
        check_key("x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("data", "mime", "ending"),
    [
        (png(), "image/png", "png"),
        (JPEG, "image/jpeg", "jpg"),
        (GIF, "image/gif", "gif"),
        (WEBP, "image/webp", "webp"),
    ],
    ids=["png", "jpeg", "gif", "webp"],
)
def test_the_bytes_decide_the_type(data, mime, ending):
    key = image_key(data, "image/x-anything")
    assert key == f"{hashlib.sha256(data).hexdigest()}.{ending}"
    assert sniff(data) == mime_of(key) == mime
    assert matches(key, data)
    assert not matches(key, data + b"x")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<!DOCTYPE html><html></html>",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x89PNG",
        b"BM123",
        b"RIFF1234WAVE",
    ],
    ids=["empty", "web page", "svg", "cut signature", "bmp", "wav"],
)
def test_what_is_no_image_gets_no_key(data):
    assert sniff(data) is None
    with pytest.raises(InvalidValue, match="no image"):
        image_key(data, "image/png")


@pytest.mark.parametrize("data", ["text", bytearray(png()), None, 3], ids=lambda value: type(value).__name__)
def test_only_bytes_are_bytes(data):
    with pytest.raises(InvalidValue, match="expected bytes"):
        check_bytes(data)

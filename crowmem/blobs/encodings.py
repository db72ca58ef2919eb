"""How images are written into text: base64 in the spellings that are met, percent escapes, data URLs around them.

Each spelling has a name and an encoder. Text counts as that spelling only when the encoder gives back the very text,
so whatever is decoded here can be written again letter for letter.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

# the first characters of the four kinds in base64, each with its URL-safe spelling: anything else need not be decoded
_STARTS = ("iVBORw0KGg", "/9j/", "_9j_", "R0lGOD", "UklGR", "%2F9j%2F", "%2f9j%2f")
_PERCENT_STARTS = ("%89PNG", "%ff%d8%ff", "%FF%D8%FF", "GIF87a", "GIF89a", "RIFF")  # the same in percent escapes
# scheme, media type with parameters (a quoted one may hold a comma), and the comma that ends them: RFC 2397, section 3
_DATA_URL = re.compile(r'data:(?:[^",]|"(?:[^"\\]|\\.)*")*,', re.IGNORECASE)
_BASE64 = re.compile(r";\s*base64\s*,$", re.IGNORECASE)
_HEAD = 4096  # most characters before the comma
_URL_SAFE = str.maketrans("-_", "+/")


def _wrapped(width: int, newline: str, closed: bool) -> Callable[[bytes], str]:
    def encode(data: bytes) -> str:
        text = base64.b64encode(data).decode()
        lines = newline.join(text[start : start + width] for start in range(0, len(text), width))
        return lines + newline if closed else lines

    return encode


def _plain(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


ENCODINGS: dict[str, Callable[[bytes], str]] = {
    "base64": _plain,
    "base64 unpadded": lambda data: _plain(data).rstrip("="),
    "base64url": _url_safe,
    "base64url unpadded": lambda data: _url_safe(data).rstrip("="),
    "base64 percent": lambda data: quote(_plain(data), safe=""),
    "base64 percent lower": lambda data: re.sub("%..", lambda found: found[0].lower(), quote(_plain(data), safe="")),
    "base64 percent slash": lambda data: quote(_plain(data), safe="/"),
    "percent": lambda data: quote(data, safe=""),
    "percent lower": lambda data: re.sub("%..", lambda found: found[0].lower(), quote(data, safe="")),
    "percent slash": lambda data: quote(data, safe="/"),
    "percent uri": lambda data: quote(data, safe="!#$&'()*+,/:;=?@"),
    **{
        f"base64 lines {width} {name}{' closed' if closed else ''}": _wrapped(width, newline, closed)
        for width in (76, 64)
        for name, newline in (("lf", "\n"), ("crlf", "\r\n"))
        for closed in (False, True)
    },
}


def decode(text: str) -> tuple[str, str, bytes] | None:
    """The bytes of a data URL, or of base64 alone, that begins like an image.

    Returns:
        what stands before the image's characters (``data:image/png;base64,`` or nothing), the name of their spelling,
        and the bytes; None when it is nothing of the kind or could not be written again exactly.
    """
    prefix, percent = "", False
    if text[:5].lower() == "data:":
        head = _DATA_URL.match(text, 0, _HEAD)
        if head is None:
            return None
        prefix = head[0]
        percent = _BASE64.search(prefix) is None
    body = text[len(prefix) :] if prefix else text
    if percent:
        found = _percent(body) if body.startswith(_PERCENT_STARTS) else None
    elif body.startswith(_STARTS):
        found = _canonical(body) or _other(body)
    else:
        found = None
    return None if found is None else (prefix, *found)


def _canonical(body: str) -> tuple[str, bytes] | None:
    """Plain base64 as every encoder writes it: no other character, padded, no stray bits in the last letter."""
    try:
        data = binascii.a2b_base64(body, strict_mode=True)
    except ValueError:
        return None
    rest = len(data) % 3 or 3
    return ("base64", data) if _plain(data[-rest:]) == body[-4:] else None


def _other(body: str) -> tuple[str, bytes] | None:
    """Base64 in one of the other spellings."""
    try:
        text = unquote_to_bytes(body).decode("ascii") if "%" in body else body
        text = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
        data = binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:
        return None
    return _respelled(data, body)


def _percent(body: str) -> tuple[str, bytes] | None:
    try:
        data = unquote_to_bytes(body)
    except ValueError:  # half a character
        return None
    return _respelled(data, body)


def _respelled(data: bytes, body: str) -> tuple[str, bytes] | None:
    for name, encode in ENCODINGS.items():
        if encode(data) == body:
            return name, data
    return None

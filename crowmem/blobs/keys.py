"""Names of blobs: ``<sha256hex>.<ext>``, the hash of the bytes and what kind of image they are.

A key is joined to folders and URLs and stands in messages that strangers wrote, so every door checks it here before a
path is built. The kinds are the four that model services accept; the bytes decide, never a file name or a declared
type.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crowmem.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOB_BYTES = 256 * 1024 * 1024  # most bytes of one image

EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
TYPES = {extension: mime for mime, extension in EXTENSIONS.items()}
SUPPORTED = "PNG, JPEG, GIF or WebP"

_made = threading.local()

_KEY = re.compile(r"[0-9a-f]{64}\.(?:png|jpg|gif|webp)")
_SHOWN = 100


def is_key(value: Any) -> bool:
    """Whether a value is a blob's key, letter for letter."""
    return type(value) is str and _KEY.fullmatch(value) is not None


def check_key(value: Any, place: str = "key") -> str:
    """A blob's key.

    Args:
        value: what should be one.
        place: how errors call it, such as ``"content[1].path"``.

    Raises:
        InvalidValue: anything else.
    """
    if not is_key(value):
        raise InvalidValue(
            f"{place} is {_shown(value)}, no image key: expected 64 lower-case hex digits and .png, .jpg, .gif or .webp"
        )
    return str(value)


def check_blob(key: Any, data: Any) -> str:
    """A key and the bytes it names.

    Returns:
        the key.

    Raises:
        InvalidValue: no key, no bytes, over 256 MiB, or bytes of another hash.
    """
    checked = check_key(key)
    made_key, made_data = getattr(_made, "pair", (None, None))
    if made_data is data and made_key == checked:
        return checked
    if not matches(checked, check_bytes(data)):
        raise InvalidValue(f"the bytes given for {checked} have another SHA-256: make the key with image_key(data)")
    return checked


@contextmanager
def made_from(key: str, data: bytes) -> Iterator[None]:
    """Within the block, in this thread: the key was made from these very bytes, so a put need not hash them again.

    Hashing twice costs a tenth of a put, and so would a copy that carries its key.
    """
    _made.pair = (key, data)
    try:
        yield
    finally:
        _made.pair = (None, None)


def check_bytes(data: Any) -> bytes:
    """The bytes of one blob.

    Raises:
        InvalidValue: not bytes, or over 256 MiB.
    """
    if not isinstance(data, bytes):
        raise InvalidValue(f"data is a {type(data).__name__}, expected bytes")
    if len(data) > BLOB_BYTES:
        raise InvalidValue(f"data is {len(data):,} bytes, at most {BLOB_BYTES:,} can be stored: scale the image down")
    return data


def sniff(data: bytes) -> str | None:
    """The image type that the bytes themselves show, in its standard spelling, or None for any other content.

    Source: the signatures of the WHATWG MIME Sniffing standard, section 6.1.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_key(data: bytes, mime: str | None = None) -> str:
    """The key under which an image is stored.

    Args:
        data: the image file's bytes.
        mime: the declared type; errors name it, the bytes decide.

    Raises:
        InvalidValue: the bytes are no image of a supported kind, or too many.
    """
    found = sniff(check_bytes(data))
    if found is None:
        declared = f" (declared as {_shown(mime)})" if mime is not None else ""
        start = f"start with {data[:12].hex(' ')}" if data else "are none at all"
        raise InvalidValue(f"data{declared} is no image: its bytes {start}; expected a {SUPPORTED} file")
    return f"{_digest(data)}.{EXTENSIONS[found]}"


def matches(key: str, data: bytes) -> bool:
    """Whether the bytes are the ones that the key names."""
    return _digest(data) == key[:64]


def mime_of(key: str) -> str:
    """The image type that a valid key names."""
    return TYPES[key[65:]]


def _digest(data: bytes) -> str:
    import hashlib  # 2 ms, which a store without images need not spend

    return hashlib.sha256(data).hexdigest()


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

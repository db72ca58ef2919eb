"""Small images for the tests, made here: real files of the four kinds, as different as asked for."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffdb004300") + bytes(range(64)) + bytes.fromhex("ffd9")
GIF = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 \x18\x00\x00\x000\x01\x00\x9d\x01*\x01\x00\x01\x00\x02\x004%\xa4\x00\x03p\x00\xfe\xfb\xfdP\x00"


def png(number: int = 0, padding: int = 0) -> bytes:
    """A PNG of one grey pixel, different for each number, with some bytes of text to make it larger."""
    text = (f"n\0{number}".encode() + bytes(padding))[: padding + 12]
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)), (b"tEXt", text)]
    parts += [(b"IDAT", zlib.compress(b"\0\x7f")), (b"IEND", b"")]
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def data_url(data: bytes, mime: str = "image/png") -> str:
    """The bytes as a data URL."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def openai_block(data: bytes, mime: str = "image/png") -> dict[str, Any]:
    """An image as OpenAI's chat API writes it."""
    return {"type": "image_url", "image_url": {"url": data_url(data, mime)}}


def picture(data: bytes, text: str = "look") -> dict[str, Any]:
    """A user's message with one image."""
    return {"role": "user", "content": [{"type": "text", "text": text}, openai_block(data)]}

"""Turns as rows of the store: checked, encoded, with their keys as numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from crowmem.images import extract
from crowmem.repositories.imports import ImportRow
from crowmem.values import encode_object, now_text, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from crowmem.importers.items import Turn

_UNFIT = re.compile(
    "[\0-\x1f\x7f\ud800-\udfff]"
)  # no id or name has a use for these, and a plain column cannot hold all
_ID_BYTES = 512
_NO_BLOCKS = (str, type(None))
_TEXTS = {"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name", "is_error"}  # hold no images
_COUNT_MOST = 2**31 - 1
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def key_number(key: str) -> int:
    """A key as a 64-bit number: two of a million keys of one agent coincide once in 40 million cases."""
    return int.from_bytes(blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest(), "big", signed=True)


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """A name from a source as plain columns can hold it; one that is too long is cut and given a fingerprint."""
    if text.isascii() and text.isprintable() and len(text) <= _ID_BYTES:
        return text
    text = _UNFIT.sub("\ufffd", text)
    if len(text.encode()) <= _ID_BYTES:
        return text
    print_ = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{text.encode()[: _ID_BYTES - 20].decode(errors='ignore')}.{print_}"


def import_row(turn: Turn, created_at: datetime | str, *, images: bool = False) -> ImportRow:
    """A turn as a row.

    Args:
        turn: as its parser gave it.
        created_at: its time, or one that stands for it.
        images: whether images are taken out of the message.

    Raises:
        InvalidValue: the message holds what the store cannot keep: too deep, or over 256 MiB.
    """
    message, blobs = turn.message, None
    if images and not (isinstance(message.get("content"), _NO_BLOCKS) and message.keys() <= _TEXTS):
        found = extract(message)
        message, blobs = found.message, found.blobs
    role = message.get("role")
    prompt_tokens, completion_tokens, total_tokens = _usage(turn.usage)
    columns: dict[str, Any] = {
        "id": None,
        "fork_idx": 1,
        "created_at": _time(created_at),
        "data": encode_object(message),
        "role": plain(role) if isinstance(role, str) else "",
        "injected": int(turn.injected),
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": total_tokens,
    }
    keys = tuple([key_number(key) for key in turn.keys])
    model, cwd = plain(turn.model), plain(turn.cwd)
    return ImportRow(plain(turn.session_id), plain(turn.agent), keys, turn.parts, columns, model, cwd, blobs or {})


def _time(moment: datetime | str) -> str:
    """As the crow tables write it; a time outside of what can be written is now."""
    if isinstance(moment, str):
        return moment
    try:
        return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        return now_text()


def _usage(usage: Mapping[str, int] | None) -> tuple[int | None, ...]:
    if usage is None:
        return (None, None, None)
    return tuple([min(max(usage.get(name, 0), 0), _COUNT_MOST) for name in _COUNTS])


def modified_text(modified_us: int) -> str:
    """The time a file was changed, as the crow tables write it."""
    return time_text("modified", datetime.fromtimestamp(modified_us / 1_000_000, UTC))

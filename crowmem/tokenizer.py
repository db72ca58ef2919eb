"""SQLite's own tokenizers, through apsw, for whoever needs the words FTS5 would index."""

from __future__ import annotations

import os
import threading
from typing import Any


class Tokenizer:
    """One of SQLite's tokenizers; its connection belongs to one thread at a time."""

    def __init__(self, stem: bool) -> None:
        import apsw

        connection = apsw.Connection(":memory:")
        name, arguments = ("porter", ["unicode61"]) if stem else ("unicode61", [])
        self._tokenize: Any = connection.fts5_tokenizer(name, arguments)
        self._reason = apsw.FTS5_TOKENIZE_DOCUMENT

    def __call__(self, text: bytes) -> list[str]:
        """The tokens of a text."""
        found: list[str] = self._tokenize(text, self._reason, None, include_offsets=False, include_colocated=False)
        return found

    def located(self, text: bytes) -> list[tuple[int, int, str]]:
        """Tokens after the offsets of their first and past their last byte."""
        found: list[tuple[int, int, str]] = self._tokenize(text, self._reason, None, include_colocated=False)
        return found


class _Local(threading.local):
    """The tokenizers of one thread in one process."""

    process = 0
    tokenizers: dict[bool, Tokenizer]


_local = _Local()
_inherited: list[object] = []  # a forked child keeps its parent's connections open and never touches them


def tokenizer(stem: bool) -> Tokenizer:
    """``unicode61``, or ``porter`` over it, of this thread: made on first use, some 0.1 ms."""
    process = os.getpid()
    if _local.process != process:
        if _local.process:
            _inherited.append(_local.tokenizers)
        _local.tokenizers, _local.process = {}, process
    found = _local.tokenizers.get(stem)
    if found is None:
        found = _local.tokenizers[stem] = Tokenizer(stem)
    return found

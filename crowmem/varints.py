"""SQLite's variable-length integers, in which FTS5 writes its records."""

from __future__ import annotations


def varints(record: bytes) -> list[int]:
    """The numbers of a record: seven bits a byte, the high bit set on all but a number's last byte."""
    found: list[int] = []
    number = 0
    for byte in record:
        number = number << 7 | byte & 127
        if byte < 128:
            found.append(number)
            number = 0
    return found

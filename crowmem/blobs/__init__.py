"""Where the bytes of images are kept: a folder, an S3 bucket, or a bucket with a folder behind it.

All stores are blocking and may be used from many threads and after a fork. A blob's key is ``<sha256hex>.<ext>``
(`crowmem.blobs.keys`); what was put is durable when `put` returns, and what `get` returns matches its hash.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.blobs.files import FileStore, Found
    from crowmem.blobs.hybrid import HybridStore
    from crowmem.blobs.minio import MinioStore

_HOMES = {"FileStore": "files", "HybridStore": "hybrid", "MinioStore": "minio"}

__all__ = ["Collectable", "FileStore", "HybridStore", "MinioStore", "Store"]


@runtime_checkable
class Store(Protocol):
    """What crowmem asks of an image store. Every method raises `CrowmemError` kinds and nothing else."""

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under their key, durably; a repeat is harmless and repairs a damaged copy."""
        ...

    def get(self, key: str) -> bytes | None:
        """The bytes, verified against the key, or None when there are none. Raises `BlobDamaged`."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is a blob of this key; it is not read."""
        ...

    def delete(self, key: str) -> bool:
        """Remove a blob. Returns whether there was one."""
        ...

    def keys(self) -> list[str]:
        """All keys, sorted."""
        ...


@runtime_checkable
class Collectable(Store, Protocol):
    """A store that tells the age of its blobs, so that those which nothing names can be removed."""

    def survey(self) -> Iterator[list[Found]]:
        """All blobs by key with the time of their last put, in pages of at most a thousand."""
        ...

    def discard(self, key: str, before: float) -> bool:
        """Remove a blob whose last put was before a moment, in seconds since 1970. Returns whether it was removed."""
        ...

    def tidy(self) -> int:
        """Clear up after writers that died. Returns how many leftovers went."""
        ...

    def join(self, user: str) -> None:
        """Note that a database keeps images here."""
        ...

    def users(self) -> list[str]:
        """The databases that were noted."""
        ...


def __getattr__(name: str) -> Any:
    """Load a store's module on first use: none of them is needed to open a database."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

"""Several blobs in one call, so that an event loop hands the work to a thread once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.blobs.files import FileStore
from crowmem.blobs.keys import made_from
from crowmem.errors import CrowmemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from crowmem.blobs import Store

AT_ONCE = 8  # requests to a server


def put_all(store: Store, blobs: Mapping[str, bytes]) -> None:
    """Put blobs whose keys were just made from them; a server gets several at once."""

    def put(key: str, data: bytes) -> None:
        with made_from(key, data):
            store.put(key, data)

    _each(store, put, blobs.items())


def get_all(store: Store, keys: Iterable[str]) -> dict[str, bytes]:
    """Those of some blobs that are there; a server is asked for several at once."""
    wanted = list(keys)
    found = _each(store, store.get, [(key,) for key in wanted])
    return {key: data for key, data in zip(wanted, found, strict=True) if data is not None}


def status_of(store: Store | None) -> dict[str, Any]:
    """What a store says of itself, or why it cannot; a store of somebody else's need not."""
    if store is None:
        return {"kind": "none"}
    status = getattr(store, "status", None)
    try:
        return dict(status()) if callable(status) else {"kind": type(store).__name__}
    except CrowmemError as error:
        return {"kind": type(store).__name__, "problem": str(error)}


def _each(store: Store, call: Any, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    calls = list(arguments)
    if len(calls) < 2 or isinstance(store, FileStore):
        return [call(*one) for one in calls]
    from concurrent.futures import ThreadPoolExecutor  # brings logging along, which a folder does without

    with ThreadPoolExecutor(min(AT_ONCE, len(calls))) as pool:
        return list(pool.map(lambda one: call(*one), calls))

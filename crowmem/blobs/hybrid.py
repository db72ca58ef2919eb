"""A bucket with a folder behind it: images keep working while S3 is away.

Writes go to the bucket. When it fails, the blob goes to the folder with a note that it must be uploaded (`Spool`), and
the write has succeeded; `sync`, and every later put that reaches the bucket, uploads what waits. Reads ask the bucket,
then the folder. Each copy is verified, and a damaged one is repaired from the other.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from crowmem.blobs import Collectable, Store
from crowmem.blobs.breaker import Breaker
from crowmem.blobs.files import PAGE, FileStore, Found
from crowmem.blobs.keys import check_blob, check_key
from crowmem.blobs.spool import Spool
from crowmem.errors import BlobDamaged, ConfigError, CrowmemError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


DRAIN_S = 2.0  # most seconds that one put spends on uploading what waits

log = logging.getLogger("crowmem")

T = TypeVar("T")


class HybridStore:
    """Images in a bucket, and in a folder while the bucket is away.

    Args:
        primary: the bucket's store.
        fallback: the folder's store; what waits for its upload is noted in its ``spool`` folder.

    Raises:
        ConfigError: the primary is no store, or the fallback no folder.
    """

    def __init__(self, primary: Store, fallback: FileStore) -> None:
        """Remember both; nothing is asked or made yet."""
        if not isinstance(primary, Store):
            raise ConfigError(f"the primary of a HybridStore is {primary!r}, expected an image store")
        if not isinstance(fallback, FileStore):
            raise ConfigError(f"the fallback of a HybridStore is {fallback!r}, expected a FileStore")
        self.primary = primary
        self.fallback = fallback
        self._spool = Spool(fallback.folder / "spool")
        self._breaker = Breaker()
        self._draining = (os.getpid(), threading.Lock())
        self._unnoted: set[str] = set()
        self._damaged: set[str] = set()  # waiting blobs that cannot be uploaded: told once, left to sync()

    def __repr__(self) -> str:
        """Both stores."""
        return f"HybridStore({self.primary!r}, {self.fallback!r})"

    def probe(self) -> None:
        """Ask the bucket once, briefly; when it is away, one line in the log says so and the folder takes over."""
        probe = getattr(self.primary, "probe", None)
        if probe is not None:
            try:
                probe()
            except CrowmemError as error:
                self._failed(error)

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under their key: in the bucket, or in the folder until it is back.

        Raises:
            InvalidValue: no key, or bytes of another hash.
            StoreFull, ReadOnly, Unavailable: the bucket is away and the folder failed too.
        """
        name = check_blob(key, data)
        self._damaged.discard(name)
        if self._breaker.lets_through():
            try:
                with suppress(ConfigError):  # refused; the put may be allowed
                    self._note()
                self.primary.put(name, data)
            except CrowmemError as error:
                self._failed(error)
            else:
                self._worked()
                self._drain()
                return
        self._spool.add(name)
        self.fallback.put(name, data)
        if not self._spool.holds(name):  # a sync or a collector removed the note before the blob was there
            self._spool.add(name)

    def get(self, key: str) -> bytes | None:
        """The bytes of a blob, or None when neither has any; a damaged copy is repaired from the other.

        Raises:
            InvalidValue: no key.
            BlobDamaged: no good copy is left.
            Unavailable, ConfigError: the folder has no copy and the bucket cannot be asked.
        """
        name = check_key(key)
        problem = self._breaker.problem
        if self._breaker.lets_through():
            try:
                data = self.primary.get(name)
            except CrowmemError as error:
                problem = error
                if not isinstance(error, BlobDamaged):
                    self._failed(error)
            else:
                problem = None
                self._worked()
                if data is not None:
                    self._mend_folder(name, data)
                    return data
        data = self.fallback.get(name)
        if data is None and problem is not None:
            raise again(problem)
        if data is not None and isinstance(problem, BlobDamaged):
            self._mend_primary(name)
        return data

    def exists(self, key: str) -> bool:
        """Whether either has a blob of this key. Raises as `get`."""
        name = check_key(key)
        problem = self._breaker.problem
        if self.fallback.exists(name):
            return True
        if problem is not None and not self._breaker.lets_through():
            raise again(problem)
        return self._asked(lambda: self.primary.exists(name))

    def delete(self, key: str) -> bool:
        """Remove a blob from both. Returns whether either had it. Raises as `get`, and then nothing was removed."""
        name = check_key(key)
        there = self._asked(lambda: self.primary.delete(name))
        here = self.fallback.delete(name)
        self._spool.remove(name)
        return there or here

    def keys(self) -> list[str]:
        """The keys of both, sorted. Raises as `get`."""
        return sorted({*self._asked(self.primary.keys), *self.fallback.keys()})

    def survey(self) -> Iterator[list[Found]]:
        """All blobs of both by key, each with its later put, in pages of at most a thousand. Raises as `get`."""
        there = chain.from_iterable(self._collectable().survey())
        here = chain.from_iterable(self.fallback.survey())
        page: list[Found] = []
        for found in heapq.merge(there, here, key=lambda found: found.key):
            if page and page[-1].key == found.key:
                page[-1] = max(page[-1], found, key=lambda copy: copy.written_at)
                continue
            if len(page) == PAGE:
                yield page
                page = []
            page.append(found)
        if page:
            yield page

    def discard(self, key: str, before: float) -> bool:
        """Remove the copies of a blob that were last put before a moment. Returns whether any was. Raises as `get`."""
        name = check_key(key)
        there = self._asked(lambda: self._collectable().discard(name, before))
        noted = self._spool.holds(name)
        self._spool.remove(name)
        here = self.fallback.discard(name, before)
        if noted and not here:
            self._spool.add(name)
        return there or here

    def tidy(self) -> int:
        """Clear up after writers that died, in both. Returns how many leftovers went."""
        return self._collectable().tidy() + self.fallback.tidy()

    def join(self, user: str) -> None:
        """Note in both that a database keeps images here; in the bucket at the latest before the next put there."""
        self.fallback.join(user)
        self._unnoted.add(user)
        if self._breaker.lets_through():
            try:
                self._note()
            except CrowmemError as error:
                self._failed(error)

    def users(self) -> list[str]:
        """The databases that keep images in either. Raises as `get`."""
        there = getattr(self.primary, "users", list)
        return sorted({*self._asked(there), *self.fallback.users()})

    def sync(self) -> int:
        """Upload all that waits.

        Returns:
            how many blobs were uploaded.

        Raises:
            Unavailable, ConfigError, StoreFull: the bucket failed; what was uploaded so far is done.
            BlobDamaged: a waiting blob is damaged and the bucket has no good copy; all others are uploaded.
        """
        uploaded, damaged = 0, None
        for key in self._spool.waiting():
            try:
                uploaded += self._upload(key)
            except BlobDamaged as error:
                damaged = damaged or error
        if damaged is not None:
            raise damaged
        return uploaded

    def status(self) -> dict[str, Any]:
        """What is in use and what waits, for `memory.status`."""
        waiting = self._spool.waiting()
        sizes = [found.size for key in waiting if (found := self.fallback.look(key)) is not None]
        problem = self._breaker.problem
        return {
            "kind": "s3 with folder",
            "url": getattr(self.primary, "where", repr(self.primary)),
            "folder": str(self.fallback.folder),
            "reachable": problem is None,
            "problem": "" if problem is None else str(problem),
            "spool": {"blobs": len(waiting), "bytes": sum(sizes)},
        }

    def _failed(self, error: CrowmemError) -> None:
        if self._breaker.failed(error):
            log.warning("images are kept in %s until S3 is back: %s", self.fallback.folder, error)

    def _worked(self) -> None:
        if self._breaker.worked():
            log.info("S3 is back: %s", getattr(self.primary, "where", self.primary))

    def _asked(self, request: Callable[[], T]) -> T:
        """What the bucket answers, for questions that the folder cannot answer alone."""
        try:
            answer = request()
        except CrowmemError as error:
            self._failed(error)
            raise
        self._worked()
        return answer

    def _note(self) -> None:
        """Note in the bucket whom it does not know yet: before their images are there, as others may collect them."""
        join = getattr(self.primary, "join", None)
        for user in list(self._unnoted):
            if join is not None:
                join(user)
            self._unnoted.discard(user)

    def _collectable(self) -> Collectable:
        if not isinstance(self.primary, Collectable):
            raise Unsupported(f"{self.primary!r} does not tell the age of its blobs: nothing can be collected from it")
        return self.primary

    def _drain(self) -> None:
        """Upload some of what waits, one thread at a time; a failure waits for the next attempt."""
        waiting = [key for key in self._spool.waiting() if key not in self._damaged]
        if not waiting:
            return
        if self._draining[0] != os.getpid():  # after a fork, a thread that held the lock may not exist here
            self._draining = (os.getpid(), threading.Lock())
        lock = self._draining[1]
        if lock.acquire(blocking=False):
            try:
                limit = time.monotonic() + DRAIN_S
                for key in waiting:
                    try:
                        self._upload(key)
                    except BlobDamaged as error:
                        self._damaged.add(key)
                        log.warning("a waiting image cannot be uploaded: %s", error)
                    if time.monotonic() > limit:
                        break
            except CrowmemError as error:
                log.warning("uploading waiting images stopped, sync() goes on with it: %s", error)
            finally:
                lock.release()

    def _upload(self, key: str) -> bool:
        """Upload one waiting blob and forget its note. Returns whether there was anything to upload.

        A note that was made again meanwhile stays: a collector may have removed the upload before.
        """
        noted = self._spool.stamp(key)
        try:
            data = self.fallback.get(key)
        except BlobDamaged:
            if self.primary.get(key) is None:
                raise
            data = None  # the bucket has a good copy
        if data is not None:
            try:
                with suppress(ConfigError):
                    self._note()
                self.primary.put(key, data)
            except CrowmemError as error:
                self._failed(error)
                raise
            self._worked()
        if self._spool.stamp(key) == noted:
            self._spool.remove(key)
        return data is not None

    def _mend_folder(self, key: str, data: bytes) -> None:
        """Repair the folder's copy if it is damaged. A failed repair costs nothing: the bucket's copy is good."""
        try:
            if self.fallback.exists(key):
                try:
                    self.fallback.get(key)
                except BlobDamaged:
                    self.fallback.put(key, data)
        except CrowmemError as error:
            log.warning("a damaged image could not be repaired: %s", error)

    def _mend_primary(self, key: str) -> None:
        """Repair the bucket's copy, at once or with the next sync."""
        try:
            self._spool.add(key)
            self._upload(key)
        except CrowmemError as error:
            log.warning("a damaged image could not be repaired: %s", error)


def again(problem: CrowmemError) -> CrowmemError:
    """The same error for another caller: one object raised by many threads would collect all their tracebacks."""
    error = type(problem)(str(problem))
    error.__cause__ = problem.__cause__
    return error

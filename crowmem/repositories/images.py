"""Images: their bytes in a folder or a bucket, their names in messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crowmem.blobs.keys import check_key, image_key
from crowmem.collecting import collect
from crowmem.errors import Closed, ConfigError, InvalidValue, Unsupported
from crowmem.image_keeping import check_writable, keep_alone, put_back
from crowmem.images import extract, remove
from crowmem.operation import M, Repository, operation
from crowmem.statement import statement
from crowmem.values import INTEGER, check_optional_text, check_range, check_seconds, encode_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from crowmem.blobs import Store as Blobs

MESSAGES = statement("image_messages")
MESSAGE_GET = statement("image_message_get")
MESSAGE_PUT = statement("image_message_put")

MOST = 100_000  # rows of one page
YEARS_S = 3.2e9
NOTE_BYTES = 10_000


class Images(Repository[M]):
    """The images of messages: put, get, taken out and put back, uploaded, collected."""

    @operation
    async def put(self, data: bytes, mime: str | None = None) -> str:
        """Keep an image, durably; the same bytes are kept once.

        Args:
            data: a PNG, JPEG, GIF or WebP file, at most 256 MiB.
            mime: the declared type, for the error's text; the bytes decide.

        Returns:
            Its key, ``<sha256hex>.<ext>``. A message that names it must follow within the grace time of `collect`.

        Raises:
            InvalidValue: the bytes are no image of these kinds.
            StoreFull, Unavailable: the image store failed; nothing was kept.
        """
        key = image_key(data, check_optional_text("mime", mime))
        self._images()
        await keep_alone(self._driver, self._store, {key: data})
        return key

    @operation
    async def get(self, key: str) -> bytes | None:
        """An image's bytes, or None when there is none.

        Args:
            key: the image's name, as `put` returned it.

        Raises:
            InvalidValue: the text is no key.
            BlobDamaged: the bytes no longer match the key, and there is no good copy.
            Unavailable: the image store cannot be asked.
        """
        return await self._driver.offload(self._images().get, check_key(key))

    @operation
    async def exists(self, key: str) -> bool:
        """Whether there is an image of this key; its bytes are not read. Raises as `get`.

        Args:
            key: the image's name, as `put` returned it.
        """
        return await self._driver.offload(self._images().exists, check_key(key))

    @operation
    async def extract(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message as it is stored: its images kept, references in their place. The given dict is not changed.

        `messages.add` does this by itself.

        Args:
            message: as for ``messages.add``.

        Raises:
            InvalidValue: a reference in it names no key.
        """
        found = extract(_checked(message))
        if found.blobs:
            self._images()
            await keep_alone(self._driver, self._store, found.blobs)
        return found.message

    @operation
    async def hydrate(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with its images back in place, as it was added; a reference whose image is missing stays.

        Args:
            message: as ``messages.load`` gives it; it is not changed.

        Raises:
            BlobDamaged, Unavailable: as `get`.
        """
        self._check_open()
        [whole] = await put_back(self._driver, self._store, [_checked(message)])
        return whole

    @operation
    async def messages(self, key: str, *, after_id: int = 0, limit: int = 1000) -> list[int]:
        """The ids of messages that name an image, oldest first.

        Args:
            key: the image's.
            after_id: continue after this id.
            limit: most ids to return, 1 to 100,000.
        """
        rows = await self._many(
            MESSAGES,
            key=check_key(key),
            after_id=check_range("after_id", after_id, *INTEGER),
            limit=check_range("limit", limit, 1, MOST),
        )
        return [message_id for (message_id,) in rows]

    @operation
    async def remove(self, message_id: int, key: str, *, note: str = "[image removed]") -> bool:
        """Take one image out of a message for good, when a model service refuses the whole session because of it.

        Args:
            message_id: the message's.
            key: the image's.
            note: the text that takes its place.

        Returns:
            Whether the message named the image. The image itself goes with the next `collect` if nothing names it.
        """
        number, name = check_range("message_id", message_id, *INTEGER), check_key(key)
        text = check_optional_text("note", note, limit=NOTE_BYTES) or ""
        async with self._driver.transaction() as tx:
            rows = await tx.run(MESSAGE_GET, {"id": number})
            before = json.loads(rows[0][0]) if rows else {}
            after = remove(before, name, text)
            if after is not before:
                await tx.run(MESSAGE_PUT, {"id": number, "data": encode_object(after)})
        return after is not before

    @operation
    async def sync(self) -> int:
        """Upload the images that wait in the folder since the bucket was away.

        Returns:
            How many were uploaded; 0 when images are in a folder only.

        Raises:
            Unavailable, ConfigError, StoreFull: the bucket failed; what was uploaded so far is done.
        """
        images = self._images()
        sync = getattr(images, "sync", None)
        return int(await self._driver.offload(sync)) if sync is not None else 0

    @operation
    async def collect(self, *, grace_s: float = 86_400) -> int:
        """Remove images that no message names.

        Safe beside any number of writers: an image that a message is about to name again stays.

        Args:
            grace_s: seconds since an image was last put before it may go; what `put` has kept and a message shall name
                later needs them.

        Returns:
            How many images were removed.

        Raises:
            Conflict: other stores keep images in the same place.
            Unsupported: inside a transaction, since no rollback brings them back; or a store that tells no ages.
        """
        grace = check_seconds("grace_s", grace_s, 0, YEARS_S)
        check_writable(self._driver, self._store)
        self._images()
        if self._driver.in_transaction:
            raise Unsupported("images.collect inside a transaction: no rollback brings images back; call it outside")
        return await collect(self._driver, self._store, grace)

    def _check_open(self) -> None:
        if self._store.closed:
            raise Closed(f"the store {self._store.where} was closed; open it again")

    def _images(self) -> Blobs:
        self._check_open()
        if self._store.images is None:
            raise ConfigError(f"{self._store.where} keeps no images: open it with images=, a folder or an image store")
        return self._store.images


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidValue(f"message is of type {type(message).__name__}, expected a dict")
    return dict(message)

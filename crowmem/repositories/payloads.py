"""Payloads: one JSON object a session, versioned, so that two who change it at once cannot undo each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.errors import Conflict
from crowmem.operation import M, Repository, operation
from crowmem.records import Payload
from crowmem.statement import statement
from crowmem.values import INTEGER, check_range, check_text, decode_stored, encode_object

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

SAVE = statement("payload_save")
REPLACE = statement("payload_replace")
LOAD = statement("payload_load")
GET = statement("payload_get", Payload)
LIST = statement("payload_list")
COUNT = statement("payload_count")
DELETE = statement("payload_delete")

MOST = 100_000  # rows of one page


class Payloads(Repository[M]):
    """The payloads of sessions: save, load, list, delete."""

    @operation
    async def save(self, session_id: str, payload: Mapping[str, Any], *, expected_version: int | None = None) -> int:
        """Save a session's payload, replacing the one it has.

        Args:
            session_id: the session; there need be no other row of it.
            payload: a JSON object, at most 256 MiB as text; key order is kept.
            expected_version: save only over exactly this version; 0: only when there is none.

        Returns:
            The new version, one more than the last; the first is 1.

        Raises:
            Conflict: the payload has another version; nothing was written.
            InvalidValue: it is no JSON object, or holds what JSON cannot carry; the error names the path.
        """
        name = check_text("session_id", session_id)
        text = encode_object(payload, "payload")
        expected = expected_version
        if expected is not None:
            check_range("expected_version", expected, 0, INTEGER[1])
        version = await self._value(REPLACE if expected else SAVE, session_id=name, payload=text, expected=expected)
        if version is None:
            told = f"the payload of session {name!r} does not have version {expected}; load it again and decide"
            raise Conflict(told)
        return int(version)

    @operation
    async def load(self, session_id: str) -> dict[str, Any] | None:
        """The payload of a session, or None.

        Args:
            session_id: the session's name.
        """
        text = await self._value(LOAD, session_id=check_text("session_id", session_id))
        return None if text is None else decode_stored([text], f"the payload of session {session_id!r}")[0]

    @operation
    async def get(self, session_id: str) -> Payload | None:
        """The payload of a session with its version and time, or None.

        Args:
            session_id: the session's name.
        """
        return await self._one(GET, session_id=check_text("session_id", session_id))  # type: ignore[no-any-return]

    @operation
    async def list(self, *, limit: int = 1000, offset: int = 0) -> builtins.list[str]:
        """One page of the sessions that have a payload, sorted by their UTF-8 bytes.

        Args:
            limit: most ids to return, 1 to 100,000.
            offset: how many to pass over.
        """
        rows = await self._many(
            LIST, limit=check_range("limit", limit, 1, MOST), offset=check_range("offset", offset, 0, 2**62)
        )
        return [name for (name,) in rows]

    @operation
    async def count(self) -> int:
        """How many sessions have a payload."""
        return int(await self._value(COUNT))

    @operation
    async def delete(self, session_id: str) -> bool:
        """Delete the payload of a session; a repeat does nothing.

        Args:
            session_id: the session's name.

        Returns:
            Whether there was one.
        """
        return await self._value(DELETE, session_id=check_text("session_id", session_id)) is not None

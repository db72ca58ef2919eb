"""Checkpoints: moments of tapes, with the states that belonged to them. Entries are referred to, never copied."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from crowmem.branches import chain, clear, delete_tapes, lock_families, locked, new_branch
from crowmem.entries import decoded
from crowmem.errors import NotFound
from crowmem.operation import M, Repository, operation
from crowmem.records import Checkpoint, CheckpointInfo, StoredCheckpoint
from crowmem.statement import statement
from crowmem.values import check_optional_text, check_range, check_text, encode_object, optional_time_text

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

ADD = statement("checkpoint_add", CheckpointInfo)
GET = statement("checkpoint_get", StoredCheckpoint)
LIST = statement("checkpoint_list", CheckpointInfo)
DELETE_LATER = statement("checkpoint_delete_later")
LOAD_BRANCH = statement("tape_load_branch")
HEAD_SET = statement("tape_head_set")
LINE_ADD = statement("tape_line_add")

MOST = 100_000  # rows of one page


class Checkpoints(Repository[M]):
    """Checkpoints: save, load, list, restore, delete."""

    @operation
    async def save(
        self,
        tape_id: str,
        *,
        label: str | None = None,
        session_id: str | None = None,
        plugin_states: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        checkpoint_id: str | None = None,
        created_at: Any = None,
    ) -> Checkpoint:
        """Remember this moment of a tape. It costs the same for ten entries or a million: none is read or copied.

        Args:
            tape_id: the tape.
            label: for people, at most 2,600 bytes.
            session_id: the session it belongs to, and is deleted with.
            plugin_states: a JSON object, at most 256 MiB as text.
            extra: another one.
            checkpoint_id: its id; one of this id, of whatever tape, is replaced. None makes a UUID.
            created_at: aware datetime or ISO 8601 text, when it was taken elsewhere; now by default.

        Returns:
            The checkpoint, its entries not read (None).

        Raises:
            NotFound: there is no such tape.
            InvalidValue: a state holds what JSON cannot carry; the error names the path, and nothing was written.
        """
        name = check_text("tape_id", tape_id)
        states = {} if plugin_states is None else plugin_states
        more = {} if extra is None else extra
        columns: dict[str, Any] = {
            "tape_id": name,
            "checkpoint_id": str(uuid.uuid4()) if checkpoint_id is None else check_text("checkpoint_id", checkpoint_id),
            "session_id": check_optional_text("session_id", session_id, empty=False),
            "label": check_optional_text("label", label),
            "plugin_states": encode_object(states, "plugin_states"),
            "extra": encode_object(more, "extra"),
            "created_at": optional_time_text("created_at", created_at),
        }
        saved = await (self._one(ADD, **columns) if checkpoint_id is None else self._replace(columns))
        if saved is None:
            raise NotFound(f"there is no tape {name!r}: append to it first")
        return _whole(saved, decoded([columns["plugin_states"]])[0], decoded([columns["extra"]])[0])

    async def _replace(self, columns: dict[str, Any]) -> CheckpointInfo | None:
        old = {"checkpoint_id": columns["checkpoint_id"]}
        async with self._driver.transaction() as tx:
            rows = await tx.run(GET, old)
            if rows:
                for name in sorted([rows[0].tape_id, columns["tape_id"]]):  # the new tape too, before any family
                    await locked(tx, str(name))
                await delete_tapes(tx, [], [(rows[0].tape_id, rows[0].checkpoint_id)])
            saved = await tx.run(ADD, columns)
            if not saved:
                raise NotFound(f"there is no tape {columns['tape_id']!r}: append to it first")
            return saved[0]  # type: ignore[no-any-return]

    @operation
    async def load(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint with the entries that its tape had at that moment, whatever became of the tape since.

        Args:
            checkpoint_id: its id.

        Raises:
            NotFound: there is no such checkpoint.
        """
        return await self._load(check_text("checkpoint_id", checkpoint_id))

    async def _load(self, checkpoint_id: str) -> Checkpoint:
        stored = await self._one(GET, checkpoint_id=checkpoint_id)
        if stored is None:
            raise NotFound(f"there is no checkpoint {checkpoint_id!r}")
        rows = await self._many(LOAD_BRANCH, branch=stored.branch, start=0, stop=stored.entry_count)
        if len(rows) < stored.entry_count:  # deleted between the two looks
            raise NotFound(f"the checkpoint {checkpoint_id!r} was deleted")
        return _whole(stored, stored.plugin_states, stored.extra, decoded([text for _, text in rows]))

    @operation
    async def list(self, tape_id: str, *, limit: int = 1000, offset: int = 0) -> builtins.list[CheckpointInfo]:
        """Checkpoints of a tape, the earliest instant first; no entry is read.

        Args:
            tape_id: the tape; [] for an unknown one.
            limit: most checkpoints to return, 1 to 100,000.
            offset: how many to pass over.
        """
        return await self._many(
            LIST,
            tape_id=check_text("tape_id", tape_id),
            limit=check_range("limit", limit, 1, MOST),
            offset=check_range("offset", offset, 0, 2**62),
        )

    @operation
    async def restore(self, checkpoint_id: str) -> Checkpoint:
        """Let the tape go on from a checkpoint: it has those entries again, and later checkpoints of it are deleted.

        What the tape was before stays readable as a line it left (``tapes.lines``).

        Args:
            checkpoint_id: its id.

        Returns:
            The checkpoint, with entries.

        Raises:
            NotFound: there is no such checkpoint.
        """
        name = check_text("checkpoint_id", checkpoint_id)
        async with self._driver.transaction() as tx:
            rows = await tx.run(GET, {"checkpoint_id": name})
            place = await locked(tx, rows[0].tape_id) if rows else None
            rows = await tx.run(GET, {"checkpoint_id": name})  # again, now that nobody can change it
            if place is None or not rows:
                raise NotFound(f"there is no checkpoint {name!r}")
            stored: StoredCheckpoint = rows[0]
            was = await chain(tx, place.branch, place.length)
            goal = await chain(tx, stored.branch, stored.entry_count)
            await lock_families(tx, [was[-1].branch, goal[-1].branch])
            later: builtins.list[Any] = await tx.run(DELETE_LATER, {"tape_id": stored.tape_id, "checkpoint_id": name})
            branches = {place.branch, *(branch for (branch,) in later)}
            if was != goal:
                start = await new_branch(tx, goal, stored.entry_count)
                if not _begins(was, goal):
                    await tx.run(LINE_ADD, {"tape_id": stored.tape_id, **place._asdict()})
                await tx.run(HEAD_SET, {"tape_id": stored.tape_id, **start._asdict()})
            await clear(tx, branches)
        return await self._load(name)

    @operation
    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint, and the entries that nothing else names.

        Args:
            checkpoint_id: its id; an unknown one is no error.

        Returns:
            Whether it was there.
        """
        name = check_text("checkpoint_id", checkpoint_id)
        async with self._driver.transaction() as tx:
            rows = await tx.run(GET, {"checkpoint_id": name})
            if not rows:
                return False
            return (await delete_tapes(tx, [], [(rows[0].tape_id, name)])).checkpoints > 0


def _whole(
    info: CheckpointInfo | StoredCheckpoint,
    plugin_states: dict[str, Any],
    extra: dict[str, Any],
    entries: builtins.list[dict[str, Any]] | None = None,
) -> Checkpoint:
    return Checkpoint(
        info.checkpoint_id,
        info.tape_id,
        info.session_id,
        info.entry_count,
        info.window_start,
        info.created_at,
        info.label,
        plugin_states,
        extra,
        entries,
    )


def _begins(line: builtins.list[Any], other: builtins.list[Any]) -> bool:
    """Whether one line of entries is the beginning of another, so that nothing is left behind with it."""
    tip = next((piece for piece in line if piece.stop > piece.start), None)
    return tip is None or any(tip.branch == piece.branch and tip.stop <= piece.stop for piece in other)

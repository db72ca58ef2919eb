"""Tapes: append-only logs of entries, numbered from 0 without gaps, whoever else appends."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from crowmem.appending import append_part
from crowmem.branches import Place, chain, clear, cut, delete_tapes, lock_families, locked, new_branch, root_of
from crowmem.drafts import TapeDraft
from crowmem.entries import POSITIONS, Batch, decoded, encoded
from crowmem.errors import Conflict, InvalidValue, NotFound, OutcomeUnknown
from crowmem.operation import M, Repository, operation
from crowmem.records import TapeInfo, TapeLine, Window
from crowmem.statement import statement
from crowmem.values import INTEGER, check_path, check_range, check_text

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from crowmem.drivers import Driver

ADD = statement("tape_add")
HEAD = statement("tape_head")
HEAD_SET = statement("tape_head_set")
SHARE = statement("tape_share")
LIST = statement("tape_list")
LIST_INFOS = statement("tape_list_infos", TapeInfo)
LOAD = statement("tape_load")
LOAD_BRANCH = statement("tape_load_branch")
DRAFTED = statement("tape_drafted")
LINE_LIST = statement("tape_line_list", TapeLine)
LINE_GET = statement("tape_line_get")
LINE_DELETE = statement("tape_line_delete")

MOST = 100_000  # rows of one page
PAGE = 1000  # entries in memory at once while a tape is written to a file


class Tapes(Repository[M]):
    """Tapes: append, load, cut, fork, draft, import and export."""

    @operation
    async def append(
        self, tape_id: str, entries: Sequence[Mapping[str, Any]], *, expected_length: int | None = None
    ) -> int:
        """Append entries, all of them or none, numbered on from the last; a new tape begins with its first entries.

        One round trip on PostgreSQL, up to 10,000 entries and 16 MiB; more go in several, in one transaction.

        Args:
            tape_id: the tape, 1 to 2,600 bytes.
            entries: 0 to 1,000,000 JSON objects, each at most 256 MiB as text. They are not changed; key order is kept.
            expected_length: append only if the tape is exactly so long; 0 for a tape that is not there.

        Returns:
            The tape's new length.

        Raises:
            Conflict: it has another length; nothing was written.
            InvalidValue: an entry is no JSON object, or holds what JSON cannot carry; nothing was written.
            OutcomeUnknown: the connection broke; look at `length` before appending again, or use a draft.
        """
        name = check_text("tape_id", tape_id)
        expected = None if expected_length is None else check_range("expected_length", expected_length, 0, POSITIONS)
        return await self._append(name, encoded(entries), expected)

    async def _append(self, tape_id: str, batch: Batch, expected: int | None, draft_id: str | None = None) -> int:
        if not batch.texts:
            length = await self._length(tape_id)
            if expected is not None and length != expected:
                raise _conflict(tape_id, expected, length)
            return length
        first, *rest = batch.parts()
        if rest:
            async with self._driver.transaction() as tx:
                new = await append_part(tx, self._store, tape_id, first, expected, draft_id)
                for part in rest if new is not None else ():
                    new = await append_part(tx, self._store, tape_id, part, None, None)
        else:
            new = await append_part(self._driver, self._store, tape_id, first, expected, draft_id)
        if new is None:
            raise _conflict(tape_id, expected, await self._length(tape_id))
        return new

    @operation
    async def load(
        self, tape_id: str | TapeDraft, *, start: int = 0, stop: int | None = None
    ) -> builtins.list[dict[str, Any]]:
        """Entries of a tape, in order, equal to those that were appended.

        Args:
            tape_id: a tape; [] for an unknown one. Or a draft: its base as it was begun, and what was added.
            start: the number of the first entry wanted.
            stop: the number after the last one wanted; None: to the end.
        """
        return decoded(await self._texts(tape_id, start, stop))

    @operation
    async def load_json(self, tape_id: str | TapeDraft, *, start: int = 0, stop: int | None = None) -> str:
        """As `load`, as the text of one JSON array; nothing is decoded, so it is several times faster.

        Args:
            tape_id: as for `load`.
            start: as for `load`.
            stop: as for `load`.
        """
        return f"[{','.join(await self._texts(tape_id, start, stop))}]"

    async def _texts(self, tape: str | TapeDraft, start: int, stop: int | None) -> builtins.list[str]:
        first = check_range("start", start, 0, INTEGER[1])
        last = min(POSITIONS if stop is None else check_range("stop", stop, 0, INTEGER[1]), POSITIONS)
        draft = tape if isinstance(tape, TapeDraft) else None
        name = tape.tape_id if isinstance(tape, TapeDraft) else check_text("tape_id", tape)
        upto = last if draft is None else min(last, draft.base_length)
        texts: builtins.list[str] = []
        if first < upto:
            texts = [text for _, text in await self._many(LOAD, tape_id=name, start=first, stop=upto)]
        if draft is not None and last > draft.base_length:
            texts += draft.batch.texts[max(first - draft.base_length, 0) : last - draft.base_length]
        return texts

    @operation
    async def length(self, tape_id: str) -> int:
        """How many entries a tape has; 0 for an unknown one.

        Args:
            tape_id: the tape.
        """
        return await self._length(check_text("tape_id", tape_id))

    async def _length(self, tape_id: str) -> int:
        head = await self._one(HEAD, tape_id=tape_id)
        return int(head[1]) if head else 0

    @operation
    async def list(self, *, limit: int = 1000, offset: int = 0) -> builtins.list[str]:
        """One page of tape ids, sorted by their UTF-8 bytes.

        Args:
            limit: most ids to return, 1 to 100,000.
            offset: how many to pass over.
        """
        return [name for (name,) in await self._many(LIST, **_page(limit, offset))]

    @operation
    async def list_infos(self, *, limit: int = 1000, offset: int = 0) -> builtins.list[TapeInfo]:
        """As `list`, with length, window start and time of creation.

        Args:
            limit: most tapes to return, 1 to 100,000.
            offset: how many to pass over.
        """
        return await self._many(LIST_INFOS, **_page(limit, offset))

    @operation
    async def window(self, tape_id: str) -> Window:
        """The entries that a model is shown: from the last handoff anchor on, or all without one.

        Found by the anchor's number, which the tape keeps; the entries before are not read. Old names of anchors count.

        Args:
            tape_id: the tape.
        """
        name = check_text("tape_id", tape_id)
        rows = await self._many(LOAD, tape_id=name, start=None, stop=POSITIONS)
        if not rows:
            return Window(name, 0, 0, [])
        first, last = rows[0][0] & POSITIONS, rows[-1][0] & POSITIONS
        return Window(name, first, last + 1, decoded([text for _, text in rows]))

    @operation
    async def truncate(self, tape_id: str, keep: int) -> int:
        """Take the entries numbered ``keep`` and above off a tape; the next one appended gets number ``keep``.

        What a checkpoint, a fork or a line left behind still names stays readable there; everything else is deleted.

        Args:
            tape_id: the tape; an unknown one is left alone.
            keep: how many entries to keep; more than there are changes nothing.

        Returns:
            The tape's length now.

        Raises:
            InvalidValue: (a ValueError) ``keep`` is negative.
        """
        name = check_text("tape_id", tape_id)
        wanted = check_range("keep", keep, 0, INTEGER[1])
        async with self._driver.transaction() as tx:
            place = await locked(tx, name)
            if place is None or wanted >= place.length:
                return place.length if place else 0
            await _move(tx, name, await cut(tx, name, place, wanted))
            await clear(tx, [place.branch])
        return wanted

    @operation
    async def delete(self, tape_id: str) -> bool:
        """Delete a tape with its checkpoints and the lines it left; forks keep what they share with it.

        Args:
            tape_id: the tape; an unknown one is no error.

        Returns:
            Whether it was there.
        """
        name = check_text("tape_id", tape_id)
        async with self._driver.transaction() as tx:
            return (await delete_tapes(tx, [name])).tapes > 0

    @operation
    async def fork(
        self, tape_id: str, new_id: str | None = None, *, at: int | None = None, line: int | None = None
    ) -> str:
        """Begin a new tape with the first entries of another: shared, not copied; afterwards each goes its way.

        Args:
            tape_id: the tape to fork.
            new_id: the new tape's id; None makes a UUID.
            at: how many entries to share; None: all there are now.
            line: fork a line that the tape has left (`lines`) instead of the tape as it is.

        Returns:
            The new tape's id.

        Raises:
            NotFound: there is no such tape, or line.
            Conflict: there is a tape of the new name.
            InvalidValue: ``at`` is more than there are.
        """
        name = check_text("tape_id", tape_id)
        made = str(uuid.uuid4()) if new_id is None else check_text("new_id", new_id)
        wanted = None if at is None else check_range("at", at, 0, POSITIONS)
        async with self._driver.transaction() as tx:
            place = await _held(tx, name, line)
            shared = place.length if wanted is None else wanted
            if shared > place.length:
                raise InvalidValue(f"at is {shared:,}, but tape {name!r} has only {place.length:,} entries")
            start = await new_branch(tx, await chain(tx, place.branch, place.length), shared)
            if not await tx.run(ADD, {"tape_id": made, **start._asdict()}):
                raise Conflict(f"there is a tape {made!r} already; choose another new_id, or delete it first")
        return made

    @operation
    async def lines(self, tape_id: str) -> builtins.list[TapeLine]:
        """The lines a tape has left, oldest first: what it was each time a checkpoint was restored over it.

        Read one with ``load(fork(tape_id, line=line.line))``; `forget_lines` and `delete` end them.

        Args:
            tape_id: the tape.
        """
        return await self._many(LINE_LIST, tape_id=check_text("tape_id", tape_id))

    @operation
    async def forget_lines(self, tape_id: str) -> int:
        """Delete the lines a tape has left, and the entries that nothing else names; returns how many lines went.

        Args:
            tape_id: the tape.
        """
        name = check_text("tape_id", tape_id)
        async with self._driver.transaction() as tx:
            if await locked(tx, name) is None:
                return 0
            branches = [branch for (branch,) in await tx.run(LINE_DELETE, {"tape_id": name})]
            await lock_families(tx, [await root_of(tx, branch) for branch in branches])
            await clear(tx, branches)
            return len(branches)

    @operation
    async def begin(self, tape_id: str) -> TapeDraft:
        """Begin a draft: entries are added to it in memory and saved together by `commit`, or dropped by `rollback`.

        Args:
            tape_id: the base; it need not be there yet.
        """
        name = check_text("tape_id", tape_id)
        return TapeDraft(name, await self._length(name))

    @operation
    async def commit(self, draft: TapeDraft, *, expected_length: int | None = None) -> str:
        """Save what was added to a draft, under its base's id and after whatever the base has by now.

        A commit that fails leaves the draft open. Trying again saves the entries once, also after an answer was lost.
        In a transaction the draft stays open, since the block may yet fail: commit it again outside to end it.

        Args:
            draft: from `begin`.
            expected_length: save only if the base is exactly so long, such as ``draft.base_length``.

        Returns:
            The base's id.

        Raises:
            AlreadyFinal: it was committed or rolled back before.
            Conflict: the base has another length; the draft stays open.
            OutcomeUnknown: the connection broke; commit again.
        """
        _check_draft(draft)
        expected = None if expected_length is None else check_range("expected_length", expected_length, 0, POSITIONS)
        if not await self._was_saved(draft):
            try:
                await self._append(draft.tape_id, draft.batch, expected, draft.draft_id)
            except OutcomeUnknown:
                draft.sent = True
                raise
            except Conflict:  # perhaps with our own first attempt, carried out just now
                if self._driver.in_transaction or not await self._was_saved(draft):
                    raise
        if self._driver.in_transaction:
            draft.sent = True
        else:
            draft.ended = "committed"
        return draft.tape_id

    @operation
    async def rollback(self, draft: TapeDraft) -> None:
        """Drop a draft.

        Args:
            draft: as `begin` returned it.

        Raises:
            AlreadyFinal: it was committed or rolled back before; also when a commit whose answer was lost did save it.
        """
        _check_draft(draft)
        saved = await self._was_saved(draft)
        draft.ended = "committed" if saved else "rolled back"
        if saved:
            draft.check_open()

    async def _was_saved(self, draft: TapeDraft) -> bool:
        return draft.sent and await self._value(DRAFTED, draft_id=draft.draft_id) is not None

    @operation
    async def import_jsonl(self, tape_id: str, path: str | Path, *, expected_length: int | None = None) -> int:
        """Append the entries of a file, one JSON object a line, all of them or none.

        The text of each line is kept as it is, spacing and escapes included. A repeat appends them again: give
        ``expected_length=0`` to import only once.

        Args:
            tape_id: the tape; made if it is new.
            path: the file; ``~`` is the home folder. Blank lines are passed over.
            expected_length: import only if the tape is exactly so long.

        Returns:
            How many entries were appended.

        Raises:
            NotFound: there is no such file.
            InvalidValue: a line is no JSON object; the error names file and line, and nothing was written.
            Conflict: the tape has another length; nothing was written.
        """
        from crowmem.jsonl import EntryReader

        name = check_text("tape_id", tape_id)
        expected = None if expected_length is None else check_range("expected_length", expected_length, 0, POSITIONS)
        reader = await self._driver.offload(EntryReader, check_path("path", path))
        count = 0
        try:
            async with self._driver.transaction() as tx:
                while (batch := await tx.offload(reader.batch)).texts:
                    if await append_part(tx, self._store, name, batch, expected, None) is None:
                        raise _conflict(name, expected, None)
                    count, expected = count + len(batch.texts), None
        finally:
            reader.close()
        return count

    @operation
    async def export_jsonl(self, tape_id: str, path: str | Path) -> int:
        """Write a tape to a file, an entry a line, byte for byte what was imported or appended.

        The file appears when it is whole and durable, with mode 0600; an existing one is replaced.

        Args:
            tape_id: the tape.
            path: the file, in a folder that is there. A leading ``~`` is the home folder.

        Returns:
            How many entries were written.

        Raises:
            NotFound: there is no such tape, or no such folder.
            InvalidValue: a folder, a device or a pipe has that name.
            Conflict: the end of the tape was taken off meanwhile; try again.
        """
        from crowmem.jsonl import EntryWriter

        name = check_text("tape_id", tape_id)
        head = await self._one(HEAD, tape_id=name)
        if head is None:
            raise NotFound(f"there is no tape {name!r}")
        branch, length, _, _ = head
        writer = await self._driver.offload(EntryWriter, check_path("path", path))
        try:
            for start in range(0, length, PAGE):
                rows = await self._many(LOAD_BRANCH, branch=branch, start=start, stop=min(start + PAGE, length))
                await self._driver.offload(writer.write, [text for _, text in rows])
            now = await self._one(HEAD, tape_id=name)
            if now is None or (now[0], now[3]) != (head[0], head[3]):
                raise Conflict(f"tape {name!r} was cut while it was exported; try again")
            await self._driver.offload(writer.finish)
        finally:
            await self._driver.offload(writer.close)
        return int(length)


async def _held(tx: Driver, tape_id: str, line: int | None) -> Place:
    """Where a tape, or a line it left, ends; held against cuts."""
    rows = await tx.run(SHARE, {"tape_id": tape_id})
    if not rows:
        raise NotFound(f"there is no tape {tape_id!r}")
    if line is not None:
        rows = await tx.run(LINE_GET, {"tape_id": tape_id, "line": check_range("line", line, *INTEGER)})
        if not rows:
            raise NotFound(f"tape {tape_id!r} has left no line {line}; see lines()")
    return Place(*rows[0])


async def _move(tx: Driver, tape_id: str, place: Place) -> None:
    await tx.run(HEAD_SET, {"tape_id": tape_id, **place._asdict()})


def _page(limit: int, offset: int) -> dict[str, int]:
    return {"limit": check_range("limit", limit, 1, MOST), "offset": check_range("offset", offset, 0, 2**62)}


def _conflict(tape_id: str, expected: int | None, length: int | None) -> Conflict:
    found = "" if length is None else f" (it has {length:,})"
    return Conflict(f"tape {tape_id!r} does not have {expected or 0:,} entries{found}; read it again and decide")


def _check_draft(draft: Any) -> None:
    if not isinstance(draft, TapeDraft):
        raise InvalidValue(f"draft is of type {type(draft).__name__}, expected what begin() gave")
    draft.check_open()

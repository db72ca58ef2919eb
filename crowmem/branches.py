"""Branches of tapes: where a tape goes on when its end is taken off or it is forked, and what may be cleared away.

A tape's entries lie in branches. A branch begins with the first entries of another, by reference, and holds those
after them. One tape at most writes to a branch. Taking a tape's end off leaves the old branch as it is for whoever
still names it (a checkpoint, a fork, a line left behind) and deletes the entries nobody names.

Everything here runs inside a transaction that holds the tape, so an append, a cut, a fork and a checkpoint of one tape
come one after the other. Clearing up follows a branch to those it begins with, which other tapes may share: whoever
clears up first takes the lock of the whole family, known by its first branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from crowmem.statement import statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crowmem.drivers import Driver

LOCK = statement("tape_lock")
FAMILY_LOCK = statement("tape_family_lock")
CHAIN = statement("tape_chain")
BRANCH_ID = statement("tape_branch_id")
BRANCH_ADD = statement("tape_branch_add")
BRANCH_DELETE = statement("tape_branch_delete")
NAMED = statement("tape_named")
NAMES = statement("tape_names")
TRIM = statement("tape_trim")
HANDOFF = statement("tape_handoff")
DELETE = statement("tape_delete")
LINE_DELETE = statement("tape_line_delete")
CHECKPOINT_DELETE = statement("checkpoint_delete")
CHECKPOINT_DELETE_TAPE = statement("checkpoint_delete_tape")


class Place(NamedTuple):
    """The end of a line of entries: so many of a branch, and where its last handoff anchor stands."""

    branch: int
    length: int
    window_start: int


class Gone(NamedTuple):
    """How many tapes and checkpoints were deleted."""

    tapes: int
    checkpoints: int


class Piece(NamedTuple):
    """Entries ``start`` up to ``stop``, which lie in one branch."""

    branch: int
    start: int
    stop: int


async def locked(tx: Driver, tape_id: str) -> Place | None:
    """Hold a tape until the transaction ends; None when it is not there."""
    rows = await tx.run(LOCK, {"tape_id": tape_id})
    return Place(*rows[0]) if rows else None


async def chain(tx: Driver, branch: int, length: int) -> list[Piece]:
    """The pieces that a branch's first entries are read from, the last piece first."""
    return [Piece(*row) for row in await tx.run(CHAIN, {"branch": branch, "length": length})]


async def lock_families(tx: Driver, roots: Iterable[int]) -> None:
    """Keep other transactions from clearing up what shares these first branches."""
    for root in sorted(set(roots)):
        await tx.run(FAMILY_LOCK, {"root": root})


async def root_of(tx: Driver, branch: int) -> int:
    """The first branch of a family."""
    return (await chain(tx, branch, 0))[-1].branch


async def new_branch(tx: Driver, pieces: list[Piece], length: int) -> Place:
    """A new branch that begins with the first ``length`` entries of a line."""
    [[branch]] = await tx.run(BRANCH_ID, {})
    if length == 0:
        return Place(branch, 0, 0)
    holder = next(piece for piece in pieces if piece.start < length)
    await tx.run(BRANCH_ADD, {"branch": branch, "parent": holder.branch, "shared": length})
    return Place(branch, length, await window_start(tx, branch, length))


async def window_start(tx: Driver, branch: int, length: int) -> int:
    """The number of the last handoff anchor among a branch's first entries; 0 when there is none."""
    [[found]] = await tx.run(HANDOFF, {"branch": branch, "length": length})
    return int(found or 0)


async def named(tx: Driver, branch: int, but: str = "") -> int | None:
    """How many entries of a branch anybody but one tape names; None when nobody does."""
    [[found]] = await tx.run(NAMED, {"branch": branch, "but": but})
    return None if found is None else int(found)


async def clear(tx: Driver, branches: Iterable[int]) -> None:
    """Delete the entries nobody names any more, from these branches and then from those they began with.

    Children are cleared before parents (a parent has the smaller number), so what only a cleared child named goes too.
    """
    waiting = set(branches)
    while waiting:
        branch = max(waiting)
        waiting.remove(branch)
        kept = await named(tx, branch)
        await tx.run(TRIM, {"branch": branch, "keep": kept or 0})
        if kept is None:
            waiting |= {parent for (parent,) in await tx.run(BRANCH_DELETE, {"branch": branch})}


async def cut(tx: Driver, tape_id: str, place: Place, keep: int) -> Place:
    """Where a tape stands once it has only its first ``keep`` entries; what nobody names is deleted.

    The caller sets the tape there, and then clears the branch it left.
    """
    pieces = await chain(tx, place.branch, place.length)
    await lock_families(tx, [pieces[-1].branch])
    if keep >= pieces[0].start and (await named(tx, place.branch, tape_id) or 0) <= keep:
        return Place(place.branch, keep, await window_start(tx, place.branch, keep))
    return await new_branch(tx, pieces, keep)


async def delete_tapes(tx: Driver, tape_ids: Iterable[str], checkpoints: Iterable[tuple[str, str]] = ()) -> Gone:
    """Delete tapes with their checkpoints and lines, and single checkpoints of others.

    Entries that a fork shares stay for the fork.

    Args:
        tx: the transaction.
        tape_ids: the tapes; those that are not there are passed over.
        checkpoints: tape and id of each checkpoint to delete besides.
    """
    single = sorted(checkpoints)
    wanted = set(tape_ids)
    held = [name for name in sorted(wanted | {tape for tape, _ in single}) if await locked(tx, name)]
    branches = {branch for name in held for (branch,) in await tx.run(NAMES, {"tape_id": name})}
    await lock_families(tx, [await root_of(tx, branch) for branch in branches])
    count = 0
    for _, checkpoint_id in single:
        count += len(await tx.run(CHECKPOINT_DELETE, {"checkpoint_id": checkpoint_id}))
    gone = [name for name in held if name in wanted]
    for name in gone:
        count += len(await tx.run(CHECKPOINT_DELETE_TAPE, {"tape_id": name}))
        await tx.run(LINE_DELETE, {"tape_id": name})
        await tx.run(DELETE, {"tape_id": name})
    await clear(tx, branches)
    return Gone(len(gone), count)

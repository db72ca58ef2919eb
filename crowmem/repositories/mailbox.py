"""The mailbox: durable items for an address, each handed out once (`claim`) or leased until acknowledged (`lease`)."""

from __future__ import annotations

import contextlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from crowmem.errors import Conflict, CrowmemError, InvalidValue, LeaseLost
from crowmem.marks import CLEAR_AFTER, CLEAR_S, LOOK_S, clock
from crowmem.operation import M, Repository, operation
from crowmem.records import Delivery, LeasedDelivery
from crowmem.statement import statement
from crowmem.values import (
    INTEGER,
    MESSAGE_BYTES,
    check_list,
    check_optional_text,
    check_range,
    check_seconds,
    check_text,
    check_together,
    encode_json,
    micros,
    moment,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowmem.marks import Box
    from crowmem.statement import Statement

SEND = statement("mailbox_send", Delivery)
SEND_MANY = statement("mailbox_send_many")
FIND_KEY = statement("mailbox_find_key", Delivery)
FREE_KEY = statement("mailbox_free_key")
CLAIM = statement("mailbox_claim")
CLAIM_ONE = statement("mailbox_claim_one")
CLAIM_NEXT = statement("mailbox_claim_next")
CLAIM_URGENT = statement("mailbox_claim_urgent")
LEASE = statement("mailbox_lease")
LEASE_ONE = statement("mailbox_lease_one")
LEASE_NEXT = statement("mailbox_lease_next")
LEASE_URGENT = statement("mailbox_lease_urgent")
ACK_LEASE = statement("mailbox_ack_lease")
CLEAR_TAKEN = statement("mailbox_clear_taken")
CLEAR_READY = statement("mailbox_clear_ready")
LEFT = statement("mailbox_left")
SWEEP = statement("mailbox_sweep")
RENEW = statement("mailbox_renew", LeasedDelivery)
ACK = statement("mailbox_ack")
ACK_MANY = statement("mailbox_ack_many")
RELEASE = statement("mailbox_release", Delivery)
GET = statement("mailbox_get", Delivery)
READY = statement("mailbox_ready")
LAST = statement("mailbox_last")
PENDING = statement("mailbox_pending", Delivery)
DEAD = statement("mailbox_dead", Delivery)
REVIVE = statement("mailbox_revive")
COUNT = statement("mailbox_count")
MARK = statement("mailbox_mark")
PURGE = statement("mailbox_purge")

MOST = 100_000  # rows of one call
SWEPT = 500  # overdue deliveries given back at a time
PURGED = 1000  # deliveries deleted in one transaction
LONGEST_S = 366 * 86_400.0
LAST_ID = INTEGER[1]
TRIES = 3  # ids that are tried before a look
STATUSES = ("pending", "waiting", "leased", "delivered", "dead")


class Mailbox(Repository[M]):
    """Send, take, lease, acknowledge, wait."""

    @operation
    async def send(
        self,
        address: str,
        content: Any,
        *,
        task_id: str = "",
        priority: str = "low",
        delay_s: float = 0.0,
        key: str | None = None,
    ) -> Delivery:
        """Put one item into a mailbox; when this returns it is durable.

        Args:
            address: any text; a session's wire id is one. A mailbox needs no making.
            content: text, or a dict or list that is stored as its JSON text; at most 256 MiB.
            task_id: the task it answers.
            priority: "low", "high" or another word.
            delay_s: hand it out no earlier than so many seconds from now, 0 to 366 days.
            key: while an unfinished item of this mailbox holds the same key, that one is returned and nothing is sent.

        Raises:
            InvalidValue: a value cannot be stored; nothing was sent.
            OutcomeUnknown: the connection broke; with a key it is safe to send again.
        """
        row: dict[str, Any] = {
            "address": check_text("address", address),
            "content": _content("content", content),
            "task_id": check_text("task_id", task_id, empty=True),
            "priority": check_text("priority", priority),
            "delay_us": micros(check_seconds("delay_s", delay_s, 0, LONGEST_S)),
            "key": check_optional_text("key", key, empty=False),
            "max_attempts": self._store.max_attempts,
        }
        check_together(address=row["address"], priority=row["priority"])
        check_together(address=row["address"], key=row["key"])
        sent: Delivery = await (self._one(SEND, **row) if key is None else self._send_keyed(row))
        if not delay_s:
            await self._driver.announce(address)
        return sent

    async def _send_keyed(self, row: dict[str, Any]) -> Delivery:
        where = {"address": row["address"], "key": row["key"]}
        async with self._driver.transaction() as tx:
            for _ in range(10):
                await tx.run(FREE_KEY, where)
                # whoever holds the key may finish between the two statements: then it is free at the next look
                if rows := await tx.run(SEND, row) or await tx.run(FIND_KEY, where):
                    return rows[0]  # type: ignore[no-any-return]
        raise Conflict(f"the key {row['key']!r} changed hands ten times in a row; nothing was sent, try again")

    @operation
    async def send_many(self, address: str, contents: Sequence[Any], *, priority: str = "low") -> list[int]:
        """Put many items into a mailbox: all of them or none.

        Args:
            address: as for `send`.
            contents: 0 to 100,000 texts (or dicts or lists), in the order in which they shall be handed out.
            priority: of all of them.

        Returns:
            Their ids, in the order of the contents.
        """
        to = check_text("address", address)
        texts = [_content(f"contents[{n}]", one) for n, one in enumerate(check_list("contents", contents, MOST))]
        shared: dict[str, Any] = {
            "address": to,
            "priority": check_text("priority", priority),
            "max_attempts": self._store.max_attempts,
        }
        check_together(address=to, priority=shared["priority"])
        if not texts:
            return []
        if self._driver.dialect == "postgres":
            rows = await self._many(SEND_MANY, **shared, contents=texts)
        else:
            rows = await self._driver.run_batch(SEND_MANY, [{**shared, "content": text} for text in texts])
        await self._driver.announce(to)
        return sorted(int(new_id) for (new_id,) in rows)

    @operation
    async def claim(self, address: str, *, priority: str | None = None, limit: int | None = None) -> list[Delivery]:
        """Take items out of a mailbox and finish them, in one step: no item goes to two callers.

        What was claimed is finished even if the caller dies a moment later; use `lease` for work that must be done.

        Args:
            address: which mailbox.
            priority: only items of this priority; None takes any.
            limit: most items to take, 1 to 100,000; None takes all there are.

        Returns:
            The items in the order of arrival; [] when there is nothing to hand out.

        Raises:
            Unavailable: nothing was taken; safe to retry.
            OutcomeUnknown: the connection broke; what it may have taken is delivered and will not come again.
        """
        most = None if limit is None else check_range("limit", limit, 1, MOST)
        word = None if priority is None else check_text("priority", priority)
        box_of = check_text("address", address)
        rows = await self._take_next(CLAIM_NEXT, box_of, {}) if most == 1 and word is None else []
        return _claimed(box_of, rows or await self._take((CLAIM_ONE, CLAIM, CLAIM_URGENT), box_of, word, most, {}))

    @operation
    async def lease(
        self,
        address: str,
        worker: str,
        *,
        limit: int = 1,
        lease_s: float = 60.0,
        priority: str | None = None,
        ack: Sequence[LeasedDelivery] = (),
    ) -> list[LeasedDelivery]:
        """Lease items of a mailbox to one worker, who acknowledges them when the work is done.

        An item that is not acknowledged in time comes back, with one attempt more; after the last one it is dead. The
        attempt counts from here on, whatever becomes of the worker.

        Args:
            address: which mailbox.
            worker: who takes them, for people to read.
            limit: most items to lease, 1 to 100,000.
            lease_s: seconds until an item that is neither acknowledged nor renewed comes back, up to 366 days.
            priority: only items of this priority; None leases any.
            ack: items leased before, to be acknowledged in the same round trip.

        Returns:
            The items in the order of arrival, each with a token larger than any it had.

        Raises:
            LeaseLost: some of ``ack`` had a newer owner; the others are acknowledged, and nothing was leased.
            OutcomeUnknown: the connection broke; what it may have leased comes back after ``lease_s``.
        """
        box_of = check_text("address", address)
        most = check_range("limit", limit, 1, MOST)
        word = None if priority is None else check_text("priority", priority)
        name = check_text("worker", worker)
        extra = {
            "worker": name,
            "lease_us": micros(check_seconds("lease_s", lease_s, 0.001, LONGEST_S)),
        }
        if ack:
            rows = await self._ack_and_lease(_leased("ack", ack), box_of, word, most, extra)
        else:
            rows = await self._take_next(LEASE_NEXT, box_of, extra) if most == 1 and word is None else []
            rows = rows or await self._take((LEASE_ONE, LEASE, LEASE_URGENT), box_of, word, most, extra)
        return _leases(box_of, name, rows)

    async def _take_next(self, taking: Statement, address: str, extra: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Take the delivery whose id follows the last one's, which is half the work of a look; [] where it is none."""
        driver = self._driver
        if driver.in_transaction or driver.dialect != "sqlite":
            return []
        box = self._store.marks.box(address)
        for _ in range(TRIES):  # other threads may be faster, but each has an id of its own
            number = box.follow(clock())
            if not number:
                break
            if rows := await driver.run(taking, {"address": address, "id": number, **extra}):
                box.taken.append(number)
                box.marks[None] = number
                return rows
            box.failed(number)
        return []

    async def _take(
        self,
        statements: tuple[Statement, Statement, Statement],
        address: str,
        priority: str | None,
        limit: int | None,
        extra: dict[str, Any],
    ) -> list[tuple[Any, ...]]:
        """Claim or lease: one statement while there is plenty. The rows are in the order of arrival."""
        driver, box, now = self._driver, self._store.marks.box(address), clock()
        one, some, urgent = statements
        taking = some if priority is None or priority == "low" else urgent
        if limit == 1 and priority is None and driver.dialect == "sqlite":
            taking = one
        if box.is_due(now):
            await self._tidy(address, box, now)
        mark = 0 if limit is None or driver.in_transaction else box.start(priority, now)
        params = {"address": address, "priority": priority, "limit": limit, "mark": mark, **extra}
        if mark or limit is None or driver.in_transaction:
            rows = await driver.run(taking, params)
        else:
            rows = await self._look_again(params, taking, box, 0.0)
        if limit is None or len(rows) < limit:
            try:
                rows = rows + await self._take_rest(taking, params, len(rows), box, clock() - now)
            except CrowmemError:
                if not rows:
                    raise
                # what is taken is committed and must reach the caller; the next call meets the same trouble
        if rows:
            self._took(rows, priority, box)
        return rows

    def _took(self, rows: list[tuple[Any, ...]], priority: str | None, box: Box) -> None:
        """Put rows in order and remember how far they reach."""
        rows.sort()  # by id, which comes first
        if self._driver.dialect == "sqlite":
            box.taken.extend([row[0] for row in rows])
        if not self._driver.in_transaction:  # a transaction may give them back
            box.took(priority, rows[0][0], rows[-1][0])

    async def _take_rest(
        self, taking: Statement, params: dict[str, Any], have: int, box: Box, direct_s: float
    ) -> list[Any]:
        """Rows ran short: look from the start, then give back what is overdue and look again."""
        driver, address, limit = self._driver, params["address"], params["limit"]
        taking = CLAIM if taking is CLAIM_ONE else taking
        rows: list[Any] = []
        if params["mark"] and clock() >= box.costly_until:
            rows = await self._look_again({**params, "limit": limit - have}, taking, box, direct_s)
        have += len(rows)
        if (limit is None or have < limit) and await self._sweep(address):
            rest = None if limit is None else limit - have
            return rows + await driver.run(taking, {**params, "mark": 0, "limit": rest})
        if not have and box.taken and params["priority"] is None:
            box.taken = []
            await driver.run(CLEAR_READY, {"address": address, "before": LAST_ID})
        elif limit is None:
            await self._clear_left(params, box, LAST_ID)
        return rows

    async def _clear_left(self, params: dict[str, Any], box: Box, before: int) -> None:
        """Clear away what others left on SQLite's ready list: a process that takes a few rows and ends does not come to
        it, and whoever starts after it passes over its rows."""
        driver, now = self._driver, clock()
        if (
            driver.dialect != "sqlite"
            or params["priority"] is not None
            or driver.in_transaction
            or now < box.next_clear
        ):
            return
        box.next_clear = now + CLEAR_S
        where = {"address": params["address"], "before": before}
        with contextlib.suppress(CrowmemError):  # what the caller took is committed and must reach him; it can wait
            [[left]] = await driver.run(LEFT, {**where, "limit": CLEAR_AFTER})
            if left >= CLEAR_AFTER:
                await driver.run(CLEAR_READY, where)

    async def _look_again(self, params: dict[str, Any], taking: Statement, box: Box, direct_s: float) -> list[Any]:
        """Take from the start of a mailbox. Where that is slow and in vain, dead index entries are in the way: the next
        looks begin behind everything there is now."""
        began = clock()
        rows = await self._driver.run(taking, {**params, "mark": 0})
        now = clock()
        if box.looked(now - began, now, direct_s) and not rows and not self._driver.in_transaction:
            box.marks[params["priority"]] = int(await self._value(LAST))
        await self._clear_left(params, box, min(row[0] for row in rows) if rows else LAST_ID)
        return rows

    async def _tidy(self, address: str, box: Box, now: float) -> None:
        """What is due now and then, however busy the mailbox is."""
        if len(box.taken) >= CLEAR_AFTER:
            taken, box.taken = box.taken, []
            await self._driver.run(CLEAR_TAKEN, {"address": address, "ids": taken})
        if now >= box.next_sweep:
            box.next_sweep = now + LOOK_S
            await self._sweep(address)

    async def _sweep(self, address: str) -> bool:
        """Give back what is overdue; True when some of it can be handed out again."""
        params = {"address": address, "limit": SWEPT, "max_attempts": self._store.max_attempts}
        back = any(status == "pending" for (status,) in await self._driver.run(SWEEP, params))
        if back:
            self._store.marks.box(address).forget()
        return back

    async def _ack_and_lease(
        self,
        held: list[LeasedDelivery],
        address: str,
        priority: str | None,
        limit: int,
        extra: dict[str, Any],
    ) -> list[tuple[Any, ...]]:
        box, now = self._store.marks.box(address), clock()
        if box.is_due(now):
            await self._tidy(address, box, now)
        mark = 0 if self._driver.in_transaction else box.start(priority, now)
        params = {"address": address, "priority": priority, "limit": limit, "mark": mark, **extra}
        urgent = priority is not None and priority != "low"
        lease = LEASE_URGENT if urgent else LEASE
        token = held[0].lease_token
        alike = self._driver.dialect == "postgres" and not urgent and all(one.lease_token == token for one in held)
        if alike:
            rows = await self._driver.run(ACK_LEASE, {**params, "ids": [one.id for one in held], "token": token})
            if rows and not rows[0][-1]:  # a row without a token names one that was not acknowledged
                left = {row[0] for row in rows}
                held, alike = [one for one in held if one.id in left], False
        if not alike:
            async with self._driver.transaction() as tx:
                acked = await self._ack_on(tx, held)
                rows = await tx.run(lease, params) if len(acked) == len(held) else []
            _raise_lost(held, acked)
        if rows:
            self._took(rows, priority, box)
        if len(rows) < limit:
            box.forget()
            box.next_sweep = 0.0
        return rows

    @operation
    async def renew(self, delivery: LeasedDelivery, lease_s: float) -> LeasedDelivery:
        """Let a lease end ``lease_s`` seconds from now.

        Args:
            delivery: as `lease` returned it.
            lease_s: seconds from now, 0.001 to those of 366 days.

        Returns:
            The delivery with its new end; its token stays.

        Raises:
            LeaseLost: it came back or has a newer owner; stop working on it.
        """
        [leased] = _leased("delivery", [delivery])
        lease_us = micros(check_seconds("lease_s", lease_s, 0.001, LONGEST_S))
        found = await self._one(RENEW, id=leased.id, token=leased.lease_token, lease_us=lease_us)
        if found is None:
            raise _lost([leased])
        return found  # type: ignore[no-any-return]

    @operation
    async def ack(self, delivery: LeasedDelivery) -> None:
        """The work is done: the item is delivered and will not come again.

        Args:
            delivery: as `lease` or `renew` returned it.

        Raises:
            LeaseLost: it came back, has a newer owner, or was acknowledged before; nothing was changed.
        """
        [leased] = _leased("delivery", [delivery])
        if not await self._many(ACK, id=leased.id, token=leased.lease_token):
            raise _lost([leased])

    @operation
    async def ack_many(self, deliveries: Sequence[LeasedDelivery]) -> list[int]:
        """Acknowledge many items.

        Args:
            deliveries: as `lease` or `renew` returned them; [] does nothing.

        Returns:
            Their ids.

        Raises:
            LeaseLost: some leases were lost; the message names them. All others are acknowledged.
        """
        held = _leased("deliveries", deliveries)
        acked = await self._ack_on(self._driver, held) if held else set()
        _raise_lost(held, acked)
        return sorted(acked)

    async def _ack_on(self, driver: Any, held: list[LeasedDelivery]) -> set[int]:
        if driver.dialect == "postgres":
            rows = await driver.run(ACK_MANY, _pairs(held))
        else:
            rows = await driver.run_batch(ACK_MANY, [{"id": one.id, "token": one.lease_token} for one in held])
        return {int(found) for (found,) in rows}

    @operation
    async def release(self, delivery: LeasedDelivery, *, delay_s: float = 0.0, error: str | None = None) -> Delivery:
        """Give a leased item back before its time.

        Args:
            delivery: as `lease` gave it.
            delay_s: hand it out again no earlier than so many seconds from now.
            error: why, kept as its last_error.

        Returns:
            The item: pending, waiting, or dead when this was its last attempt.

        Raises:
            LeaseLost: it came back or has a newer owner; nothing was changed.
        """
        [leased] = _leased("delivery", [delivery])
        back = await self._one(
            RELEASE,
            id=leased.id,
            token=leased.lease_token,
            delay_us=micros(check_seconds("delay_s", delay_s, 0, LONGEST_S)),
            error=check_optional_text("error", error, limit=MESSAGE_BYTES),
            max_attempts=self._store.max_attempts,
        )
        if back is None:
            raise _lost([leased])
        self._store.marks.box(back.session_id).forget()
        if back.status == "pending":
            await self._driver.announce(back.session_id)
        return back  # type: ignore[no-any-return]

    @operation
    async def get(self, delivery_id: int) -> Delivery | None:
        """One item by id, whatever its status, or None.

        Args:
            delivery_id: the item's number.
        """
        return await self._one(GET, id=check_range("delivery_id", delivery_id, *INTEGER))  # type: ignore[no-any-return]

    @operation
    async def pending(self, address: str, *, limit: int = 1000) -> list[Delivery]:
        """What a mailbox has to hand out, in the order of arrival.

        Args:
            address: the mailbox; one that nothing was ever sent to is empty.
            limit: most items to return, 1 to 100,000.
        """
        return await self._many(PENDING, address=_address(address), limit=check_range("limit", limit, 1, MOST))

    @operation
    async def dead(self, address: str, *, limit: int = 1000) -> list[Delivery]:
        """Items of a mailbox that are given up, each with its attempts and last_error, in the order of arrival.

        Args:
            address: the mailbox.
            limit: most items to return, 1 to 100,000.
        """
        return await self._many(DEAD, address=_address(address), limit=check_range("limit", limit, 1, MOST))

    @operation
    async def revive(self, delivery_id: int) -> bool:
        """Hand a dead item out again, with all its attempts; True for one of any number of racing callers.

        Args:
            delivery_id: the item's number; False when it is unknown or not dead.
        """
        address = await self._value(REVIVE, id=check_range("delivery_id", delivery_id, *INTEGER))
        if address is None:
            return False
        self._store.marks.box(address).forget()
        await self._driver.announce(address)
        return True

    @operation
    async def count(self, address: str) -> dict[str, int]:
        """How many items of a mailbox stand in each status: pending, waiting, leased, delivered, dead.

        Args:
            address: the mailbox.
        """
        found = {status: int(rows) for status, rows in await self._many(COUNT, address=_address(address))}
        return {**dict.fromkeys(STATUSES, 0), **found}

    @operation
    async def mark_delivered(self, delivery_ids: Sequence[int]) -> int:
        """Stamp items as delivered, whoever holds them.

        Args:
            delivery_ids: the items' numbers; unknown ones are passed over.

        Returns:
            How many were not delivered before.
        """
        given = check_list("delivery_ids", delivery_ids)
        ids = [check_range(f"delivery_ids[{n}]", one, *INTEGER) for n, one in enumerate(given)]
        return len(await self._many(MARK, ids=ids)) if ids else 0

    @operation
    async def wait(self, address: str, *, timeout_s: float) -> bool:
        """Sleep until a mailbox has something to hand out.

        Nothing is taken, so another consumer may be faster: loop over `claim` or `lease` and this.

        Args:
            address: which mailbox.
            timeout_s: most seconds to wait, 0 to 366 days; 0 only looks.

        Returns:
            True when something is ready, False when the time is up.
        """
        topic = check_text("address", address)
        until = clock() + check_seconds("timeout_s", timeout_s, 0, LONGEST_S)
        while True:
            rows = await self._driver.run(READY, {"topics": [topic]})
            due_s = rows[0][1] / 1_000_000 if rows else LONGEST_S
            if due_s <= 0:
                return True
            left = until - clock()
            if left <= 0:
                return False
            await self._driver.wait(topic, min(left, due_s), READY)

    @operation
    async def purge(self, *, finished_before: Any) -> int:
        """Delete items that were delivered before a moment, a thousand at a time. Dead ones stay.

        Args:
            finished_before: an aware datetime, or ISO 8601 text.

        Returns:
            How many were deleted.
        """
        params = {"before": time_text("finished_before", finished_before), "after_id": 0, "limit": PURGED}
        deleted = 0
        while rows := await self._many(PURGE, **params):
            deleted += len(rows)
            params["after_id"] = max(int(found) for (found,) in rows)
        return deleted


def _address(value: Any) -> str:
    return check_text("address", value, empty=True)


def _content(name: str, value: Any) -> str:
    if isinstance(value, (dict, list)):
        return encode_json(value, name)
    return check_text(name, value, empty=True, limit=MESSAGE_BYTES)


def _claimed(address: str, rows: list[tuple[Any, ...]]) -> list[Delivery]:
    """Rows of a claim with what is the same for all of them; their stamps mostly are, too."""
    stamps: dict[str, Any] = {}
    found = []
    for delivery_id, task_id, priority, content, created_at, delivered_at, attempts, last_error in rows:
        made, taken = stamps.get(created_at), stamps.get(delivered_at)
        if made is None:
            made = stamps[created_at] = moment(created_at)
        if taken is None:
            taken = stamps[delivered_at] = moment(delivered_at)
        found.append(
            Delivery(
                delivery_id, address, task_id, priority, content, "delivered", made, taken, attempts, None, last_error
            )
        )
    return found


def _leases(address: str, worker: str, rows: list[tuple[Any, ...]]) -> list[LeasedDelivery]:
    """As `_claimed`, of leases; all of one call end together."""
    stamps: dict[Any, Any] = {}
    found = []
    for delivery_id, task_id, priority, content, created_at, delivered_at, attempts, due_at, last_error, token in rows:
        made, ends = stamps.get(created_at), stamps.get(due_at)
        if made is None:
            made = stamps[created_at] = moment(created_at)
        if ends is None:
            ends = stamps[due_at] = moment(due_at)
        taken = None if delivered_at is None else moment(delivered_at)
        found.append(
            LeasedDelivery(
                delivery_id,
                address,
                task_id,
                priority,
                content,
                "leased",
                made,
                taken,
                attempts,
                ends,
                last_error,
                token,
                worker,
            )
        )
    return found


def _leased(name: str, values: Any) -> list[LeasedDelivery]:
    found = check_list(name, values, MOST)
    for number, one in enumerate(found):
        if not isinstance(one, LeasedDelivery):
            place = name if name == "delivery" else f"{name}[{number}]"
            raise InvalidValue(f"{place} is of type {type(one).__name__}, expected what lease returned")
    if len({one.id for one in found}) == len(found):
        return found
    return list({(one.id, one.lease_token): one for one in found}.values())


def _pairs(held: list[LeasedDelivery]) -> dict[str, list[int]]:
    return {"ids": [one.id for one in held], "tokens": [one.lease_token for one in held]}


def _raise_lost(held: list[LeasedDelivery], acked: set[int]) -> None:
    newest = {one.id: one.lease_token for one in sorted(held, key=attrgetter("lease_token"))}
    if lost := [one for one in held if one.id not in acked or one.lease_token != newest[one.id]]:
        raise _lost(lost)


def _lost(leases: list[LeasedDelivery]) -> LeaseLost:
    named = ", ".join(f"{one.id} (token {one.lease_token})" for one in leases[:20])
    more = f" and {len(leases) - 20} more" if len(leases) > 20 else ""
    return LeaseLost(
        f"the lease of delivery {named}{more} ended, has a newer owner or was acknowledged; stop working on it"
    )

"""Messages: what every agent said, was told and did, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.content import content_texts
from crowmem.errors import InvalidValue
from crowmem.image_keeping import keep, put_back
from crowmem.images import extract
from crowmem.message_rows import PIECE_ROWS, Row, make_row, place_of, put, put_many
from crowmem.operation import M, Repository, operation
from crowmem.records import Message
from crowmem.statement import statement
from crowmem.values import (
    INTEGER,
    check_choice,
    check_list,
    check_optional_text,
    check_range,
    check_texts,
    decode_stored,
    optional_time_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


GET = statement("message_get", Message)
LOAD = statement("message_load")
VIEW = statement("message_view")
QUERY = statement("message_query", Message)
QUERY_NEWEST = statement("message_query_newest", Message)
QUERY_SOME = statement("message_query_some", Message)
QUERY_SOME_NEWEST = statement("message_query_some_newest", Message)
QUERY_AGENT = statement("message_query_agent", Message)
QUERY_AGENT_NEWEST = statement("message_query_agent_newest", Message)
HORIZON = statement("message_horizon")
WRITERS = statement("message_writers")
HOLE = statement("message_hole")
FOLLOW = statement("message_follow", Message)
FOLLOW_SESSION = statement("message_follow_session", Message)
RECENT = statement("message_recent")

MOST = 100_000  # rows of one page
LOOKS = 10  # how often a follower looks whether the writers it saw have ended, before it holds back behind them
LOOK_S = 0.01


class Messages(Repository[M]):
    """The messages of every agent: append, load, page, follow."""

    @operation
    async def add(
        self,
        agent_id: str,
        message: Mapping[str, Any],
        *,
        usage: Mapping[str, Any] | None = None,
        created_at: Any = None,
        injected: bool = False,
    ) -> int:
        """Append one message; when this returns it is durable and can be found.

        Args:
            agent_id: whose it is, ``<session>-<agent index>-<fork index>``; there need be no agent row.
            message: a JSON object, at most 256 MiB as text, nested at most 200 deep. It is not changed. Its images go
                to the image store, and references stand in their place.
            usage: token counts: prompt_tokens, completion_tokens, total_tokens.
            created_at: aware datetime or ISO 8601 text; now by default.
            injected: the text was put in by a program (a wrapper, a compaction summary), not written by the user.

        Returns:
            The message's id, larger than any before it in this store.

        Raises:
            InvalidValue: the agent id is malformed, or the message holds what JSON cannot carry or a reference to an
                image that is no key; nothing was written.
            OutcomeUnknown: the connection broke; look whether it is there before adding it again.
        """
        place = place_of(agent_id)
        stem, dialect = self._store.stem, self._driver.dialect
        found = None if self._holds_no_image(message) else extract(message, "message")  # type: ignore[arg-type]
        kept = message if found is None else found.message
        row = make_row(agent_id, place, kept, usage, created_at, injected, stem, dialect, "message")
        if found is None or not found.keys:
            return await put(self._driver, row)
        return await keep(self._driver, self._store, found.blobs, lambda tx: put(tx, row))

    @operation
    async def add_many(
        self,
        agent_id: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        usages: Sequence[Mapping[str, Any] | None] | None = None,
        created_ats: Sequence[Any] | None = None,
        injected: Sequence[bool] | None = None,
    ) -> list[int]:
        """Append many messages of one agent in one transaction: all of them or none.

        Args:
            agent_id: as for `add`.
            messages: 0 to 1,000,000 JSON objects.
            usages: as many usages (or None each) as messages.
            created_ats: as many times (or None each) as messages.
            injected: as many flags as messages.

        Returns:
            The ids, in the order of the messages.

        Raises:
            InvalidValue: as for `add`, naming the message's place in the list, or lists of different lengths.
        """
        place = place_of(agent_id)
        given = check_list("messages", messages)
        kept, blobs, refers = self._without_images(given)
        columns = zip(
            kept,
            _as_many("usages", usages, given),
            _as_many("created_ats", created_ats, given),
            _as_many("injected", injected, given),
            strict=True,
        )
        stem, dialect = self._store.stem, self._driver.dialect
        rows: Iterable[Row] = (
            make_row(agent_id, place, message, usage, created_at, bool(flag), stem, dialect, f"messages[{number}]")
            for number, (message, usage, created_at, flag) in enumerate(columns)
        )
        if len(given) <= PIECE_ROWS:
            rows = list(rows)  # so that what is wrong with one of them is found before a transaction begins
        if not refers:
            return await put_many(self._driver, rows) if given else []
        return await keep(self._driver, self._store, blobs, lambda tx: put_many(tx, rows))

    def _without_images(self, messages: list[Any]) -> tuple[list[Any], dict[str, bytes], bool]:
        """Messages as they are stored, the images taken out of them, and whether any message names an image."""
        kept: list[Any] = []
        blobs: dict[str, bytes] = {}
        refers = False
        for number, message in enumerate(messages):
            if self._holds_no_image(message):
                kept.append(message)
                continue
            found = extract(message, f"messages[{number}]")
            kept.append(found.message)
            blobs |= found.blobs
            refers = refers or bool(found.keys)
        return kept, blobs, refers

    def _holds_no_image(self, message: Any) -> bool:
        """Whether none can be in it: there is no image store, it is text and no more, or no message at all."""
        return (
            self._store.images is None
            or type(message) is not dict
            or (len(message) == 2 and "role" in message and type(message.get("content")) is str)
        )

    @operation
    async def get(self, message_id: int) -> Message | None:
        """One message by id, or None.

        Args:
            message_id: its id, as `add` returned it.
        """
        return await self._one(GET, id=check_range("message_id", message_id, *INTEGER))  # type: ignore[no-any-return]

    @operation
    async def load(self, agent_id: str, *, hydrate: bool = False) -> list[dict[str, Any]]:
        """An agent's messages as it sees them, oldest first: a fork's begin with what it shares.

        Args:
            agent_id: a trunk agent or a fork; [] for an unknown one.
            hydrate: put stored images back in place of their references; a reference whose image is missing stays.

        Returns:
            Dicts equal to those that were added, with references in place of images unless they are put back.

        Raises:
            BlobDamaged: an image is damaged and there is no good copy.
            Unavailable: the image store cannot be asked.
        """
        messages = decode_stored(await self._texts(agent_id), f"a message of agent {agent_id!r}")
        return await put_back(self._driver, self._store, messages) if hydrate else messages

    @operation
    async def load_json(self, agent_id: str) -> str:
        """The same view as `load`, as the text of one JSON array; nothing is decoded, so it is several times faster.

        Args:
            agent_id: as for `load`.
        """
        texts = await self._texts(agent_id)
        if not texts:
            return "[]"
        texts[0] = f"[{texts[0]}"  # one copy of the whole, where brackets around the joined text would make two
        texts[-1] += "]"
        return ",".join(texts)

    async def _texts(self, agent_id: str) -> list[str]:
        place = place_of(agent_id)
        loading = LOAD if place.fork_idx <= 1 else VIEW
        return [text for (text,) in await self._many(loading, agent_id=agent_id)]

    @operation
    async def query(
        self,
        *,
        session_id: str | None = None,
        agent_ids: Sequence[str] | None = None,
        agent_idx: int | None = None,
        roles: Sequence[str] | None = None,
        after: Any = None,
        before: Any = None,
        include_forks: bool = True,
        injected: bool = True,
        order: str = "asc",
        limit: int = 1000,
        offset: int = 0,
        after_id: int | None = None,
    ) -> list[Message]:
        """Messages by any mix of filters, by id.

        Args:
            session_id: of this session's agents only.
            agent_ids: of these agents only; [] finds nothing.
            agent_idx: of agents with this index only.
            roles: with these roles only.
            after: created later than this; datetime or ISO 8601 text.
            before: created earlier than this.
            include_forks: False leaves out forks' own messages.
            injected: False leaves out text that a program put in (wrappers, compaction summaries).
            order: "asc" (oldest first) or "desc".
            limit: most messages to return, 1 to 100,000.
            offset: how many to pass over; for deep pages use after_id.
            after_id: continue after this id, in the direction of the order.
        """
        newest = check_choice("order", order, ("asc", "desc")) == "desc"
        session = check_optional_text("session_id", session_id)
        agents = None if agent_ids is None else check_texts("agent_ids", agent_ids)
        index = None if agent_idx is None else check_range("agent_idx", agent_idx, 0, 2**31 - 1)
        start = None if after_id is None else check_range("after_id", after_id, *INTEGER)
        filters = {
            "roles": None if roles is None else check_texts("roles", roles),
            "after": optional_time_text("after", after),
            "before": optional_time_text("before", before),
            "include_forks": bool(include_forks),
            "injected": bool(injected),
            "limit": check_range("limit", limit, 1, MOST),
            "offset": check_range("offset", offset, 0, 2**62),
        }
        filters["after_id"] = (INTEGER[1] if newest else INTEGER[0]) if start is None else start
        if session is None and agents is None:
            return await self._many(QUERY_NEWEST if newest else QUERY, agent_idx=index, **filters)
        if session is None and index is None and agents is not None and len(agents) == 1:
            return await self._many(QUERY_AGENT_NEWEST if newest else QUERY_AGENT, agent_id=agents[0], **filters)
        filters |= {"session_id": session, "agent_ids": agents, "agent_idx": index}
        return await self._many(QUERY_SOME_NEWEST if newest else QUERY_SOME, **filters)

    @operation
    async def follow(self, after_id: int, *, session_id: str | None = None, limit: int = 1000) -> list[Message]:
        """The messages after an id, oldest first, for whoever remembers the last id it got.

        A message whose transaction commits late is never skipped: what lies behind a gap that an open transaction may
        still fill is held back until that one has ended.

        Args:
            after_id: the last id received; 0 to begin.
            session_id: of this session's agents only.
            limit: most messages to return, 1 to 100,000.
        """
        start = check_range("after_id", after_id, 0, INTEGER[1])
        session = check_optional_text("session_id", session_id)
        most = check_range("limit", limit, 1, MOST)
        [[newest, writers]] = await self._many(HORIZON)
        if newest > start and writers and not await self._have_ended(writers):
            safe = await self._value(HOLE, after_id=start, upto=newest)
            newest = newest if safe is None else safe
        if newest <= start:
            return []
        if session is None:
            return await self._many(FOLLOW, after_id=start, upto=newest, limit=most)
        return await self._many(FOLLOW_SESSION, session_id=session, after_id=start, upto=newest, limit=most)

    async def _have_ended(self, writers: str) -> bool:
        """Give writers that were open a moment ago the time of a usual commit."""
        for _ in range(LOOKS):
            if not await self._value(WRITERS, writers=writers):
                return True
            if self._driver.in_transaction:
                return False
            await self._driver.wait("messages", LOOK_S)
        return False

    @operation
    async def last_assistant_text(self, agent_id: str, fallback: str = "") -> str:
        """The text of the last assistant message of an agent's view that has any, its blocks joined by a blank.

        Args:
            agent_id: a trunk agent or a fork.
            fallback: returned when there is none.
        """
        place_of(agent_id)
        recent = [text for (text,) in await self._many(RECENT, agent_id=agent_id, limit=100)]
        for texts in (recent, None):
            for text in reversed(await self._texts(agent_id)) if texts is None else texts:
                if found := _assistant_text(decode_stored([text], f"a message of agent {agent_id!r}")[0]):
                    return found
        return fallback


def _as_many(name: str, values: Sequence[Any] | None, messages: list[Any]) -> list[Any]:
    found = [None] * len(messages) if values is None else check_list(name, values)
    if len(found) != len(messages):
        raise InvalidValue(
            f"{name} has {len(found):,} items for {len(messages):,} messages: give one each, or none at all"
        )
    return found


def _assistant_text(message: Any) -> str:
    """The text of an assistant message, "" when it has none worth showing."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return ""
    content = message.get("content")
    if isinstance(content, str):
        return content if content.strip() else ""
    return " ".join(text for text in content_texts(content) if text.strip())

"""Search: messages by their words, and the care of the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.content import search_text
from crowmem.drivers.codec import decoded
from crowmem.errors import Conflict, InvalidValue
from crowmem.filters import FEW, scope_of
from crowmem.operation import M, Repository, operation
from crowmem.query import parse
from crowmem.ranking import Search as Ranking
from crowmem.records import Hit
from crowmem.scope import agent_parts
from crowmem.snippet import Snippets
from crowmem.statement import statement
from crowmem.summaries import mend_summaries
from crowmem.upkeep import optimize, reindex
from crowmem.values import check_choice, check_range, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from crowmem.query import Query
    from crowmem.ranking import Ranked

IMAGES_LACKING = statement("image_refs_lacking")
IMAGES_MEND = statement("image_refs_mend")
HITS = statement("search_hits")
SESSIONS = statement("search_sessions")
LAGGING = statement("search_lagging")

MATCHES = ("all", "any")
MOST = 1000  # hits of one page
FURTHEST = 100_000  # hits passed over before it


class Search(Repository[M]):
    """Keyword search over every message."""

    @operation
    async def messages(
        self,
        query: str,
        *,
        match: str = "all",
        exclude: str | None = None,
        limit: int = 20,
        offset: int = 0,
        session_id: str | None = None,
        agent_idx: int | None = None,
        agent_ids: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        include_forks: bool = True,
        after: Any = None,
        before: Any = None,
        tools: Sequence[str] | None = None,
        cwd: str | None = None,
        model: str | None = None,
        injected: bool = True,
        exhaustive: bool = False,
    ) -> list[Hit]:
        """Find messages by their words, best first.

        In the query only ``"quotes"`` (a phrase) and a trailing ``*`` (prefix, of 3 bytes or more) mean something; all
        else is words, and no text is an error. Case and accents do not count. Scripts without spaces are found by any
        part of a text.

        Work is bounded: when the words are so common that no rare one decides, the newest 65,536 messages are ranked
        (more, until enough match) instead of all; ``exhaustive`` ranks all of them. A search in a small scope, and one
        with a rare word, always sees every match.

        Args:
            query: what to look for; its first 64 tokens count. Blank finds nothing.
            match: "all": every word must occur, a word with inner punctuation (``src/main.py``) as a phrase. "any": any
                word may, function words left out while others remain; quotations that fail are tried again as words.
            exclude: words and quotations that must not occur.
            limit: most hits, 1 to 1,000.
            offset: hits to pass over, 0 to 100,000.
            session_id: only this session's messages.
            agent_idx: only those of agents with this index.
            agent_ids: only those of these agents; [] finds nothing.
            roles: only those with one of these roles.
            include_forks: also those that forks wrote.
            after: only those stamped later than this time (aware datetime or ISO 8601 text).
            before: only those stamped earlier.
            tools: only those that call one of these tools.
            cwd: only those of agents that work in this folder.
            model: only those of agents with this model.
            injected: also text that a program put in (wrappers, compaction summaries).
            exhaustive: rank every match, however long that takes.

        Returns:
            Hits by score (lower is better; BM25 as FTS5 computes it, the same on both databases), then newest first.
            Where the newest messages are ranked, those that older ones add stand after them: pages fit together.

        Raises:
            InvalidValue: an argument outside its range.
            Unavailable: nothing happened, safe to retry.

        Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009; SQLite, "FTS5", bm25().
        """
        most = check_range("limit", limit, 1, MOST)
        first = check_range("offset", offset, 0, FURTHEST)
        parsed = parse(
            _text("query", query),
            match=check_choice("match", match, MATCHES),
            exclude="" if exclude is None else _text("exclude", exclude),
            stem=self._store.stem,
        )
        scope = scope_of(
            session_id=session_id,
            agent_idx=agent_idx,
            agent_ids=agent_ids,
            roles=roles,
            include_forks=include_forks,
            after=after,
            before=before,
            tools=tools,
            cwd=cwd,
            model=model,
            injected=injected,
        )
        if cwd is not None or model is not None:
            sessions = [name for (name,) in await self._many(SESSIONS, cwd=cwd, model=model, most=FEW + 1)]
            scope = scope.in_sessions(sessions) if len(sessions) <= FEW else scope
        asked: Query | None = parsed
        found: Ranked = []
        while asked is not None and asked.terms and not scope.empty and not found:
            search = Ranking(self._driver, self._store, asked, scope, first + most, exhaustive=bool(exhaustive))
            found = await search.run()
            asked = asked.unquoted()
        return await self._hits(found[first:], parsed)

    @operation
    async def lagging(self, *, most: int = 1000) -> int:
        """How many messages of other programs are not indexed yet, so that a read-only store does not find them.

        A store that may write indexes them before it searches.

        Args:
            most: where counting ends, 1 to 1,000,000.
        """
        return int(await self._value(LAGGING, most=check_range("most", most, 1, 1_000_000)))

    @operation
    async def reindex(self, *, stem: bool | None = None, progress: Callable[[int, int], object] | None = None) -> int:
        """Make the index again while it is used; one that was cut short goes on where it stopped.

        Then count those sessions again whose line in the list is wrong, as `check(deep=True)` tells.

        Args:
            stem: index word stems from now on, or whole words; None leaves it. Close other programs that write to this
                store first: they go on as they began.
            progress: called after each batch with messages done and messages in all.

        Returns:
            How many messages were indexed.

        Raises:
            Conflict: inside a transaction; it needs many of its own.
        """
        self._alone("reindex")
        wanted = self._store.stem if stem is None else bool(stem)
        done = await reindex(self._driver, self._store, stem=wanted, progress=progress)
        await mend_summaries(self._driver)
        if await self._value(IMAGES_LACKING):  # a look keeps no writer waiting
            await self._many(IMAGES_MEND)
        return done

    @operation
    async def optimize(self, *, merge: bool = True) -> None:
        """Finish what the index leaves for later: rows of other programs, deleted words, counts of common words.

        Worth its time now and then; searches are then faster, and PostgreSQL's scores exact.

        Args:
            merge: whether to merge SQLite's index into one piece, too, which reads and writes all of it. False takes
                time by what is new.

        Raises:
            Conflict: inside a transaction; it needs many of its own.
        """
        self._alone("optimize")
        await optimize(self._driver, self._store, merge=bool(merge))

    def _alone(self, what: str) -> None:
        if self._driver.in_transaction:
            raise Conflict(f"search.{what} needs transactions of its own; call it outside of this one")

    async def _hits(self, ranked: Ranked, query: Query) -> list[Hit]:
        """The messages found, in order. One that was deleted in this very moment is left out."""
        if not ranked:
            return []
        snippets = Snippets(query.terms, stem=self._store.stem)
        messages = {row[0]: row for row in await self._many(HITS, ids=[found for found, _ in ranked])}
        hits = []
        for message_id, score in ranked:
            if (row := messages.get(message_id)) is not None:
                _, agent_id, fork_idx, role, created_at, data = row
                place, message = agent_parts(agent_id), decoded(data)
                hits.append(
                    Hit(
                        message_id,
                        agent_id,
                        place.session_id,
                        place.agent_idx,
                        fork_idx,
                        role,
                        moment(created_at),
                        message,
                        score,
                        snippets.of(search_text(message)),
                    )
                )
        return hits


def _text(name: str, value: Any) -> str:
    """Any text at all: a query may hold what no column can."""
    if not isinstance(value, str):
        raise InvalidValue(f"{name} is of type {type(value).__name__}, expected text")
    return value

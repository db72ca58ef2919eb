"""The store as a whole: its status, its health, its copies."""

from __future__ import annotations

from typing import Any

from crowmem.backups import begin, clear, finish
from crowmem.errors import DatabaseError, StoreCorrupt, StoreFull, Unsupported
from crowmem.image_health import image_problems, image_status
from crowmem.index_health import problems
from crowmem.message_health import message_problems
from crowmem.operation import M, Repository, operation
from crowmem.records import Status
from crowmem.shape_health import missing_objects
from crowmem.statement import statement
from crowmem.summaries import summary_problems
from crowmem.values import check_path

STEPS = statement("step_list")
ROWS = statement("store_rows")
INDEX = statement("store_index")
PROBLEMS = statement("store_problems")
DEEP_PROBLEMS = statement("store_problems_deep")
REFERENCES = statement("store_references")
BACKUP = statement("store_backup")
OLD_SNAPSHOTS = statement("store_old_snapshots")

OLD_S = 60  # a snapshot that is held longer than this is worth a word


class Stores(Repository[M]):
    """What concerns a store as a whole; its operations are methods of Memory itself."""

    @operation
    async def status(self) -> Status:
        """How the store is doing."""
        state = await self._driver.state()
        steps = await self._many(STEPS)
        [[documents, lagging, partly]] = await self._many(INDEX)
        return Status(
            dialect=self._driver.dialect,
            where=self._store.where,
            schema_version=steps[-1][0][:4] if steps else "",
            durability=state["durability"],
            journal=state["journal"],
            log_bytes=state["log_bytes"],
            pool=state["pool"],
            rows=dict(await self._many(ROWS)),
            images=await image_status(self._driver, self._store),
            search={"documents": documents, "lagging": lagging, "partly": partly, "stem": self._store.stem},
            warnings=await self._warnings(),
        )

    async def _warnings(self) -> list[str]:
        if self._driver.dialect == "sqlite":
            return []
        return [
            f"a transaction has been open for {seconds:,} s (process {pid} of the server, {name or 'no name'}): the "
            "rows that mailboxes finish meanwhile cannot be cleared away, and claims get slower; end it"
            for pid, seconds, name in await self._many(OLD_SNAPSHOTS, older_s=OLD_S)
        ]

    @operation
    async def check(self, deep: bool = False) -> list[str]:
        """Problems found, in plain words."""
        found: list[str] = []
        for look in (PROBLEMS, DEEP_PROBLEMS, REFERENCES) if deep else (PROBLEMS,):
            try:
                found += [text for (text,) in await self._many(look)]
            except (StoreCorrupt, DatabaseError) as error:
                found.append(f"damaged: {error}")
        found += await missing_objects(self._driver)
        if deep:
            try:
                found += await summary_problems(self._driver)
            except StoreCorrupt as error:
                found.append(f"sessions: damaged: {error}")
            found += await image_problems(self._driver, self._store)
            unreadable = await message_problems(self._driver)
            if unreadable:  # the index cannot be compared with them
                return found + unreadable
        return found + await problems(self._driver, self._store, deep=deep)

    @operation
    async def backup(self, path: Any) -> None:
        """A consistent copy of a SQLite store."""
        if self._driver.dialect != "sqlite":
            raise Unsupported("backup copies a SQLite file; for PostgreSQL use pg_dump, or `crowmem copy` into a file")
        place = await self._driver.offload(begin, check_path("path", path))
        try:
            await self._many(BACKUP, path=str(place.copy))
            await self._driver.offload(finish, place)
        except StoreFull as error:
            raise StoreFull(f"{place.target}: no room left for the copy, of which nothing was kept") from error
        finally:
            await self._driver.offload(clear, place)

"""One PostgreSQL database for many tests, emptied between them in a millisecond or so.

The store makes its schema once; what its schema steps wrote (their own record,
counters) is the baseline that every test starts from. Emptying deletes all
rows and puts the baseline back in one round trip. A test that left another
schema behind costs a rebuild, not the next test's truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

BASELINE = "crowmem_test_baseline"  # a schema beside the store's, with copies of its first rows
BLOATED_BYTES = 4 << 20  # deleted rows stay in the file, since autovacuum is off; past this it is cut to nothing
LOCK_LIMIT = "10s"

# Everything of the schema that a test could have changed, as one short text.
FINGERPRINT = SQL(
    """
    select md5(coalesce(string_agg(part, ' ' order by part), '')), coalesce(max(size), 0) from (
        select format('%s %s %s %s', c.relname, c.relkind, a.attname, a.atttypid) as part,
               case when c.relkind = 'r' then pg_total_relation_size(c.oid) end as size
        from pg_class c left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where c.relnamespace = 'public'::regnamespace
        union all select format('trigger %s %s', t.tgname, t.tgenabled), null
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = 'public'::regnamespace and not t.tgisinternal
        union all select format('function %s %s', p.proname, md5(p.prosrc)), null
        from pg_proc p where p.pronamespace = 'public'::regnamespace
    ) as parts
    """
)


class SharedDatabase:
    """A database that many tests use one after the other.

    Args:
        url: where it is; it has nothing in its public schema yet.
        create: makes the store's schema there.
    """

    def __init__(self, url: str, create: Callable[[str], None]) -> None:
        self.url = url
        self._create = create
        self._fingerprint = ""
        self._refill = Composed([])
        self._truncate = Composed([])

    def clean(self) -> str:
        """Empty it, as if the store had just been created there.

        Returns:
            Its URL.
        """
        with psycopg.connect(self.url, options=f"-c lock_timeout={LOCK_LIMIT}") as connection:
            found = connection.execute(FINGERPRINT).fetchone()
            if found is not None and found[0] == self._fingerprint:
                if found[1] > BLOATED_BYTES:
                    connection.execute(self._truncate)
                connection.execute(self._refill)
                return self.url
        self._rebuild()
        return self.url

    def _rebuild(self) -> None:
        with psycopg.connect(self.url, options=f"-c lock_timeout={LOCK_LIMIT}") as connection:
            connection.execute("drop schema public cascade")
            connection.execute("create schema public")
        self._create(self.url)
        with psycopg.connect(self.url) as connection:
            self._remember(connection)

    def _remember(self, connection: psycopg.Connection) -> None:
        """Copy the first rows, and write down the statements that bring them back."""
        tables = connection.execute(
            "select relname, array(select attname::text from pg_attribute where attrelid = c.oid and attnum > 0"
            " and not attisdropped and attgenerated = '' order by attnum)"
            " from pg_class c where relnamespace = 'public'::regnamespace and relkind = 'r' order by relname"
        ).fetchall()
        connection.execute(SQL("drop schema if exists {} cascade").format(Identifier(BASELINE)))
        connection.execute(SQL("create schema {}").format(Identifier(BASELINE)))
        steps: list[Composed | SQL] = [SQL("set session_replication_role = replica")]  # foreign keys and triggers wait
        for table, columns in tables:
            steps.append(SQL("delete from {}").format(Identifier("public", table)))
            kept = {"copy": Identifier(BASELINE, table), "table": Identifier("public", table)}
            connection.execute(SQL("create table {copy} as table {table}").format(**kept))
            if connection.execute(SQL("select 1 from {copy} limit 1").format(**kept)).fetchone():
                names = SQL(", ").join(map(Identifier, columns))
                steps.append(
                    SQL("insert into {table} ({names}) overriding system value select {names} from {copy}").format(
                        names=names, **kept
                    )
                )
        for name, start, last in connection.execute(
            "select sequencename, start_value, last_value from pg_sequences where schemaname = 'public'"
        ).fetchall():
            sequence = Literal(f'public."{name}"')
            used = Literal(last is not None)
            steps.append(SQL("select setval({}, {}, {})").format(sequence, Literal(last or start), used))
        self._refill = SQL("; ").join(steps)
        names = SQL(", ").join(Identifier("public", table) for table, _ in tables)
        self._truncate = SQL("truncate {}").format(names) if tables else Composed([])
        found = connection.execute(FINGERPRINT).fetchone()
        self._fingerprint = found[0] if found else ""

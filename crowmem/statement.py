"""Reads the .sql files: one `Statement` a name, one text a dialect.

A statement begins with a header line and prose, both comments::

    -- name: task_claim :many Task
    -- What it does, in units; what a repeat does.
    -- plan: task_deliveries_ready

The shape is ``:one`` (none or one row), ``:many`` or ``:none``. After it stands the record each row becomes, or the
plain types of its columns. Parameters are ``:name`` in every file; PostgreSQL gets them as ``$1``. Tables that both
dialects share are written ``main.<table>``: that is SQLite's own name for the file, and on PostgreSQL the store's
schema takes its place. ``select *``, ``returning *`` and ``alias.*`` become the record's fields, so a live client
survives a new column.

Both dialects declare the same names, shapes and results. A line ``-- differs:`` says why a text is not shared, and
allows it to leave parameters out; ``-- only:`` names the one dialect that has the statement, and why.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crowmem.resources import sql_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

DIALECTS = ("postgres", "sqlite")
SHAPES = ("one", "many", "none")

_HEADER = re.compile(r"-- name: (?P<name>[a-z][a-z0-9_]*) :(?P<shape>one|many|none)(?: (?P<result>[A-Za-z][\w, ]*))?")
# One token a match. Only the named groups mean something; the other alternatives are skipped whole.
_TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'                                   # string
    | "(?:[^"]|"")*"                                   # quoted identifier
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$                  # dollar-quoted string
    | --[^\n]*                                         # line comment
    | /\*.*?\*/                                        # block comment
    | ::\w+                                            # cast
    | :(?P<param>[a-z_]\w*)                            # parameter
    | \bmain\.|(?<=schema\ )main\b                     # schema
    | (?:(?<=select\ )|(?<=returning\ )|(?P<alias>\b[a-z_]\w*)\.)\*   # every field of the record
    """,
    re.X | re.S,
)
_BODY = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\bmain\.|(?<=create schema )main\b")
_WRITES = re.compile(r"\b(?:insert|update|delete|replace)\b(?!\s*\()")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement in both dialects, bound to what its rows become.

    Attributes:
        name: noun first, unique over all files.
        shape: "one", "many" or "none".
        record: the dataclass each row becomes; None: rows stay tuples.
        result: the result named in the header, as written.
        doc: the prose under the header.
        plans: the index it must use, by dialect, where a header names one.
        params: parameter names, in the order of the PostgreSQL numbers.
        texts: SQL by dialect, as the driver takes it but for the schema's name.
        where: ``folder/file.sql:line`` by dialect.
        writes: whether it changes rows.
    """

    name: str
    shape: str
    record: type[Any] | None
    result: str
    doc: str
    plans: dict[str, str]
    params: tuple[str, ...]
    texts: dict[str, str] = dataclasses.field(repr=False)
    where: dict[str, str] = dataclasses.field(repr=False)
    writes: bool = False


@dataclass(frozen=True, slots=True)
class _Source:
    """One statement as it stands in one file."""

    name: str
    shape: str
    result: str
    doc: str
    plan: str | None
    sql: str
    where: str


def statement(name: str, record: type[Any] | None = None) -> Statement:
    """Bind a statement by name; called at the top of a module, so a missing name fails at import.

    Args:
        name: as in the header.
        record: the dataclass of its rows; must be the one that the header names.

    Raises:
        LookupError: there is no such statement, or its header names another result.
    """
    sources = _catalogue().get(name)
    if sources is None:
        raise LookupError(f"no statement {name!r} under sql/")
    source = sources.get("postgres") or sources["sqlite"]
    wanted = record.__name__ if record else None
    named = source.result if source.result[:1].isupper() else None
    if wanted != named:
        raise LookupError(f"{source.where}: {name} gives {named}, bound to {wanted}")
    columns = [field.name for field in dataclasses.fields(record)] if record else []
    params = _parameters(source.sql)  # PostgreSQL's numbers; SQLite takes what it needs by name
    return Statement(
        name=name,
        shape=source.shape,
        record=record,
        result=source.result,
        doc=source.doc,
        plans={dialect: plan for dialect, one in sources.items() if (plan := one.plan)},
        params=params,
        texts={
            dialect: f"/* crowmem {name} */ " + _translate(sources[dialect].sql, dialect, params, columns)
            for dialect in sources
        },
        where={dialect: one.where for dialect, one in sources.items()},
        writes=any(_changes(one.sql) for one in sources.values()),
    )


def statement_names() -> list[str]:
    """The name of every statement under sql/, sorted."""
    return sorted(_catalogue())


def in_schema(text: str, schema: str) -> str:
    """Put a PostgreSQL schema's quoted name where a text says ``main.``, function bodies included."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return _TOKEN.sub(lambda token: _place(token, quoted), text)


def _place(token: re.Match[str], quoted: str) -> str:
    if token[0] in ("main.", "main"):
        return quoted + token[0][4:]
    if token[0].startswith("'main"):
        return _named(token[0], quoted)
    if token["tag"] is not None:  # a function's body names tables too
        return _BODY.sub(lambda found: _place_in_body(found[0], quoted), token[0])
    return token[0]


def _place_in_body(found: str, quoted: str) -> str:
    """A piece of a function's body: a name, or a literal that is a name or holds a statement to be executed."""
    if found.startswith("--"):
        return found
    if found == "'main'":
        return _named(found, quoted)
    if found.startswith("'"):
        return re.sub(r"\bmain\.", lambda _: quoted.replace("'", "''") + ".", found)
    return quoted + found[4:]


def _named(literal: str, quoted: str) -> str:
    """A name handed over as text: the schema's own, or one inside it such as a sequence's."""
    escaped = quoted.replace("'", "''")
    if literal == "'main'":
        return "'" + escaped[1:-1].replace('""', '"') + "'"
    return f"'{escaped}{literal[5:]}" if literal.startswith("'main.") else literal


@functools.cache
def _catalogue() -> dict[str, dict[str, _Source]]:
    """Every statement by name and dialect, checked to agree."""
    found: dict[str, dict[str, _Source]] = {}
    for folder in ("common", *DIALECTS):
        for file in _files(sql_root() / folder):
            for source in _read(file, folder):
                by_dialect = found.setdefault(source.name, {})
                for dialect in DIALECTS if folder == "common" else (folder,):
                    if dialect in by_dialect:
                        raise ValueError(f"{source.where}: {source.name} stands at {by_dialect[dialect].where} already")
                    by_dialect[dialect] = source
    for name, by_dialect in found.items():
        _agree(name, by_dialect)
    return found


def _files(folder: Traversable) -> list[Traversable]:
    if not folder.is_dir():
        return []
    files = (entry for entry in folder.iterdir() if entry.name.endswith(".sql") and entry.name != "schema.sql")
    return sorted(files, key=lambda entry: entry.name)


def _read(file: Traversable, folder: str) -> Iterator[_Source]:
    header: tuple[re.Match[str], int] | None = None
    lines: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("-- name:"):
            if header:
                yield _source(header, lines, f"{folder}/{file.name}")
            match = _HEADER.fullmatch(line.rstrip())
            if match is None:
                raise ValueError(f"{folder}/{file.name}:{number}: bad header: {line}")
            header, lines = (match, number), []
        elif header:
            lines.append(line)
    if header:
        yield _source(header, lines, f"{folder}/{file.name}")


def _source(header: tuple[re.Match[str], int], lines: list[str], place: str) -> _Source:
    match, number = header
    prose: list[str] = []
    while lines and lines[0].startswith("--"):
        prose.append(lines.pop(0).removeprefix("--").strip())
    plan = next((line.removeprefix("plan:").strip() for line in prose if line.startswith("plan:")), None)
    sql = "\n".join(lines).strip().removesuffix(";").rstrip()
    return _Source(
        match["name"], match["shape"], match["result"] or "", "\n".join(prose), plan, sql, f"{place}:{number}"
    )


def _agree(name: str, by_dialect: dict[str, _Source]) -> None:
    some = next(iter(by_dialect.values()))
    if len(by_dialect) == 1:
        if f"only: {next(iter(by_dialect))}" not in some.doc:
            raise ValueError(f"{some.where}: {name} has no text for the other dialect, and no line `-- only:` says why")
        return
    if len({(one.shape, one.result) for one in by_dialect.values()}) > 1:
        raise ValueError(f"{some.where}: the dialects disagree in the shape or result of {name}")
    if len({frozenset(_parameters(one.sql)) for one in by_dialect.values()}) > 1 and not any(
        "differs:" in one.doc for one in by_dialect.values()
    ):
        raise ValueError(
            f"{some.where}: the dialects disagree in the parameters of {name}, and no `-- differs:` says why"
        )


def _parameters(sql: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(token["param"] for token in _TOKEN.finditer(sql) if token["param"]))


def _changes(sql: str) -> bool:
    bare = _TOKEN.sub(lambda token: " " if token[0][:1] in "'\"$-/" else token[0], sql)
    # "for update" locks rows and changes none, but a lock belongs on the writer all the same
    return _WRITES.search(bare) is not None


def _translate(sql: str, dialect: str, params: tuple[str, ...], columns: list[str]) -> str:
    def swap(token: re.Match[str]) -> str:
        if token["param"]:
            return f"${params.index(token['param']) + 1}" if dialect == "postgres" else token[0]
        if token[0].startswith("--") or token[0].startswith("/*"):
            return " "
        if token[0].endswith("*") and columns:
            prefix = f"{token['alias']}." if token["alias"] else ""
            return ", ".join(prefix + column for column in columns)
        return token[0]

    return _TOKEN.sub(swap, sql)

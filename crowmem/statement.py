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

import functools
import re
from typing import TYPE_CHECKING, Any

from crowmem.resources import sql_root

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DIALECTS = ("postgres", "sqlite")
SHAPES = ("one", "many", "none")

_BEGINS = "\n-- name: "
_HEADER = re.compile(r"(?P<name>[a-z][a-z0-9_]*) :(?:one|many|none)(?: [A-Za-z][\w, ]*)?")
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

    __slots__ = ("doc", "name", "params", "plans", "record", "result", "shape", "texts", "where", "writes")

    shape: str
    result: str
    doc: str
    plans: dict[str, str]
    params: tuple[str, ...]
    texts: dict[str, str]
    where: dict[str, str]
    writes: bool

    def __init__(self, name: str, record: type[Any] | None = None, **others: Any) -> None:
        """Make one; what is not given is worked out from the files when it is first asked for."""
        self.name = name
        self.record = record
        for attribute, value in others.items():
            setattr(self, attribute, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Work the rest out: most programs run a few of all statements."""
            if name not in self.__slots__:
                raise AttributeError(name)
            for attribute, value in _worked_out(self.name, self.record).items():
                setattr(self, attribute, value)
            return getattr(self, name)

    def __repr__(self) -> str:
        """Its name."""
        return f"<statement {self.name}>"


class _Source:
    """One statement as it stands in one file; small, since there are hundreds of which most are never used."""

    __slots__ = ("_file", "_header", "_line", "_lines")

    def __init__(self, file: str, line: int, header: str, lines: str) -> None:
        self._file, self._line, self._header, self._lines = file, line, header, lines

    @property
    def where(self) -> str:
        """``folder/file.sql:line``."""
        return f"{self._file}:{self._line}"

    @property
    def head(self) -> tuple[str, str]:
        """Its shape and its result."""
        _, shape, result = f"{self._header} ".split(" ", 2)
        return shape.removeprefix(":"), result.strip()

    def parts(self) -> tuple[str, str]:
        """The prose under the header, and the text."""
        lines = self._lines.splitlines()
        prose: list[str] = []
        while lines and lines[0].startswith("--"):
            prose.append(lines.pop(0).removeprefix("--").strip())
        return "\n".join(prose), "\n".join(lines).strip().removesuffix(";").rstrip()


def statement(name: str, record: type[Any] | None = None) -> Statement:
    """Bind a statement by name; called at the top of a module, so a missing name fails at import.

    Args:
        name: as in the header.
        record: the dataclass of its rows; must be the one that the header names.

    Raises:
        LookupError: there is no such statement, or its header names another result.
    """
    found = _catalogue()
    source = found["postgres"].get(name) or found["sqlite"].get(name)
    if source is None:
        raise LookupError(f"no statement {name!r} under sql/")
    wanted = record.__name__ if record else None
    _, result = source.head
    named = result if result[:1].isupper() else None
    if wanted != named:
        raise LookupError(f"{source.where}: {name} gives {named}, bound to {wanted}")
    return Statement(name, record)


def _worked_out(name: str, record: type[Any] | None) -> dict[str, Any]:
    """Every other attribute of a statement.

    Raises:
        ValueError: the dialects disagree about it.
    """
    found = _catalogue()
    sources = {dialect: found[dialect][name] for dialect in DIALECTS if name in found[dialect]}
    parts = {dialect: source.parts() for dialect, source in sources.items()}
    _agree(name, sources, parts)
    leading = next(iter(sources))
    shape, result = sources[leading].head
    doc, sql = parts[leading]
    columns = list(record.__dataclass_fields__) if record else []
    params = _parameters(sql)  # PostgreSQL's numbers; SQLite takes what it needs by name
    return {
        "shape": shape,
        "result": result,
        "doc": doc,
        "plans": {dialect: plan for dialect, (prose, _) in parts.items() if (plan := _plan(prose))},
        "params": params,
        "texts": {
            dialect: f"/* crowmem {name} */ " + _translate(text, dialect, params, columns)
            for dialect, (_, text) in parts.items()
        },
        "where": {dialect: source.where for dialect, source in sources.items()},
        "writes": any(_changes(text) for _, text in parts.values()),
    }


def statement_names() -> list[str]:
    """The name of every statement under sql/, sorted."""
    return sorted({name for by_name in _catalogue().values() for name in by_name})


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
        tag = f"${token['tag']}$"
        body = _BODY.sub(lambda found: _place_in_body(found[0], quoted), token[0].removeprefix(tag).removesuffix(tag))
        while tag in body:  # a schema's name may have dollars in it
            tag = f"${tag.strip('$')}_$"
        return f"{tag}{body}{tag}"
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
    """Every statement by dialect and name; only the headers are read."""
    found: dict[str, dict[str, _Source]] = {dialect: {} for dialect in DIALECTS}
    for folder in ("common", *DIALECTS):
        for file in _files(sql_root() / folder):
            for name, source in _read(file.read_text(encoding="utf-8"), f"{folder}/{file.name}"):
                for dialect in DIALECTS if folder == "common" else (folder,):
                    other = found[dialect].setdefault(name, source)
                    if other is not source:
                        raise ValueError(f"{source.where}: {name} stands at {other.where} already")
    return found


def _files(folder: Traversable) -> list[Traversable]:
    if not folder.is_dir():
        return []
    files = (entry for entry in folder.iterdir() if entry.name.endswith(".sql") and entry.name != "schema.sql")
    return sorted(files, key=lambda entry: entry.name)


def _read(text: str, file: str) -> list[tuple[str, _Source]]:
    before, *pieces = f"\n{text}".split(_BEGINS)
    number = before.count("\n") + 1
    found: list[tuple[str, _Source]] = []
    for piece in pieces:
        header, _, lines = piece.partition("\n")
        header = header.rstrip()
        match = _HEADER.fullmatch(header)
        if match is None:
            raise ValueError(f"{file}:{number}: bad header: {_BEGINS[1:]}{header}")
        found.append((match["name"], _Source(file, number, header, lines)))
        number += piece.count("\n") + 1
    return found


def _plan(prose: str) -> str | None:
    lines = (line.removeprefix("plan:").strip() for line in prose.splitlines() if line.startswith("plan:"))
    return next(lines, None)


def _agree(name: str, sources: dict[str, _Source], parts: dict[str, tuple[str, str]]) -> None:
    where, prose = next(iter(sources.values())).where, [doc for doc, _ in parts.values()]
    if len(sources) == 1:
        if f"only: {next(iter(sources))}" not in prose[0]:
            raise ValueError(f"{where}: {name} has no text for the other dialect, and no line `-- only:` says why")
        return
    if len({source.head for source in sources.values()}) > 1:
        raise ValueError(f"{where}: the dialects disagree in the shape or result of {name}")
    parameters = {frozenset(_parameters(sql)) for _, sql in parts.values()}
    if len(parameters) > 1 and not any("differs:" in one for one in prose):
        raise ValueError(f"{where}: the dialects disagree in the parameters of {name}, and no `-- differs:` says why")


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

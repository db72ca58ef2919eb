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
    from importlib.resources.abc import Traversable

DIALECTS = ("postgres", "sqlite")
SHAPES = ("one", "many", "none")

_BEGINS = "\n-- name:"
_HEADER = re.compile(r" (?P<name>[a-z][a-z0-9_]*) :(?P<shape>one|many|none)(?: (?P<result>[A-Za-z][\w, ]*))?")
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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What `statement` left open is worked out when it is first asked for; most programs run a few of all."""
            if name not in self.__slots__ or name == "name":
                raise AttributeError(name)
            for attribute, value in _worked_out(self.name, self.record).items():
                object.__setattr__(self, attribute, value)
            return object.__getattribute__(self, name)


class _Source:
    """One statement as it stands in one file."""

    __slots__ = ("_file", "_lines", "_offset", "_place", "name", "result", "shape")

    def __init__(self, header: re.Match[str], place: str, file: str, offset: int, lines: str) -> None:
        self.name, self.shape, self.result = header["name"], header["shape"], header["result"] or ""
        self._place, self._file, self._offset, self._lines = place, file, offset, lines

    @property
    def where(self) -> str:
        """``folder/file.sql:line``."""
        return f"{self._place}:{_line(self._file, self._offset)}"

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
    sources = _catalogue().get(name)
    if sources is None:
        raise LookupError(f"no statement {name!r} under sql/")
    source = sources.get("postgres") or sources["sqlite"]
    wanted = record.__name__ if record else None
    named = source.result if source.result[:1].isupper() else None
    if wanted != named:
        raise LookupError(f"{source.where}: {name} gives {named}, bound to {wanted}")
    bound = object.__new__(Statement)
    object.__setattr__(bound, "name", name)
    object.__setattr__(bound, "record", record)
    return bound


def _worked_out(name: str, record: type[Any] | None) -> dict[str, Any]:
    """Every other attribute of a statement.

    Raises:
        ValueError: the dialects disagree about it.
    """
    sources = _catalogue()[name]
    parts = {dialect: source.parts() for dialect, source in sources.items()}
    _agree(sources, parts)
    leading = "postgres" if "postgres" in sources else "sqlite"
    doc, sql = parts[leading]
    columns = [field.name for field in dataclasses.fields(record)] if record else []
    params = _parameters(sql)  # PostgreSQL's numbers; SQLite takes what it needs by name
    return {
        "shape": sources[leading].shape,
        "result": sources[leading].result,
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
    """Every statement by name and dialect; only the headers are read."""
    found: dict[str, dict[str, _Source]] = {}
    for folder in ("common", *DIALECTS):
        for file in _files(sql_root() / folder):
            for source in _read(file.read_text(encoding="utf-8"), f"{folder}/{file.name}"):
                by_dialect = found.setdefault(source.name, {})
                for dialect in DIALECTS if folder == "common" else (folder,):
                    if dialect in by_dialect:
                        raise ValueError(f"{source.where}: {source.name} stands at {by_dialect[dialect].where} already")
                    by_dialect[dialect] = source
    return found


def _files(folder: Traversable) -> list[Traversable]:
    if not folder.is_dir():
        return []
    files = (entry for entry in folder.iterdir() if entry.name.endswith(".sql") and entry.name != "schema.sql")
    return sorted(files, key=lambda entry: entry.name)


def _read(text: str, place: str) -> list[_Source]:
    before, *pieces = f"\n{text}".split(_BEGINS)
    offset = len(before)
    sources: list[_Source] = []
    for piece in pieces:
        line, _, lines = piece.partition("\n")
        header = _HEADER.fullmatch(line.rstrip())
        if header is None:
            raise ValueError(f"{place}:{_line(text, offset)}: bad header: {_BEGINS[1:]}{line}")
        sources.append(_Source(header, place, text, offset, lines))
        offset += len(_BEGINS) + len(piece)
    return sources


def _line(text: str, offset: int) -> int:
    """The number of the line that begins at an offset."""
    return text.count("\n", 0, offset) + 1


def _plan(prose: str) -> str | None:
    lines = (line.removeprefix("plan:").strip() for line in prose.splitlines() if line.startswith("plan:"))
    return next(lines, None)


def _agree(sources: dict[str, _Source], parts: dict[str, tuple[str, str]]) -> None:
    some = next(iter(sources.values()))
    name, prose = some.name, [doc for doc, _ in parts.values()]
    if len(sources) == 1:
        if f"only: {next(iter(sources))}" not in prose[0]:
            raise ValueError(f"{some.where}: {name} has no text for the other dialect, and no line `-- only:` says why")
        return
    if len({(one.shape, one.result) for one in sources.values()}) > 1:
        raise ValueError(f"{some.where}: the dialects disagree in the shape or result of {name}")
    parameters = {frozenset(_parameters(sql)) for _, sql in parts.values()}
    if len(parameters) > 1 and not any("differs:" in one for one in prose):
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

"""The house rules that a reader of one file cannot see: who imports whom, and where SQL may stand."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "crowmem"
MODULES = sorted(PACKAGE.rglob("*.py"))
# Each layer may import those before it. What is not named here is a leaf that any may use.
LAYERS = {
    "errors": 0,
    "records": 0,
    "statement": 1,
    "drivers": 2,
    "blobs": 2,
    "operation": 3,
    "repositories": 4,
    "memory": 5,
    "ingest": 6,
    "copying": 6,
    "cli": 7,
    "commands": 7,
    "mcp": 7,
}
HEAVY = {
    "psycopg": ("drivers",),
    "psycopg_pool": ("drivers",),
    "apsw": ("drivers", "tokenizer", "importers"),
    "minio": ("blobs",),
    "urllib3": ("blobs",),
    "yaml": ("config", "setup"),
    "mcp": ("mcp", "commands"),
}


def imports(path: Path) -> set[str]:
    """Every module that a file imports at run time, wherever in the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def layer(name: str) -> int | None:
    parts = name.split(".")
    return LAYERS.get(parts[1]) if parts[0] == "crowmem" and len(parts) > 1 else None


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    own = LAYERS.get(place(path))
    for name in imports(path):
        other = layer(name)
        if own is not None and other is not None:
            assert other <= own, f"{path.name} imports {name}, which lies above it"
        for heavy, homes in HEAVY.items():
            if name.split(".")[0] == heavy and path.name != "version.py":  # which prints the libraries' versions
                assert place(path) in homes, f"{path.name} imports {heavy}; only {homes} may"


@pytest.mark.parametrize("path", sorted((PACKAGE / "repositories").glob("*.py")), ids=lambda path: path.name)
def test_repositories_know_no_other_and_no_event_loop(path: Path) -> None:
    for name in imports(path):
        assert name.split(".")[0] not in {"asyncio", "threading", "concurrent"}, f"{path.name} imports {name}"
        assert not name.startswith("crowmem.repositories."), f"{path.name} imports {name}"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.Attribute) and node.attr == "sleep"), f"{path.name} sleeps"


SQL = re.compile(
    r"^\s*(?:select\s.+\sfrom\s|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s|create\s+(?:table|index)\s)",
    re.I | re.S,
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sql_stands_under_sql(path: Path) -> None:
    """Statements are read from files; a text of SQL in the code could be built from somebody's words."""
    if place(path) == "importers":  # reads other programs' files with fixed statements of their own
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        texts = [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
        if isinstance(node, ast.JoinedStr):
            texts.append("".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values))  # type: ignore[misc]
        for text in texts:
            assert not SQL.match(text), f"{path.name}:{node.lineno}: SQL in Python: {text[:60]!r}"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PACKAGE.parent)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, crowmem; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(run(code).stdout.split())
    assert not loaded & {*HEAVY, "asyncio", "concurrent", "http", "ssl"}, loaded & {*HEAVY, "asyncio"}


def test_a_sqlite_store_loads_no_postgres_and_no_s3(tmp_path: Path) -> None:
    code = (
        f"import sys; from crowmem import Memory; Memory.open({str(tmp_path / 'x.db')!r}).close(); print(*sys.modules)"
    )
    loaded = {name.split(".")[0] for name in run(code).stdout.split()}
    assert "apsw" in loaded
    assert not loaded & {"psycopg", "psycopg_pool", "minio", "urllib3", "yaml", "mcp"}


def test_every_public_name_has_a_docstring() -> None:
    missing = []
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not ast.get_docstring(tree):
            missing.append(str(path))
        for node in tree.body:
            public = isinstance(
                node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            ) and not node.name.startswith("_")
            if not public:
                continue
            members = node.body if isinstance(node, ast.ClassDef) else []
            for one in (node, *members):
                if isinstance(one, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    dunder = one.name.startswith("_")
                    overload = any(
                        "overload" in ast.unparse(decorator) for decorator in getattr(one, "decorator_list", [])
                    )
                    if not dunder and not overload and not ast.get_docstring(one):
                        missing.append(f"{path.name}:{one.lineno} {one.name}")
    assert not missing


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs) if one.arg not in ("self", "cls")]


def described(docstring: str) -> set[str]:
    """What the Args section of a docstring names."""
    section = re.search(r"^Args:\n((?:[ ]{4,}.*\n?|\n(?=[ ]))*)", docstring, re.M)
    return set(re.findall(r"^ {4}(\w+):", section[1], re.M)) if section else set()


def public_operations() -> list[Any]:
    """The methods of Memory and of the groups of operations that it has."""
    memory = PACKAGE / "memory.py"
    names = {
        "Memory",
        "AsyncMemory",
        *re.findall(r"^    \w+: (\w+)\[Sync\]$", memory.read_text(encoding="utf-8"), re.M),
    }
    found = []
    for path in (*sorted((PACKAGE / "repositories").glob("*.py")), memory):
        classes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
        for owner in classes:
            for node in owner.body if owner.name in names else ():
                operation = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_")
                if operation and parameters(node):
                    found.append(pytest.param(node, id=f"{owner.name}.{node.name}"))
    return found


@pytest.mark.parametrize("function", public_operations())
def test_every_operation_describes_what_it_takes(function: ast.FunctionDef) -> None:
    text = ast.get_docstring(function) or ""
    if re.search(r"^As `Memory\.\w+`\.$|^Arguments and errors are those of `Memory\.", text, re.M):  # the other colour
        return
    assert set(parameters(function)) == described(text)

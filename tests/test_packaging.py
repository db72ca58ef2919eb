"""What users install: wheel and sdist hold all they need, and the SQL is found wherever the package lies."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ROOT = Path(__file__).resolve().parents[1]
SAY_WHERE = """if True:
    import hashlib, json, crowmem
    from crowmem.resources import sql_root
    def walk(folder, at=""):
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from walk(entry, f"{at}{entry.name}/")
            else:
                yield at + entry.name, hashlib.sha256(entry.read_text(encoding="utf-8").encode()).hexdigest()
    print(json.dumps({"file": crowmem.__file__, "sql": dict(walk(sql_root()))}))
"""
USE_IT = """if True:
    import sys, crowmem
    with crowmem.Memory.open(sys.argv[1]) as memory:
        memory.agents.create("s-1-1", "s")
        memory.messages.add("s-1-1", {"role": "user", "content": "caw"})
        print(memory.messages.load("s-1-1"))
"""


@dataclass(frozen=True)
class Dist:
    """The built files."""

    sdist: Path
    wheel: Path
    wheel_from_sdist: Path


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """The files in CROWMEM_TEST_DIST, which `make wheel` has built, else built here."""
    if named := os.environ.get("CROWMEM_TEST_DIST"):
        built = ROOT / named
    else:
        built = tmp_path_factory.mktemp("dist")
        build(ROOT, built)
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    unpacked = tmp_path_factory.mktemp("sdist")
    subprocess.run(["tar", "-xzf", sdist, "-C", unpacked], check=True)
    (top,) = unpacked.iterdir()
    build(top, unpacked / "dist", "-t", "wheel")
    (again,) = (unpacked / "dist").iterdir()
    return Dist(sdist, wheel, again)


def build(source: Path, target: Path, *options: str) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", target, *options], cwd=source, check=True)


def run(python: Path | str, *arguments: str | Path, path: Path | None = None) -> str:
    """What a script prints when run far from the checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CROW"))}
    if path is not None:
        env["PYTHONPATH"] = str(path)
    return subprocess.run([python, *arguments], cwd="/", env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def sources(folder: Traversable, at: str = "") -> dict[str, str]:
    """The SQL of the checkout: path and hash."""
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= sources(entry, f"{at}{entry.name}/")
        else:
            found[at + entry.name] = hashlib.sha256(entry.read_text(encoding="utf-8").encode()).hexdigest()
    return found


def venv(folder: Path, *wheels: str | Path) -> Path:
    """A new environment with some wheels and nothing else; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    install(python, *wheels)
    return python


def install(python: Path, *wheels: str | Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "-qq",
        "--disable-pip-version-check",
        "--python",
        python,
        "install",
        *wheels,
    ]
    home = pwd.getpwuid(os.geteuid()).pw_dir  # the tests run with an empty home, and pip's settings are in the real one
    subprocess.run(command, cwd=ROOT, env={**os.environ, "HOME": home}, check=True)


def test_the_checkout_finds_its_own_sql() -> None:
    from crowmem.resources import sql_root

    assert sql_root() == ROOT / "sql"
    assert {entry.name for entry in sql_root().iterdir() if entry.is_dir()} == {"common", "postgres", "sqlite"}


def test_the_wheel_holds_the_package_and_nothing_else(dist: Dist) -> None:
    with zipfile.ZipFile(dist.wheel) as archive:
        names = set(archive.namelist())
    assert {"crowmem/py.typed", "crowmem/__init__.py"} <= names
    assert {name.removeprefix("crowmem/sql/") for name in names if name.startswith("crowmem/sql/")} == set(
        sources(ROOT / "sql")
    )
    assert {name.split("/")[0].split("-")[0] for name in names} == {"crowmem"}


def test_the_sdist_holds_what_its_makefile_needs(dist: Dist) -> None:
    with tarfile.open(dist.sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"Makefile", "LICENSE", "README.md", "pyproject.toml", "lock/test.txt", "tests/conftest.py"} <= names
    assert {f"sql/{name}" for name in sources(ROOT / "sql")} <= names


def test_a_wheel_built_from_the_sdist_is_the_same(dist: Dist) -> None:
    with zipfile.ZipFile(dist.wheel) as one, zipfile.ZipFile(dist.wheel_from_sdist) as two:
        assert {name: one.read(name) for name in one.namelist()} == {name: two.read(name) for name in two.namelist()}


def test_a_zipped_wheel_finds_its_sql_and_opens_a_store(dist: Dist, tmp_path: Path) -> None:
    told = json.loads(run(sys.executable, "-c", SAY_WHERE, path=dist.wheel))
    assert told["file"].startswith(f"{dist.wheel}/")
    assert told["sql"] == sources(ROOT / "sql")
    assert "caw" in run(sys.executable, "-c", USE_IT, tmp_path / "crow.db", path=dist.wheel)


@pytest.mark.parametrize("which", ["wheel", "wheel_from_sdist"])
def test_an_installed_wheel_finds_its_sql_without_any_dependency(dist: Dist, tmp_path: Path, which: str) -> None:
    python = venv(tmp_path / "venv", "--no-deps", "--no-index", getattr(dist, which))
    told = json.loads(run(python, "-c", SAY_WHERE))
    assert told["file"].startswith(str(tmp_path))
    assert told["sql"] == sources(ROOT / "sql")
    run(python, "-c", "import sys; from crowmem.setup import init; init(sys.argv[1])", tmp_path / "crow")
    assert (tmp_path / "crow" / "compose.yaml").read_text() == (ROOT / "compose.yaml").read_text()


@pytest.mark.slow
def test_a_user_installs_it_and_opens_a_store(dist: Dist, tmp_path: Path) -> None:
    python = venv(tmp_path / "venv", "--require-hashes", "-r", ROOT / "lock" / "run.txt")
    install(python, "--no-index", dist.wheel)  # resolves, so the lock has all that it depends on
    assert "caw" in run(python, "-c", USE_IT, tmp_path / "crow.db")
    assert run(python.with_name("crowmem"), "--version").startswith("crowmem ")

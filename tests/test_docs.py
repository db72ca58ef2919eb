"""The documentation is true: its snippets run, its commands parse, its links lead somewhere, and nothing public is missing."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crowmem import Memory, config, errors
from crowmem.cli import command_parser, parse
from crowmem.commands import COMMANDS
from crowmem.operation import operation

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SERVER = "postgresql://crow@db.example/crow"  # stands for a server in every page
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


def page_id(page: Path) -> str:
    return page.name


def blocks(page: Path, kind: str) -> list[tuple[int, str]]:
    """The fenced blocks of one kind, each with the line it begins in."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start()) + 2, found["text"])
        for found in FENCE.finditer(text)
        if found["kind"] == kind
    ]


def python_pages() -> list[Path]:
    return [page for page in PAGES if blocks(page, "python")]


def script(page: Path) -> str:
    """All Python blocks of a page as one program whose line numbers are the page's."""
    lines: list[str] = []
    for line, text in blocks(page, "python"):
        lines += [""] * (line - 1 - len(lines)) + text.splitlines()
    return "\n".join(lines) + "\n"


# --- what is written runs ----------------------------------------------------


@pytest.mark.parametrize("page", python_pages(), ids=page_id)
def test_python_snippets_run(page: Path, request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other, as a reader who types them in."""
    monkeypatch.chdir(tmp_path)
    text = script(page)
    if SERVER in text:
        text = text.replace(SERVER, request.getfixturevalue("pg_fresh"))
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(text, str(page), "exec"), names)
    finally:
        for value in names.values():
            if isinstance(value, Memory):
                value.close()


def test_python_snippets_have_their_types_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with `make types`")
    files = []
    for page in python_pages():
        file = tmp_path / f"{page.stem.replace('-', '_')}.py"
        file.write_text(script(page), encoding="utf-8")
        files.append(file)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", *files],
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in ran.stdout.splitlines() if str(tmp_path) in line and ": error:" in line]
    assert not ours, "\n".join(ours)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_in_the_documentation_parse(page: Path) -> None:
    for line, text in blocks(page, "sh"):
        for number, command in enumerate(text.replace("\\\n", " ").splitlines(), line):
            words = shlex.split(command, comments=True)
            if words[:1] != ["crowmem"]:
                continue
            end = next((place for place, word in enumerate(words) if word in ("|", ">", "&&", ";")), len(words))
            try:
                parse(words[1:end])
            except SystemExit:
                pytest.fail(f"{page.name}:{number}: {command}")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        target, _, anchor = found["target"].partition("#")
        if "://" in target:
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.name} links to {found['target']}"
        if anchor:
            assert anchor in anchors(there), f"{page.name} links to {found['target']}"


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings are reached."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# --- nothing public is missing -----------------------------------------------


def everything() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def operations() -> Iterator[str]:
    """Every public operation, such as ``messages.add``."""
    with Memory.open(":memory:") as memory:
        groups = {name: type(getattr(memory, name)) for name in Memory.__annotations__}
    assert "messages" in groups
    for group, repository in groups.items():
        yield from (
            f"{group}.{name}"
            for name, member in vars(repository).items()
            if not name.startswith("_") and (isinstance(member, operation) or inspect.isfunction(member))
        )
    yield from ("status", "check", "backup", "transaction", "close")


def test_every_operation_appears() -> None:
    text = everything()
    missing = [name for name in operations() if not re.search(rf"\b{re.escape(name)}[(`]", text)]
    assert not missing, f"not in README.md or docs/: {missing}"


def test_every_error_appears() -> None:
    text = everything()
    names = [name for name, value in vars(errors).items() if inspect.isclass(value)]
    assert len(names) > 10
    assert not [name for name in names if f"`{name}`" not in text]


def test_every_setting_appears() -> None:
    text = everything()
    own = [name for name in config._SETTINGS if name != "image_store"]
    names = [*own, *(f"image_store.s3.{name}" for name in config._S3_SETTINGS), "CROW_DB_URI"]
    assert not [name for name in names if f"`{name}`" not in text]


def test_every_argument_of_open_appears() -> None:
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    names = [name for name in inspect.signature(Memory.open).parameters if name != "cls"]
    assert not [name for name in names if f"| `{name}` |" not in text]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_and_option_appears(command: Any) -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    heading = re.search(rf"^## `crowmem {command.name}\b", text, re.M)
    assert heading, f"docs/cli.md has no heading `crowmem {command.name}`"
    section = text[heading.start() :].partition("\n## ")[0] + text[: text.index("\n## ")]
    missing = [option for option in options(command_parser(command)) if option not in section]
    assert not missing, f"docs/cli.md says nothing of {missing} of crowmem {command.name}"


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every long option of a command, and every action with its options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield name
                yield from options(inner)
        else:
            yield from (option for option in action.option_strings if option.startswith("--") and option != "--help")


def test_every_name_of_crow_cli_that_the_page_gives_a_place_is_there() -> None:
    """The right-hand side of the table names what exists."""
    text = (ROOT / "docs" / "from-crow-cli.md").read_text(encoding="utf-8")
    known = set(operations())
    for name in re.findall(r"`memory\.(\w+\.\w+)[(`]", text):
        assert name in known, name
    for module, name in re.findall(r"`crowmem\.(\w+)\.(\w+)[(`]", text):
        assert hasattr(importlib.import_module(f"crowmem.{module}"), name), name


def test_the_two_commands_stand_at_the_top_of_the_readme() -> None:
    top = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:6]
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("make demo", "make test"):
        assert any(line.strip().startswith(command) for line in top)
        assert f"\n{command.split()[1]}:" in targets


def test_the_tour_in_the_readme_is_short() -> None:
    [first, *_] = blocks(ROOT / "README.md", "python")
    assert len(first[1].splitlines()) <= 20
    ast.parse(first[1])

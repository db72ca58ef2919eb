"""The measurements' command lines: what they refuse, and what they leave when there is nothing to measure."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One program of bench/, to its end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    environment.pop("CROWMEM_BENCH_FOLDER", None)
    command = [sys.executable, str(ROOT / "bench" / program), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("sizes", ["abc", "10000,", "0", "-5"])
def test_sizes_that_are_none_are_refused(sizes):
    done = run("search.py", f"--sizes={sizes}")
    assert done.returncode == 2
    assert f"argument --sizes: {sizes}" in done.stderr


def test_no_case_of_the_name_leaves_no_file(tmp_path):
    out = tmp_path / "startup.jsonl"
    done = run("startup.py", "--only", "nosuch", "--out", str(out))
    assert done.returncode == 3
    assert "nosuch" in done.stderr
    assert not out.exists()


def test_a_run_tells_machine_and_versions_in_its_file_and_on_standard_error(tmp_path):
    out = tmp_path / "startup.jsonl"
    done = run("startup.py", "--only", "import apsw", "--rounds", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert not done.stdout
    header, *rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert header["kind"] == "run"
    assert {row["kind"] for row in rows} == {"row"}
    assert f"apsw {header['versions']['apsw']}" in done.stderr
    assert header["system"] in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="pictures need the bench environment")
def test_pictures_of_nothing_say_what_to_run_first(tmp_path):
    done = run("plots.py", "--results", str(tmp_path / "nowhere"), "--out", str(tmp_path / "pictures"))
    assert done.returncode == 1
    assert done.stderr == f"no results in {tmp_path / 'nowhere'}: run make bench first\n"
    assert not (tmp_path / "pictures").exists()

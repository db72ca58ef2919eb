"""The command line as a process: what it loads, what it does with closed pipes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from doors import fill

from crowmem import Memory

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"psycopg", "psycopg_pool", "minio", "urllib3", "yaml", "apsw", "asyncio", "mcp"}


def crowmem(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crowmem.cli", *argv], capture_output=True, text=True, cwd=ROOT, check=False, **options
    )  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "crow.db")
    fill(url)
    return url


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["sessions", "--help"], ["sesions"]])
def test_what_needs_no_store_loads_nothing_heavy(argv: list[str]) -> None:
    code = f"import sys; from crowmem.cli import main; main({argv!r}); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = {name.split(".")[0] for name in ran.stderr.split("\n")[-2].split()}
    assert "crowmem" in loaded
    assert not loaded & HEAVY


def test_a_sqlite_store_needs_no_postgres_and_no_s3(url: str) -> None:
    code = f"import sys; from crowmem.cli import main; main(['-c', {url!r}, 'sessions']); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {name.split(".")[0] for name in ran.stderr.split()} & {"psycopg", "minio", "urllib3", "yaml", "mcp"}


def test_data_goes_to_stdout_and_nothing_to_stderr(url: str) -> None:
    ran = crowmem("--db", url, "sessions")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("SESSION")


def test_the_module_runs_as_the_command_does(url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "crowmem", "-c", url, "sessions"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, crowmem("--db", url, "sessions").stdout)


@pytest.mark.postgres
def test_a_process_over_a_server(pg_clean: str) -> None:
    fill(pg_clean)
    ran = crowmem("--json", "sessions", env={**os.environ, "CROW_DB_URI": pg_clean})
    assert (ran.returncode, ran.stderr, ran.stdout.count("\n")) == (0, "", 2)


@pytest.mark.parametrize("shown", [["show", "alpha"], ["show", "alpha", "--json"], ["sessions"]])
def test_a_closed_pipe_is_no_error(url: str, shown: list[str]) -> None:
    with Memory.open(url) as memory:
        memory.messages.add_many("alpha-1-1", [{"role": "user", "content": "x" * 1000} for _ in range(2000)])
    child = subprocess.Popen(
        [sys.executable, "-m", "crowmem.cli", "--db", url, *shown],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    told = child.stderr.read()
    child.stderr.close()
    assert (child.wait(), told) == (0, b"")


def test_a_full_disk_under_stdout_is_said(url: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with full.open("w") as out:
        ran = subprocess.run(
            [sys.executable, "-m", "crowmem.cli", "--db", url, "sessions"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, "crowmem sessions: No space left on device\n")


def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    fifo = tmp_path / "config.yaml"
    os.mkfifo(fifo)
    child = subprocess.Popen(
        [sys.executable, "-m", "crowmem.cli", "--config", str(fifo), "sessions"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    with fifo.open("wb"):  # opens when the command is reading its configuration, which then never comes
        child.send_signal(signal.SIGINT)
        out, told = child.communicate()
    assert (child.returncode, out, told) == (130, b"", b"")


def test_a_terminal_that_knows_ascii_only_gets_numbers_for_the_rest(url: str) -> None:
    with Memory.open(url) as memory:
        memory.sessions.set_title("alpha", "naïve 悬空")
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = crowmem("--db", url, "sessions", env=env)
    assert ran.returncode == 0
    assert "na\\xefve \\u60ac\\u7a7a" in ran.stdout
    ran = crowmem("--db", url, "sessions", "--json", env=env)
    assert ran.returncode == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed_from_the_start_are_as_good_as_none(url: str, closed: str) -> None:
    ran = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-m", "crowmem.cli", "--db", url, "sessions"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("" if closed.startswith(">") else "SESSION")
    assert crowmem("--db", url, "check", "--deep").returncode == 0

"""Where the tests find the shared data: real transcripts and search collections beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ABOUT = {"README.md", "LICENSES.md"}  # describe the data, and are none


def shared_data(*parts: str) -> Path:
    """A file or folder of the shared data; the test is skipped only where the whole data set is absent.

    Args:
        parts: path below the data folder, such as ``"ir", "cisi.jsonl"``.

    Raises:
        FileNotFoundError: the data set is there and lacks just this: a mistake in the test.
    """
    if not SHARED.is_dir():
        pytest.skip("the shared data set is not beside this checkout (../shared/data)")
    path = SHARED.joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(f"the shared data set has no {'/'.join(parts)}")
    return path


def transcript_files(*formats: str) -> list[Path]:
    """The transcripts of some formats, sorted by path.

    Args:
        formats: folder names below ``transcripts``, such as ``"claude-code"``.
    """
    folders = [shared_data("transcripts", name) for name in formats]
    return sorted(path for top in folders for path in top.rglob("*") if path.is_file() and path.name not in ABOUT)

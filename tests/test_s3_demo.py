"""The demonstration of an outage runs to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.s3
def test_the_demo_tells_its_whole_story():
    demo = Path(__file__).resolve().parents[1] / "examples" / "s3_demo.py"
    done = subprocess.run([sys.executable, str(demo)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 images uploaded" in done.stdout
    assert "6 messages, each with the very image" in done.stdout
    assert done.stderr.count("log:") == 1

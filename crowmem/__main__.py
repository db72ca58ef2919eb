"""``python -m crowmem`` is ``crowmem``."""

from __future__ import annotations

from crowmem.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""What the fault runs tried and what they lost, summed up at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowmem import Memory

TRIED = ("kills", "cuts", "restarts", "failovers", "interrupts", "jumps", "full")
FOUND = ("acknowledged", "unknown", "lost", "doubled")


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Says what a test tried and found, by the names above; called before the assertions, so that a failure counts too."""

    def add(**counts: int) -> None:
        for name, count in counts.items():
            assert name in TRIED + FOUND
            record_property(name, count)

    return add


@pytest.fixture
def sound() -> Callable[[Memory], None]:
    """Looks whether a store is whole after a fault: its content, its index, and that no lock is left."""

    def look(memory: Memory) -> None:
        assert memory.check(deep=True) == []
        memory.messages.add("after-1-1", {"role": "user", "content": "nolockisleft"})
        with memory.sessions.lock("after", timeout_s=5):
            assert memory.search.messages("nolockisleft", limit=1) != []
        assert memory.status().search["lagging"] == 0

    return look


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line with what was tried, and one with what came of it."""
    found: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, count in report.user_properties:
                if name in TRIED + FOUND:
                    found[name] += count
    if found:
        terminalreporter.section("faults")
        for title, names in (("tried", TRIED), ("found", FOUND)):
            terminalreporter.write_line(f"{title}: " + ", ".join(f"{found[name]:,} {name}" for name in names))

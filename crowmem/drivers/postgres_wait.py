"""Waiting for changes that any process makes to a PostgreSQL store."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

    from crowmem.drivers.postgres_settings import Settings

LOOK_S = 0.02


class Listener:
    """Waits for topics in the caller's thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def wait(self, topic: str, timeout_s: float) -> None:
        """Sleep until it is time to look."""
        time.sleep(min(timeout_s, LOOK_S))

    def announce(self, connection: psycopg.Connection[Any], topic: str) -> None:
        """Waiters look by themselves."""

    def close(self) -> None:
        """Nothing is held."""


class AsyncListener:
    """Waits for topics under an event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def wait(self, topic: str, timeout_s: float) -> None:
        """Sleep until it is time to look."""
        await asyncio.sleep(min(timeout_s, LOOK_S))

    async def announce(self, connection: psycopg.AsyncConnection[Any], topic: str) -> None:
        """Waiters look by themselves."""

    async def close(self) -> None:
        """Nothing is held."""

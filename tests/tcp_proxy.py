"""A TCP wire that a test can cut and read the meter of, without root or network namespaces.

Partitions, lost answers, broken servers and round trips are facts of the wire,
so they are made and counted there. One event loop in a thread of its own owns
all sockets: a cut is complete when `cut` returns.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, cast

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

HOST = "127.0.0.1"
RST_ON_CLOSE = struct.pack("ii", 1, 0)
COMMAND_LIMIT_S = 10.0

Mode = Literal["pass", "hang", "mute", "lose", "reset", "refuse"]


@dataclass(frozen=True)
class Traffic:
    """What went over the wire; subtract an earlier reading to get what happened since."""

    connections: int = 0
    round_trips: int = 0  # how often the client spoke after the server had, or first
    to_server_bytes: int = 0
    to_client_bytes: int = 0

    def __sub__(self, earlier: Traffic) -> Traffic:
        """What was added since an earlier reading."""
        return Traffic(
            self.connections - earlier.connections,
            self.round_trips - earlier.round_trips,
            self.to_server_bytes - earlier.to_server_bytes,
            self.to_client_bytes - earlier.to_client_bytes,
        )


class Wire:
    """Listens on loopback and passes bytes to a target until told to `cut`.

    The meter is read before bytes are passed on: once the client has its answer,
    everything about the exchange is counted.

    Args:
        target: where the server is: host and port, or the path of a Unix socket.
    """

    def __init__(self, target: tuple[str, int] | str) -> None:
        self._target = target
        self._mode: Mode = "pass"
        self._links: set[_Link] = set()
        self._traffic = Traffic()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        self.host = HOST
        self.port = 0
        self._do(self._listen())

    def __enter__(self) -> Self:
        """The wire itself, already listening."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the wire down."""
        self.close()

    @property
    def traffic(self) -> Traffic:
        """The meter, from the moment the wire was made."""
        return self._traffic

    def cut(self, mode: Mode) -> None:
        """Change what happens on the wire, for the open connections too.

        Args:
            mode: "pass" as if the wire were not there; "hang" a partition: nothing arrives on either side, and what
                was sent arrives after healing; "mute" the server hears, and its answers wait for the healing; "lose"
                the server hears and acts, but its next answer breaks the connection; "reset" every connection ends
                with RST, new ones too; "refuse" the same, and nobody listens.
        """
        self._do(self._cut(mode))

    def heal(self) -> None:
        """Let everything pass again; connections that were ended stay ended."""
        self.cut("pass")

    def close(self) -> None:
        """End every connection and stop listening, for good."""
        if self._loop.is_closed():
            return
        self._do(self._cut("refuse"))
        self._do(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, step: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result(COMMAND_LIMIT_S)

    # Everything below runs in the loop's thread.

    async def _listen(self) -> None:
        self._listener = await self._loop.create_server(lambda: _End(_Link(self), is_client=True), HOST, self.port)
        self.port = int(self._listener.sockets[0].getsockname()[1])

    async def _cut(self, mode: Mode) -> None:
        self._mode = mode
        if mode in ("reset", "refuse"):
            for link in list(self._links):
                link.reset()
        for link in self._links:
            link.listen()
        if mode == "refuse" and self._listener is not None:
            listener, self._listener = self._listener, None
            for handle in listener.sockets:
                self._loop.remove_reader(handle.fileno())
            await asyncio.sleep(0)  # Python 3.11 forgets a connection that is half accepted when the server closes
            listener.close()
        elif mode != "refuse" and self._listener is None:
            await self._listen()
        await asyncio.sleep(0)  # sockets close one turn of the loop after they are told to

    async def _finish(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for _ in range(3):  # a connection accepted just before becomes a link one turn later, and closes one after that
            for link in list(self._links):
                link.reset()
            await asyncio.sleep(0)

    def _count(self, *, connections: int = 0, round_trips: int = 0, to_server: int = 0, to_client: int = 0) -> None:
        seen = self._traffic
        self._traffic = Traffic(
            seen.connections + connections,
            seen.round_trips + round_trips,
            seen.to_server_bytes + to_server,
            seen.to_client_bytes + to_client,
        )


class _Link:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._client_spoke_last = False
        self._full = {True: False, False: False}  # by is_client: it takes no more bytes for now
        self._ended = {True: False, False: False}  # by is_client: it has said all it had to say

    def accept(self, client: asyncio.Transport) -> None:
        """A client has connected."""
        self._client = client
        self._wire._links.add(self)
        self._wire._count(connections=1)
        # Not at once: up to Python 3.11.3 the loop reads from a new transport even if it is paused at its birth.
        self._wire._loop.call_soon(self._start)

    def _start(self) -> None:
        """Connect to the server, and let the client wait till then."""
        if self._client is None or self._client.is_closing():
            return
        self._client.pause_reading()
        if self._wire._mode in ("reset", "refuse"):  # it was in the queue while the listener closed
            self.reset()
        else:
            self._connecting = self._wire._loop.create_task(self._connect())

    async def _connect(self) -> None:
        loop, target = self._wire._loop, self._wire._target
        try:
            if isinstance(target, str):
                await loop.create_unix_connection(lambda: _End(self, is_client=False), target)
            else:
                await loop.create_connection(lambda: _End(self, is_client=False), *target)
        except OSError:
            self.reset()  # nobody is there: as near to "refused" as an accepted connection comes

    def connected(self, server: asyncio.Transport) -> None:
        """The server has accepted; the client may have gone in the meantime."""
        self._server = server
        if self._client is None or self._client.is_closing():
            server.abort()
        else:
            self._wire._loop.call_soon(self.listen)  # not at once, as above

    def listen(self) -> None:
        """Hear from each end if the mode of the wire lets it and the other end takes what it says."""
        if self._client is None or self._server is None:
            return
        mode = self._wire._mode
        hears_client = mode != "hang" and not self._full[False] and not self._ended[True]
        hears_server = mode not in ("hang", "mute") and not self._full[True] and not self._ended[False]
        for end, heard in ((self._client, hears_client), (self._server, hears_server)):
            if heard:
                end.resume_reading()
            else:
                end.pause_reading()

    def heard(self, data: bytes, *, is_client: bool) -> None:
        """Count what one end said and pass it on."""
        if is_client:
            self._wire._count(round_trips=int(not self._client_spoke_last), to_server=len(data))
            other = self._server
        elif self._wire._mode == "lose":
            self.reset()
            return
        else:
            self._wire._count(to_client=len(data))
            other = self._client
        self._client_spoke_last = is_client
        if other is not None and not other.is_closing():
            other.write(data)

    def ended(self, *, is_client: bool) -> None:
        """One end says no more; the other may still."""
        self._ended[is_client] = True
        if all(self._ended.values()):
            self.closed()
            return
        other = self._server if is_client else self._client
        if other is not None and not other.is_closing():
            other.write_eof()

    def full(self, is_full: bool, *, is_client: bool) -> None:
        """One end takes no more bytes, or takes them again."""
        self._full[is_client] = is_full
        self.listen()

    def closed(self) -> None:
        """One end is gone: close the other, once what is on its way has arrived."""
        self._wire._links.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for end in (self._client, self._server):
            if end is not None:
                end.close()

    def reset(self) -> None:
        """End both connections at once, with RST."""
        for end in (self._client, self._server):
            if end is not None and not end.is_closing():
                handle = cast("socket.socket", end.get_extra_info("socket"))
                if handle.family == socket.AF_INET:
                    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
                end.abort()
        self.closed()


class _End(asyncio.Protocol):
    """One end of a link, as the event loop wants it."""

    def __init__(self, link: _Link, *, is_client: bool) -> None:
        self._link = link
        self._is_client = is_client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        if self._is_client:
            self._link.accept(stream)
        else:
            self._link.connected(stream)

    def data_received(self, data: bytes) -> None:
        self._link.heard(data, is_client=self._is_client)

    def eof_received(self) -> bool:
        self._link.ended(is_client=self._is_client)
        return True  # keep the connection: the other direction may still be in use

    def pause_writing(self) -> None:
        self._link.full(True, is_client=self._is_client)

    def resume_writing(self) -> None:
        self._link.full(False, is_client=self._is_client)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.closed()

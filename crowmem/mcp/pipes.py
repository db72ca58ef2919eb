"""MCP messages over this process's stdin and stdout, a line of JSON each.

The SDK's own transport reads stdin in a worker thread that nothing can stop: after Ctrl-C, or when a client has closed
only our stdout, it would wait for a line that never comes. Here each end has a thread that ends with the process. While
serving, file descriptor 1 leads to stderr, so that nothing else can get between the messages.

Source: Model Context Protocol, "Transports", stdio; JSON-RPC 2.0, sections 4 and 5.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import queue
import signal
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from crowmem.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.types import JSONRPCMessage, RequestId

LINES = 64  # read ahead of the server
DRAIN_S = 1.5  # for answers still due when stdin has ended; clients kill what takes longer than two seconds
LEFT = (errno.EPIPE, errno.ECONNRESET)  # nobody reads stdout any more


class Pipes:
    """Takes stdin and stdout over for the length of a block. Belongs to one event loop."""

    def __init__(self) -> None:
        self._stdout = -1
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(LINES)
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._due: set[RequestId] = set()
        self._none_due = asyncio.Event()
        self._failure: OSError | KeyboardInterrupt | None = None
        self._ending = False

    def __enter__(self) -> Self:
        """Keep stdout to ourselves: whatever else is printed goes to stderr.

        Raises:
            Unsupported: stdin or stdout is closed.
        """
        try:
            os.fstat(0)
            if os.path.samestat(os.fstat(1), os.stat(os.devnull)):  # noqa: PTH116  # where a closed stdout was led
                raise OSError(errno.EBADF, "stdout leads nowhere")
            self._stdout = os.dup(1)
        except OSError:
            raise Unsupported("MCP is spoken over stdin and stdout, and one of them is closed") from None
        try:
            os.dup2(2, 1)
        except OSError:  # there is no stderr
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)
        return self

    def __exit__(self, *_: object) -> None:
        """Give stdout back. Its duplicate stays open, since a thread may still be writing to it."""
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(self._stdout, 1)

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncIterator[
        tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
    ]:
        """What comes in, and where to send what goes out; the block is cancelled when nobody reads that any more.

        Raises:
            OSError: stdout cannot be written for another reason.
            KeyboardInterrupt: Ctrl-C, after the block was cancelled.
        """
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage]()
        loop = asyncio.get_running_loop()
        for work in (self._read, self._write):
            threading.Thread(target=work, args=(loop,), name=f"crowmem-mcp{work.__name__}", daemon=True).start()
        try:
            async with anyio.create_task_group() as tasks:
                loop.add_signal_handler(signal.SIGINT, self._end, tasks.cancel_scope, KeyboardInterrupt())
                tasks.start_soon(self._listen, to_server, outgoing.clone())
                tasks.start_soon(self._tell, from_server, tasks.cancel_scope)
                yield incoming, outgoing
        except Exception:
            if not self._ending:  # else the SDK met streams that were closed already, which is how it ends
                raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            self._jobs.put(None)
        if self._failure is not None:
            raise self._failure

    def _end(self, scope: anyio.CancelScope, failure: OSError | KeyboardInterrupt | None) -> None:
        """Cancel everything, once."""
        if not self._ending:
            self._ending, self._failure = True, failure
            scope.cancel()

    async def _listen(
        self,
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
        outgoing: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        """Hand the server what comes in; when that ends, give it time for the answers that are due."""
        async with to_server, outgoing:
            while (line := await self._lines.get()) is not None:
                self._room.release()
                message = parsed(line) if line.strip() else None
                if isinstance(message, JSONRPCError):
                    await outgoing.send(SessionMessage(message))
                elif message is not None:
                    self._expect(message)
                    await to_server.send(SessionMessage(message))
            if self._due:
                with anyio.move_on_after(DRAIN_S):
                    await self._none_due.wait()

    async def _tell(self, from_server: MemoryObjectReceiveStream[SessionMessage], scope: anyio.CancelScope) -> None:
        """Write what the server sends; end everything when that is not possible."""
        loop = asyncio.get_running_loop()
        async with from_server:
            async for item in from_server:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                written: asyncio.Future[None] = loop.create_future()
                self._jobs.put((f"{line}\n".encode(), written))
                try:
                    await written
                except OSError as error:
                    self._end(scope, None if error.errno in LEFT else error)
                    return
                if isinstance(item.message, JSONRPCResponse | JSONRPCError):
                    self._settle(item.message.id)

    def _expect(self, message: JSONRPCMessage) -> None:
        """Remember which answers are due: one for each request that is not called off."""
        if isinstance(message, JSONRPCRequest):
            self._due.add(message.id)
            self._none_due.clear()
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))

    def _settle(self, request_id: RequestId | None) -> None:
        if request_id is not None:
            self._due.discard(request_id)
        if not self._due:
            self._none_due.set()

    # --- threads: a blocking read cannot be stopped, but it does not keep a process that ends ---

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            with contextlib.suppress(OSError), open(0, "rb", closefd=False) as stdin:  # no path
                for line in stdin:
                    self._room.acquire()
                    loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):
            while (job := self._jobs.get()) is not None:
                line, written = job
                failure: OSError | None = None
                try:
                    left = memoryview(line)
                    while left:
                        left = left[os.write(self._stdout, left) :]
                except OSError as error:
                    failure = error
                loop.call_soon_threadsafe(_done, written, failure)


def _done(written: asyncio.Future[None], failure: OSError | None) -> None:
    if written.done():  # its task was cancelled
        return
    if failure is None:
        written.set_result(None)
    else:
        written.set_exception(failure)


def parsed(line: bytes) -> JSONRPCMessage:
    """A line as a message, or as the error that answers it."""
    text = line.decode("utf-8", "replace")
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        pass  # looked at more closely below
    request_id = None
    try:
        value = json.loads(text)
        if isinstance(value, dict) and isinstance(value.get("id"), (int, str)):
            request_id = value["id"]
        # Half a character, as a cut text has it, is JSON to many clients and none to the SDK.
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return jsonrpc_message_adapter.validate_json(whole, by_name=False)
    except (ValueError, RecursionError):
        return JSONRPCError(
            jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message="this line is no JSON-RPC message")
        )

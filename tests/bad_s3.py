"""S3 servers that misbehave: each request is answered by a function of the test's own."""

from __future__ import annotations

import contextlib
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; the test's function writes what it likes."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Any method."""
        length = int(self.headers.get("content-length", "0"))
        self.body = self.rfile.read(length)
        self.server.seen.append(f"{self.command} {self.path}")
        self.server.answer(self)

    do_PUT = do_HEAD = do_DELETE = do_POST = do_GET  # http.server's names

    def reply(self, status: int, body: bytes = b"", kind: str = "application/xml", length: int | None = None) -> None:
        """An answer; ``length`` lies about the body's, and then the connection ends."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if self.command == "PUT" and not body:  # as S3 servers do
            self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        if length is not None:
            self.close_connection = True

    def refuse(self, status: int, code: str) -> None:
        """An S3 error."""
        self.reply(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    def hang(self) -> None:
        """Never answer; the connection stays until the test ends."""
        self.server.stopped.wait()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@dataclass(eq=False)
class Server(ThreadingHTTPServer):
    """A server on loopback."""

    answer: Answer
    seen: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    daemon_threads = True

    def __post_init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is what these tests are about."""

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def bad_s3(answer: Answer) -> Iterator[Server]:
    """Run a server that answers every request with a function."""
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        with contextlib.suppress(OSError):
            server.server_close()
        thread.join()

"""A real HTTP receiver on loopback, in a team's chat's place: what the demo's message is delivered to."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

__all__ = ["Received", "Receiver"]


@dataclass(frozen=True, slots=True)
class Received:
    """One message as it came."""

    title: str
    text: str
    pictures: tuple[bytes, ...]


class Receiver:
    """Takes what Apprise's json:// sends; a context manager."""

    def __init__(self) -> None:
        self.messages: list[Received] = []
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
                pictures = tuple(base64.b64decode(each["base64"]) for each in body.get("attachments", ()))
                messages.append(Received(str(body.get("title", "")), str(body.get("message", "")), pictures))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the library
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Apprise's URL for it."""
        return f"json://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

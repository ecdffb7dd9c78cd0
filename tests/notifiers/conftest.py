"""A real HTTP receiver and a real SMTP server on loopback, and notices to send."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from trainwarden.notifiers.preview import sample
from trainwarden.policies.notice import Notice


@dataclass
class Receiver:
    """Answers POSTs by the given script of answers; the last one repeats."""

    port: int = 0
    answers: list[str] = field(default_factory=lambda: ["200"])  # a status, "hang", "drip" or "close"
    bodies: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    end: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.bodies.append(body)
            state.paths.append(self.path)
            state.methods.append(self.command)
            answer = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            if answer == "hang":
                state.end.wait(10)
                return
            if answer == "drip":  # an answer without an end
                self.send_response(200)
                self.end_headers()
                while not state.end.wait(0.1):
                    self.wfile.write(b"x")
                    self.wfile.flush()
                return
            if answer == "close":
                self.close_connection = True
                return
            self.send_response(int(answer))
            if answer == "302":
                self.send_header("Location", f"http://127.0.0.1:{state.port}/inside")
            if answer == "429":
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        do_GET = do_POST  # noqa: N815 - its name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield state
    state.end.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


@dataclass
class Mailbox:
    port: int = 0
    mails: list[Mail] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - its name
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=0)  # it probes its port, so 0 will not do
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        controller.port = box.port = probe.getsockname()[1]
    controller.start()
    yield box
    controller.stop()


@pytest.fixture
def notice() -> Notice:
    return sample()


@pytest.fixture
def hostile(notice: Notice) -> Notice:
    """A notice whose every text tries to get out of its place."""
    bad = (
        "<!channel> @everyone <https://evil.example|click> [a](https://evil.example) ``` *b* <script>x</script>\n# head"
    )
    assert notice.curve is not None
    assert notice.checkpoint is not None
    decision = msgspec.structs.replace(
        notice.decision,
        message=bad,
        evidence=msgspec.structs.replace(notice.decision.evidence, values={bad: bad}, unknown=bad),
    )
    return msgspec.structs.replace(
        notice,
        decision=decision,
        condition=bad,
        because=f"its {bad} went flat",
        curve=msgspec.structs.replace(notice.curve, metric=bad),
        checkpoint=msgspec.structs.replace(notice.checkpoint, path=bad),
    )


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, "the condition did not come true"
            time.sleep(0.01)

    return wait

"""The HTTPS server: a post is admitted, read, kept, and answered; nothing here waits for NATS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import msgspec
from aiohttp import web

from trainwarden.controller.bridge.gate import BridgeRefusal, ForbiddenError, Gate
from trainwarden.controller.bridge.patience import Patience
from trainwarden.controller.bridge.pending import Pending
from trainwarden.controller.bridge.protocol import (
    MAX_BODY_BYTES,
    ROUTE,
    InvalidStatusError,
    decode_status,
    echo,
    failure,
)
from trainwarden.controller.bridge.training import Post
from trainwarden.reporters.wire import WireError, report_subject

__all__ = ["BridgeServer", "Limits"]

log = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Limits(msgspec.Struct, frozen=True):
    """How patient the server is. Seconds, connections."""

    header_seconds: float = 10.0  # for a connection to bring a whole request header
    body_seconds: float = 10.0
    connections: int = 4096


class BridgeServer:
    """Takes posts.

    Args:
        gate: Who may report.
        pending: Where posts go.
        limits: How patient it is.
        more: Further numbers for `/healthz`.
    """

    def __init__(
        self,
        gate: Gate,
        pending: Pending,
        *,
        limits: Limits | None = None,
        more: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._gate, self._pending, self._more = gate, pending, more
        self._limits = limits or Limits()
        self._patience: Patience | None = None
        self.answers: Counter[int] = Counter()  # posts by the code they were answered with
        self.port = 0

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._patience) if self._patience is not None else 0

    @contextlib.asynccontextmanager
    async def serving(self, host: str | None, port: int, context: ssl.SSLContext) -> AsyncIterator[None]:
        """Serve meanwhile; port 0 takes any, which `port` then tells.

        Raises:
            OSError: The address can't be listened on.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guarded])
        app.router.add_post(ROUTE, self._post)
        app.router.add_get("/healthz", self._health)
        runner = web.AppRunner(app, access_log=None, auto_decompress=False, lingering_time=1.0, handle_signals=False)
        await runner.setup()
        try:
            assert runner.server is not None  # noqa: S101 - just set up
            self._patience = Patience(runner.server, seconds=self._limits.header_seconds, most=self._limits.connections)
            listening = await asyncio.get_running_loop().create_server(
                self._patience, host, port, ssl=context, ssl_handshake_timeout=self._limits.header_seconds
            )
            self.port = listening.sockets[0].getsockname()[1]
            try:
                yield
            finally:
                listening.close()
        finally:
            await runner.cleanup()
            if self._patience is not None:
                await self._patience.end()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer every error as Kubernetes does."""
        assert self._patience is not None  # noqa: S101 - it serves
        protocol = request.protocol
        self._patience.busy(protocol)
        try:
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            return self._refusal(request, 413, f"the body has more than {MAX_BODY_BYTES} bytes")
        except web.HTTPException as error:
            return self._refusal(request, error.status, f"{request.method} {request.path}: {error.reason}")
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request could not be answered path=%s", request.path)
            return self._refusal(request, 500, "the bridge could not answer; its log says why")
        finally:
            self._patience.idle(protocol)

    async def _post(self, request: web.Request) -> web.Response:
        namespace, job = request.match_info["namespace"], request.match_info["job"]
        try:
            report_subject(namespace, job)
            admission = await self._gate.admit(_token(request), namespace, job)
            if (request.content_length or 0) > MAX_BODY_BYTES:
                return self._refusal(request, 413, f"the body has more than {MAX_BODY_BYTES} bytes")
            async with asyncio.timeout(self._limits.body_seconds):
                data = await request.read()
            status = decode_status(data)
        except WireError as error:
            return self._refusal(request, 404, str(error))
        except BridgeRefusal as error:
            return self._refusal(request, error.code, str(error))
        except TimeoutError:
            answer = self._refusal(request, 408, f"the body did not come within {self._limits.body_seconds:g} s")
            answer.force_close()
            return answer
        except InvalidStatusError as error:
            return self._refusal(request, 422, str(error))
        if status is not None:
            self._pending.offer(Post(admission.sender, status))
        self.answers[200] += 1
        return web.Response(body=echo(status), content_type="application/json")

    def _refusal(self, request: web.Request, code: int, message: str) -> web.Response:
        self.answers[code] += 1
        log.debug("refused path=%s code=%d reason=%s", request.path, code, message)
        return web.Response(status=code, body=failure(code, message), content_type="application/json")

    async def _health(self, request: web.Request) -> web.Response:
        assert self._patience is not None  # noqa: S101 - it serves
        numbers: dict[str, object] = {
            "answers": {str(code): number for code, number in sorted(self.answers.items())},
            "waiting": len(self._pending),
            "dropped": self._pending.dropped,
            "connections": self.connections,
            "connectionsEnded": self._patience.ended,
            **self._more(),
        }
        return web.Response(body=msgspec.json.encode(numbers), content_type="application/json")


def _token(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise ForbiddenError("no token was sent; a header `Authorization: Bearer …` is right")
    return token.strip()

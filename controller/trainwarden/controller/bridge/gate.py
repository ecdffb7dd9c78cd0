"""Who may report for which job, and for how long an answer to that holds.

BridgeRefusal: this post is not taken
├── ForbiddenError (403): the token is not one that may report here; retrying with it does not help
├── NoSuchJobError (404): there is no such job
└── CannotTellError (500): whoever knows does not answer; retrying helps
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainwarden.controller.bridge.training import Sender

__all__ = ["Admission", "BridgeRefusal", "CachedGate", "CannotTellError", "ForbiddenError", "Gate", "NoSuchJobError"]


class BridgeRefusal(Exception):  # noqa: N818 - an answer, drawn above
    """A post that is not taken."""

    code = 500


class ForbiddenError(BridgeRefusal):
    """The token is not one that may report here."""

    code = 403


class NoSuchJobError(BridgeRefusal):
    """There is no such job."""

    code = 404


class CannotTellError(BridgeRefusal):
    """It can't be found out now."""

    code = 500


@dataclass(frozen=True, slots=True)
class Admission:
    """Leave to report."""

    sender: Sender
    expires: float | None = None  # Unix seconds at which the token ends


class Gate(Protocol):
    """Knows who may report. `KubernetesGate` asks Kubernetes."""

    async def admit(self, token: str, namespace: str, job: str) -> Admission:
        """Say which pod holds the token.

        Raises:
            BridgeRefusal: It may not report for this job, there is none, or that can't be found out.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Verdict:
    until: float  # by the monotonic clock
    admission: Admission | None
    refusal: BridgeRefusal | None = None


class CachedGate:
    """Another gate's answers, kept for a while: a pod posts every 5 seconds and has one token for an hour.

    Refusals are kept apart, so that any number of made-up tokens leaves the good ones where they are. Tokens are
    known by their digests alone. Who asks while the same is being found out shares the answer.

    Args:
        gate: Who is asked.
        seconds: How long leave holds, never beyond the token's own end.
        refused_seconds: How long a refusal holds.
        most: Answers of either kind that are kept, the newest.
        at_once: Questions under way; more wait.
        monotonic: Seconds that never go back.
        wall: Unix seconds.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        seconds: float = 60.0,
        refused_seconds: float = 10.0,
        most: int = 10_000,
        at_once: int = 16,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._gate, self._seconds, self._refused_seconds, self._most = gate, seconds, refused_seconds, most
        self._monotonic, self._wall = monotonic, wall
        self._places = asyncio.Semaphore(at_once)
        self._admitted: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._refused: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[_Verdict]] = {}
        self.asked = 0  # questions that went to the gate

    def __len__(self) -> int:
        return len(self._admitted) + len(self._refused)

    async def admit(self, token: str, namespace: str, job: str) -> Admission:
        """As `Gate.admit`."""
        key = hashlib.sha256(f"{namespace}/{job}/{token}".encode()).digest()
        verdict = self._known(key)
        if verdict is None:
            task = self._asking.get(key)
            if task is None:
                task = self._asking[key] = asyncio.create_task(self._ask(key, token, namespace, job))
                task.add_done_callback(lambda _: self._asking.pop(key, None))
            verdict = await asyncio.shield(task)  # one who goes away takes the answer from nobody
        if verdict.admission is not None:
            if verdict.admission.expires is not None and verdict.admission.expires <= self._wall():
                raise ForbiddenError("the token has expired; read it anew from its file")
            return verdict.admission
        assert verdict.refusal is not None  # noqa: S101 - a verdict has one of both
        raise type(verdict.refusal)(*verdict.refusal.args)

    def _known(self, key: bytes) -> _Verdict | None:
        for kept in (self._admitted, self._refused):
            verdict = kept.get(key)
            if verdict is not None and verdict.until > self._monotonic():
                return verdict
        return None

    async def _ask(self, key: bytes, token: str, namespace: str, job: str) -> _Verdict:
        async with self._places:
            self.asked += 1
            try:
                admission = await self._gate.admit(token, namespace, job)
            except CannotTellError as refusal:
                return _Verdict(0.0, None, refusal)
            except BridgeRefusal as refusal:
                return self._keep(
                    self._refused, key, _Verdict(self._monotonic() + self._refused_seconds, None, refusal)
                )
        self._refused.pop(key, None)
        return self._keep(self._admitted, key, _Verdict(self._monotonic() + self._seconds, admission))

    def _keep(self, kept: OrderedDict[bytes, _Verdict], key: bytes, verdict: _Verdict) -> _Verdict:
        kept[key] = verdict
        kept.move_to_end(key)
        while len(kept) > self._most:
            kept.popitem(last=False)
        return verdict

"""What travels between a training and trainwarden: subjects, reports, commands, replies. Standard library only.

The one place where the wire is written down. `docs/wire.md` and `schema/*.json` beside this module tell it to other
languages. Field names are those of the JSON; unknown fields are ignored by every reader.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "MAX_BYTES",
    "Checkpoint",
    "Command",
    "Phase",
    "Reply",
    "ReplyState",
    "Report",
    "TooLargeError",
    "WireError",
    "command_subject",
    "decode_command",
    "decode_reply",
    "encode",
    "report_subject",
    "subject_token",
]

MAX_BYTES = 64 * 1024
"""Largest report, command or reply in bytes, headers included."""

Phase = Literal["init", "train", "eval", "checkpoint", "done", "failed"]
Operation = Literal["checkpoint", "stop", "release"]
ReplyState = Literal["accepted", "saved", "failed", "unsupported"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,253}\Z")


class WireError(ValueError):
    """A message does not fit the wire. Retrying does not help."""


class TooLargeError(WireError):
    """A message is over `MAX_BYTES`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint, and the proof that it is there."""

    step: int
    path: str
    bytes: int | None = None  # sum of all files
    digest: str | None = None  # "sha256:…", see trainwarden.reporters.proof


@dataclass(frozen=True, slots=True)
class Report:
    """Where one training is, as its rank 0 sees it. Sent when something was logged, and as a heartbeat in between."""

    run: str  # random id of this training; a new process or a new trainer has a new one
    seq: int  # from 0 in each run, one more with each report sent
    ts: float  # sender's Unix seconds; for people only, ages never come from it
    pod: str  # host name
    phase: Phase
    step: int  # optimizer steps done
    v: Literal[1] = 1
    rank: int = 0
    world: int = 1
    total: int | None = None  # optimizer steps of the whole training; None while unknown
    epoch: float | None = None
    epochs: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)  # finite, logged at this step only
    nonfinite: Mapping[str, str] = field(default_factory=dict)  # name to "NaN", "Infinity" or "-Infinity"
    checkpoint: Checkpoint | None = None  # the newest complete one
    dropped: int = 0  # reports of this run that were never sent
    trimmed: int = 0  # metrics of this run that were left out because a report would have been too large
    reason: str | None = None  # with `failed`: why, a sentence for people


@dataclass(frozen=True, slots=True)
class Command:
    """What trainwarden asks of a training. A repeated `id` is answered from memory, not done again."""

    id: str
    run: str  # only the training with this run id answers
    op: Operation
    v: Literal[1] = 1
    hold: bool = False  # after saving stay at the step border and wait to be killed, or released
    timeout: float = 600.0  # seconds from receipt until `saved` or `failed` must be sent
    holdFor: float = 900.0  # noqa: N815 - seconds from receipt after which a hold ends by itself; named as on the wire


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a command: `accepted` at once, then one of the others."""

    id: str
    run: str
    state: ReplyState
    v: Literal[1] = 1
    reason: str = ""  # a sentence for people; required when failed or unsupported
    checkpoint: Checkpoint | None = None  # with `saved`


def subject_token(name: str) -> str:
    """Check that a namespace or job name can be one token of a subject, and give it back.

    Raises:
        WireError: The name is empty, too long or has a character outside `A-Za-z0-9_-`.
    """
    if not _TOKEN.match(name):
        raise WireError(f"{name!r} can't be part of a NATS subject; use 1 to 253 letters, digits, '-' or '_'")
    return name


def report_subject(namespace: str, job: str) -> str:
    """Subject that the reports of one job are published on."""
    return f"tw.report.{subject_token(namespace)}.{subject_token(job)}"


def command_subject(namespace: str, job: str) -> str:
    """Subject that the commands for one job are published on; its trainings answer to the reply subject."""
    return f"tw.command.{subject_token(namespace)}.{subject_token(job)}"


def encode(message: Report | Command | Reply) -> bytes:
    """Encode as compact UTF-8 JSON without fields that are None.

    Raises:
        WireError: A metric is not finite (it belongs in `nonfinite`).
        TooLargeError: The message is over `MAX_BYTES`.
    """
    body = _body(message)
    try:
        data = json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    except ValueError as error:
        raise WireError(f"{type(message).__name__} holds a number that is not finite: {error}") from error
    if len(data) > MAX_BYTES:
        raise TooLargeError(f"{type(message).__name__} has {len(data)} bytes; at most {MAX_BYTES} may be sent")
    return data


def _body(message: Report | Command | Reply | Checkpoint) -> dict[str, Any]:
    """Fields by name without those that are None; `dataclasses.asdict` would copy what needs no copy."""
    body: dict[str, Any] = {}
    for name in message.__slots__:
        value = getattr(message, name)
        if isinstance(value, Checkpoint):
            body[name] = _body(value)
        elif value is not None:
            body[name] = value if isinstance(value, str | int | float | dict) else dict(value)
    return body


def decode_command(data: bytes) -> Command:
    """Read a command.

    Raises:
        WireError: It is not JSON, of another version, or a field is missing or of the wrong type.
    """
    body = _object(data, "command")
    hold = body.get("hold", False)
    if not isinstance(hold, bool):
        raise WireError(f"hold is {hold!r}; true or false is right")
    return Command(
        id=_text(body, "id"),
        run=_text(body, "run"),
        op=_one_of(body, "op", ("checkpoint", "stop", "release")),
        hold=hold,
        timeout=_seconds(body, "timeout", 600.0),
        holdFor=_seconds(body, "holdFor", 900.0),
    )


def decode_reply(data: bytes) -> Reply:
    """Read a reply.

    Raises:
        WireError: It is not JSON, of another version, or a field is missing or of the wrong type.
    """
    body = _object(data, "reply")
    state = _one_of(body, "state", ("accepted", "saved", "failed", "unsupported"))
    checkpoint = body.get("checkpoint")
    if state == "saved" and checkpoint is None:
        raise WireError("checkpoint is missing; a reply that is saved carries one")
    return Reply(
        id=_text(body, "id"),
        run=_text(body, "run"),
        state=state,
        reason=_text(body, "reason") if state in ("failed", "unsupported") else str(body.get("reason", "")),
        checkpoint=None if checkpoint is None else _checkpoint(checkpoint),
    )


def _checkpoint(body: Any) -> Checkpoint:
    if not isinstance(body, dict):
        raise WireError(f"checkpoint is {type(body).__name__}; an object is right")
    step, size, digest = body.get("step"), body.get("bytes"), body.get("digest")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise WireError(f"checkpoint.step is {step!r}; an integer of zero or more is right")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise WireError(f"checkpoint.bytes is {size!r}; an integer of zero or more is right")
    if digest is not None and not isinstance(digest, str):
        raise WireError(f"checkpoint.digest is {digest!r}; a string is right")
    return Checkpoint(step=step, path=_text(body, "path"), bytes=size, digest=digest)


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{what} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise WireError(f"{what} is {type(body).__name__}; an object is right")
    if body.get("v") != 1 or isinstance(body["v"], bool):
        raise WireError(f"{what}.v is {body.get('v')!r}; 1 is right")
    return body


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise WireError(f"{name} is {value!r}; a text is right")
    return value


def _one_of(body: Mapping[str, Any], name: str, known: tuple[Any, ...]) -> Any:
    value = body.get(name)
    if value not in known:
        raise WireError(f"{name} is {value!r}; one of {', '.join(known)} is right")
    return value


def _seconds(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise WireError(f"{name} is {value!r}; seconds, zero or more, are right")
    return float(value)

"""What is said over HTTP: a posted status, and errors as Kubernetes writes them; as Trainer 2.2's status server has it.

Source: `TrainerStatus` in the TrainJob's schema of trainer.kubeflow.org/v1alpha1, and `meta/v1.Status` of Kubernetes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["MAX_BODY_BYTES", "ROUTE", "InvalidStatusError", "TrainerStatus", "decode_status", "echo", "failure"]

ROUTE = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{job}/status"
MAX_BODY_BYTES = 64 * 1024

_MOST_INT32 = 2**31 - 1
_Text = Annotated[str, Meta(min_length=1, max_length=64)]
_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    500: "InternalError",
}


class InvalidStatusError(ValueError):
    """A posted status does not fit; its text says where, what was found and what would be right."""


class PostedMetric(msgspec.Struct, frozen=True):
    """One metric; its value is a number written as text."""

    name: _Text
    value: _Text


class TrainerStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a training says of itself. All but the time may be missing."""

    last_updated_time: Annotated[datetime, Meta(tz=True)]  # by the pod's clock
    progress_percentage: Annotated[int, Meta(ge=0, le=100)] | None = None
    estimated_remaining_seconds: Annotated[int, Meta(ge=0, le=_MOST_INT32)] | None = None
    metrics: Annotated[list[PostedMetric], Meta(max_length=256)] | None = None

    def texts(self) -> dict[str, str]:
        """Metrics by name as they were posted; of those with one name the last."""
        return {metric.name: metric.value for metric in self.metrics or ()}


class _Body(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    trainer_status: TrainerStatus | None = None


_decoder = msgspec.json.Decoder(_Body)


def decode_status(data: bytes) -> TrainerStatus | None:
    """Read a posted body; None when it says nothing, as `{}` does.

    Raises:
        InvalidStatusError: It is not JSON, or a field is missing, of the wrong type or out of its bounds.
    """
    try:
        return _decoder.decode(data).trainer_status
    except (ValueError, RecursionError) as error:
        raise InvalidStatusError(f'the body does not fit {{"trainerStatus": {{…}}}}: {error}') from error


def echo(status: TrainerStatus | None) -> bytes:
    """The body of the answer to a post that was taken."""
    return msgspec.json.encode(_Body(status))


def failure(code: int, message: str) -> bytes:
    """The body of an answer that refuses, a Kubernetes `Status`."""
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS.get(code, "Unknown"),
            "code": code,
        }
    )

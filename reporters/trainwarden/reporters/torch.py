"""A training loop for torch that reports, saves when asked, holds and stops; alone or on several ranks.

```python
with TrainingLoop(total=1000, save=save_checkpoint) as loop:
    for step, batch in loop.steps(loader, start=done):
        loss = train_on(batch)
        loop.log(loss=loss.detach())
```

Values on a GPU are copied to the host while training goes on, and reported when they have arrived: nothing waits for
the device. Make the loop after `torch.distributed.init_process_group`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from trainwarden.reporters import Reporter
from trainwarden.reporters import loop as plain

__all__ = ["Readback", "TrainingLoop"]

log = logging.getLogger(__name__)


class Event(Protocol):
    """A moment in the device's queue of work, such as torch.Event."""

    def query(self) -> bool: ...  # the device has got there
    def synchronize(self) -> None: ...  # wait until it has


Copy = Callable[[torch.Tensor], tuple[torch.Tensor, Event]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    step: int
    metrics: dict[str, object]
    events: tuple[Event, ...]


class Readback:
    """Reports in the order of their steps, each once the device has delivered its values. Never waits.

    Args:
        report: Takes a step and its metrics, numbers only.
        copy: Begins the copy of a tensor of one element to the host; gives where it will be, and the event after it.
        most: Reports that may wait; the oldest is given up when there are more.
    """

    def __init__(
        self, report: Callable[[int, Mapping[str, object]], None], *, copy: Copy | None = None, most: int = 64
    ) -> None:
        self._report = report
        self._copy = copy or _begin_copy
        self._most = most
        self._waiting: deque[_Waiting] = deque()
        self.lost = 0  # reports that were given up

    def put(self, step: int, metrics: Mapping[str, object]) -> None:
        """Report the metrics of a step, now or when they are there."""
        values: dict[str, object] = {}
        events: list[Event] = []
        for name, value in metrics.items():
            if not isinstance(value, torch.Tensor):
                values[name] = value
            elif value.numel() != 1:
                log.debug("metric is not one number, left out name=%s shape=%s", name, tuple(value.shape))
            elif value.device.type == "cpu":
                values[name] = value.detach().item()
            else:
                values[name], event = self._copy(value.detach())
                events.append(event)
        if not events and not self._waiting:
            self._report(step, values)
            return
        if not values and self._waiting and not self._waiting[-1].metrics:
            self._waiting.pop()  # of steps without metrics the newest says it all
        self._waiting.append(_Waiting(step, values, tuple(events)))
        self.flush(wait=False)

    def flush(self, *, wait: bool) -> None:
        """Report what is there; with `wait` the device is waited for, so only at the end of a training."""
        while self._waiting:
            first = self._waiting[0]
            if wait:
                for event in first.events:
                    event.synchronize()
            elif not all(event.query() for event in first.events):
                break
            self._waiting.popleft()
            self._report(first.step, _read(first.metrics))
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self.lost += 1


def _read(metrics: Mapping[str, object]) -> dict[str, object]:
    return {name: value.item() if isinstance(value, torch.Tensor) else value for name, value in metrics.items()}


def _begin_copy(value: torch.Tensor) -> tuple[torch.Tensor, Event]:
    host = torch.empty_like(value, device="cpu", pin_memory=True)
    host.copy_(value, non_blocking=True)
    event = torch.Event(device=value.device)
    event.record()
    return host, event


class TrainingLoop(plain.TrainingLoop):
    """The loop of `trainwarden.reporters.loop`, for metrics that are tensors and for several ranks.

    Metrics may be tensors of one element on any device; hand them over detached or not, they are never synchronised.
    """

    _readback: Readback | None = None

    def _make_reporter(self) -> Reporter:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
            return Reporter(total=self.total, epochs=self._epochs, step=self.step, rank=rank, world=world)
        return super()._make_reporter()

    def _report(self, step: int, metrics: Mapping[str, object]) -> None:
        if self._readback is None:
            self._readback = Readback(super()._report)
        self._readback.put(step, metrics)

    def _flush(self, *, wait: bool) -> None:
        if self._readback is not None:
            self._readback.flush(wait=wait)

"""A training loop that reports, saves when asked, holds and stops: for plain Python. `trainwarden.reporters.torch` has
the same for torch.

```python
with TrainingLoop(total=1000, save=save_checkpoint) as loop:
    for step, batch in loop.steps(batches):
        loop.log(loss=train_on(batch))
```
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from os import PathLike, fspath
from types import TracebackType
from typing import Literal, TypeVar

from trainwarden.reporters import Reporter, resume_from
from trainwarden.reporters.border import Order, StepBorder
from trainwarden.reporters.identity import whole_from
from trainwarden.reporters.progress import Progress

__all__ = ["TrainingLoop"]

log = logging.getLogger(__name__)

T = TypeVar("T")
Loop = TypeVar("Loop", bound="TrainingLoop")


class TrainingLoop:
    """Reports each step of a loop and takes commands between two steps.

    Args:
        total: Optimizer steps of the whole training; None while unknown.
        save: Writes a checkpoint of the given step and gives its path, a file or a folder. Called between two steps:
            when trainwarden asks, every `save_every` steps, and by `loop.save()`. Without it commands are answered
            `unsupported`.
        save_on: "all": `save` is called on every rank at the same step, as sharded checkpoints need. "rank0": only on
            rank 0.
        save_every: Steps between checkpoints that the loop saves by itself; None for none.
        epochs: Epochs of the whole training.
        reporter: One of your own; when None the loop makes one when it is first needed. The loop ends it either way.
    """

    def __init__(
        self,
        *,
        total: int | None = None,
        save: Callable[[int], str | PathLike[str]] | None = None,
        save_on: Literal["all", "rank0"] = "all",
        save_every: int | None = None,
        epochs: float | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        if save_on not in ("all", "rank0"):
            raise ValueError(f"save_on is {save_on!r}; 'all' or 'rank0' is right")
        if save_every is not None and (save_every < 1 or save is None):
            raise ValueError(
                f"save_every is {save_every!r}; a number of steps from 1 on is right, together with `save`"
            )
        self.total = total
        self.step = 0
        self.should_stop = False
        self.resume_path: str | None = resume_from()
        self._epochs = epochs
        self._reporter = reporter
        self._save = save
        self._save_on = save_on
        self._save_every = save_every
        self._border: StepBorder | None = None
        self._metrics: dict[str, object] = {}
        self._progress = Progress()

    @property
    def reporter(self) -> Reporter:
        """The reporter of this loop."""
        if self._reporter is None:
            self._reporter = self._make_reporter()
        return self._reporter

    def _make_reporter(self) -> Reporter:
        return Reporter(total=self.total, epochs=self._epochs, step=self.step)

    def _world(self) -> int:
        return whole_from(os.environ.get("WORLD_SIZE"), 1)

    def steps(self, batches: Iterable[T], *, start: int | None = None, accumulate: int = 1) -> Iterator[tuple[int, T]]:
        """Go through the batches of one epoch, one optimizer step each (or one for `accumulate` batches).

        Yields the number of the step that the body does, from `start + 1` on, and its batch. Ends with the batches,
        after `total` steps, or when `should_stop`.

        Args:
            batches: Of this epoch; a resumed training hands over what is left.
            start: Steps done before, for the first call after a resume; the loop's own count when None.
            accumulate: Batches per optimizer step.
        """
        if accumulate < 1:
            raise ValueError(f"accumulate is {accumulate}; 1 or more batches per optimizer step are right")
        if start is not None:
            self.step = start
        self._begin()
        if self._over():
            return
        inside = 0
        for batch in batches:
            yield self.step + 1, batch
            inside += 1
            if inside == accumulate:
                inside = 0
                self._step_done()
            if self._over():
                return

    def _begin(self) -> None:
        if self._border is not None:
            return
        self._report(self.step, {})
        self.reporter.set_phase("train")
        if self._save is not None:
            self._border = StepBorder(self.reporter, step=self.step, world=self._world())

    @property
    def over(self) -> bool:
        """Whether no step is left to be done: all `total` ones are, or the training was told to stop."""
        return self._over()

    def _over(self) -> bool:
        return self.should_stop or (self.total is not None and self.step >= self.total)

    def log(self, metrics: Mapping[str, object] | None = None, /, **more: object) -> None:
        """Hand over metrics of the step that is being done; reported when it is done."""
        if metrics:
            self._metrics.update(metrics)
        self._metrics.update(more)

    def evaluating(self) -> AbstractContextManager[object]:
        """Phase `eval` for a `with` block; what is logged in it is reported at its end."""
        return _Evaluation(self)

    def save(self) -> str | None:
        """Save a checkpoint of the last step done now, by `save`, and announce it. On all ranks, like the steps.

        Gives its path on the ranks that `save` is called on. What `save` raises is raised.
        """
        if self._save is None:
            raise ValueError(
                "TrainingLoop has no `save`; give it a function that writes a checkpoint and returns its path"
            )
        self._begin()
        with self.reporter.phase("checkpoint"):
            return self._write(self._save)

    def saved(self, path: str | PathLike[str]) -> None:
        """Announce a checkpoint of the last step done that your own code has written, on all ranks."""
        self._begin()
        if self._border is None:
            self.reporter.checkpoint_saved(fspath(path), step=self.step)
        else:
            self._border.saved(path, step=self.step)

    def _write(self, save: Callable[[int], str | PathLike[str]]) -> str | None:
        border = self._border
        mine = border is None or self._save_on == "all" or border.rank == 0
        path = save(self.step) if mine else None
        if border is not None:
            border.saved(path, step=self.step)
        return None if path is None else fspath(path)

    def _step_done(self) -> None:
        self.step += 1
        if self._metrics:
            metrics, self._metrics = self._metrics, {}
            self._progress.told(self.step)
            self._report(self.step, metrics)
        elif self._progress.due(self.step):
            self._report(self.step, {})
        if self._border is None:
            return
        order = self._border.reached(self.step)
        if order is not None:
            self._carry_out(order)
        elif self._save_every is not None and self.step % self._save_every == 0:
            self.save()

    def _carry_out(self, order: Order) -> None:
        border, save = self._border, self._save
        if border is None or save is None:
            return
        if self._progress.owed(self.step):
            self._progress.told(self.step)
            self._report(self.step, {})
        with self.reporter.phase("checkpoint"):
            try:
                self._write(save)
            except Exception as error:
                border.failed(f"save raised {type(error).__name__}: {error}")
                if border.alone or self._save_on == "rank0":
                    log.exception("checkpoint that was asked for failed, training goes on step=%d", self.step)
                else:
                    raise  # other ranks may wait for this one inside `save`: to go on would leave them there
            border.hold()
        if order.stop:
            self.should_stop = True

    def _report(self, step: int, metrics: Mapping[str, object]) -> None:
        """Report one step done; the metrics are those logged in it."""
        self.reporter.report(step, metrics)

    def _flush(self, *, wait: bool) -> None:
        """Report what has not been yet; nothing here, since plain values are reported at once."""

    def close(self, error: BaseException | None = None) -> None:
        """End the training: `failed` with an error, `done` without."""
        if self._metrics or self._progress.owed(self.step):
            metrics, self._metrics = self._metrics, {}
            self._report(self.step, metrics)
        self._flush(wait=error is None)
        if self._border is not None:
            self._border.close("" if error is None else f"training failed with {type(error).__name__}")
        self.reporter.__exit__(None if error is None else type(error), error, None)

    def __enter__(self: Loop) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)


class _Evaluation:
    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._phase = loop.reporter.phase("eval")

    def __enter__(self) -> _Evaluation:
        self._outside, self._loop._metrics = self._loop._metrics, {}
        self._phase.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = self._loop
        metrics, loop._metrics = loop._metrics, self._outside
        if metrics and error is None:
            loop._report(loop.step, metrics)
        self._phase.__exit__(kind, error, trace)

"""Report a Lightning Trainer, and save, hold and stop when asked: one line in the user's code.

```python
trainer = Trainer(..., callbacks=[TrainwardenCallback()])
```

Works with `lightning` and with `pytorch_lightning`, whichever the training has imported.
"""

from __future__ import annotations

import logging
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.reporters import Reporter
from trainwarden.reporters.border import Order, StepBorder
from trainwarden.reporters.complaints import said
from trainwarden.reporters.progress import Progress
from trainwarden.reporters.torch import Readback
from trainwarden.reporters.wire import Phase

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning.callbacks import Callback
else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

__all__ = ["TrainwardenCallback"]

log = logging.getLogger(__name__)


class TrainwardenCallback(Callback):  # type: ignore[misc]  # lightning is not followed
    """Reports steps, logged metrics, phases and checkpoints, and carries out commands at step borders.

    A step is one of `trainer.global_step`: an optimizer step, so with several optimizers each of them counts. Metrics
    are reported as often as Lightning logs them (`log_every_n_steps`), and at the end of each validation.

    Args:
        folder: Where checkpoints that were asked for go, as `trainwarden-step=<step>.ckpt`; when None the folder of the
            Trainer's own ModelCheckpoint, else its `default_root_dir`.
        reporter: For the next `fit()` only, in place of one made from the environment; for tests.
    """

    def __init__(self, *, folder: str | Path | None = None, reporter: Reporter | None = None) -> None:
        self._folder = folder
        self._given = reporter
        self._reporter: Reporter | None = None
        self._border: StepBorder | None = None
        self._readback: Readback | None = None
        self._step = -1
        self._progress = Progress()
        self._phase: Phase = "init"
        self._announced: set[tuple[str, int]] = set()

    # ------------------------------------------------------------------ begin and end

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a run, from the step it resumes at."""
        reporter, self._given = self._given, None
        total, epochs = _total(trainer), _epochs(trainer)
        self._step = trainer.global_step
        if reporter is None:
            reporter = Reporter(
                rank=trainer.global_rank, world=trainer.world_size, total=total, epochs=epochs, step=self._step
            )
        self._reporter = reporter
        self._announced = set(_own_checkpoints(trainer))
        reporter.report(self._step, epoch=float(trainer.current_epoch), total=total)
        self._readback = Readback(lambda step, metrics: reporter.report(step, metrics))
        self._progress = Progress()
        self._phase = "init"
        self._enter("train")
        self._border = StepBorder(reporter, step=self._step, world=trainer.world_size)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the run: `done`, at whatever step it stopped."""
        if self._readback is not None:
            self._announce_own(trainer)
            if self._progress.owed(trainer.global_step):
                self._readback.put(trainer.global_step, {})
        self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run as failed."""
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        reporter, border, readback = self._reporter, self._border, self._readback
        self._reporter = self._border = self._readback = None
        if readback is not None:
            readback.flush(wait=error is None)
        if border is not None:
            border.close("" if error is None else f"training failed with {type(error).__name__}")
        if reporter is None:
            return
        if error is None:
            reporter.finish()
        else:
            reporter.fail(f"{type(error).__name__}: {said(error)}")
        reporter.close()

    # ------------------------------------------------------------------ progress

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Be in phase `train`."""
        self._enter("train")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the step, and save when an order is due."""
        reporter, border, readback = self._reporter, self._border, self._readback
        step = trainer.global_step
        if reporter is None or border is None or readback is None or step == self._step:
            return  # within an accumulation of gradients
        self._step = step
        order = border.reached(step)
        if _logs_now(trainer, step):
            self._progress.told(step)
            readback.put(step, trainer.callback_metrics)
        elif order is not None or self._progress.due(step):
            readback.put(step, {})
        self._announce_own(trainer)
        if order is not None:
            self._carry_out(order, trainer, border)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Be in phase `eval`, unless this is the sanity check before training."""
        if not trainer.sanity_checking:
            self._enter("eval")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report what was measured."""
        if self._readback is None or trainer.sanity_checking:
            return
        self._readback.put(trainer.global_step, trainer.callback_metrics)
        self._enter("train")

    def _enter(self, phase: Phase) -> None:
        if self._reporter is not None and phase != self._phase:
            self._phase = phase
            self._reporter.set_phase(phase)

    # ------------------------------------------------------------------ checkpoints

    def _carry_out(self, order: Order, trainer: Any, border: StepBorder) -> None:
        step = trainer.global_step
        path = self._checkpoint_folder(trainer) / f"trainwarden-step={step}.ckpt"
        self._enter("checkpoint")
        try:
            trainer.save_checkpoint(path)
            border.saved(path, step=step)
        except Exception as error:
            border.failed(f"save_checkpoint raised {type(error).__name__}: {error}")
            if not border.alone:
                raise  # other ranks may wait for this one inside save_checkpoint
            log.exception("checkpoint that was asked for failed, training goes on step=%d", step)
        border.hold()
        if order.stop:
            trainer.should_stop = True
        self._enter("train")

    def _checkpoint_folder(self, trainer: Any) -> Path:
        if self._folder is not None:
            return Path(self._folder)
        own = getattr(trainer.checkpoint_callback, "dirpath", None)
        return Path(own or trainer.default_root_dir)

    def _announce_own(self, trainer: Any) -> None:
        """Announce what the Trainer's ModelCheckpoints have saved since the last look; they save after us."""
        if self._border is None:
            return
        for path, step in _own_checkpoints(trainer):
            if (path, step) not in self._announced:
                self._announced.add((path, step))
                self._border.saved(path, step=step)


def _own_checkpoints(trainer: Any) -> list[tuple[str, int]]:
    """Newest checkpoint of each ModelCheckpoint with its step; private names, so absent ones give nothing."""
    found = []
    for callback in trainer.checkpoint_callbacks:
        path = getattr(callback, "_last_checkpoint_saved", "")
        step = getattr(callback, "_last_global_step_saved", 0)
        if path and isinstance(step, int):
            found.append((str(path), step))
    return found


def _logs_now(trainer: Any, step: int) -> bool:
    every = trainer.log_every_n_steps
    return bool(every) and (step % every == 0 or step == 1)


def _total(trainer: Any) -> int | None:
    try:
        steps: object = trainer.estimated_stepping_batches
    except Exception as error:  # it sets up loaders of the user's; progress is told without it
        log.debug("total unknown error=%s", type(error).__name__)
        return None
    return int(steps) if isinstance(steps, int | float) and math.isfinite(steps) and steps > 0 else None


def _epochs(trainer: Any) -> float | None:
    epochs = trainer.max_epochs
    return float(epochs) if epochs is not None and epochs > 0 else None

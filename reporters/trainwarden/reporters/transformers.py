"""Report a transformers Trainer, and save, hold and stop when asked: one line in the user's code.

```python
trainer = Trainer(..., callbacks=[TrainwardenCallback()])
```

With TRAINWARDEN_AUTO=1 in the environment no line is needed (`trainwarden.reporters.autoload`).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState

from trainwarden.reporters import Reporter
from trainwarden.reporters.border import Order, StepBorder
from trainwarden.reporters.ending import Watch
from trainwarden.reporters.progress import Progress
from trainwarden.reporters.wire import Phase

__all__ = ["AutomaticCallback", "TrainwardenCallback"]

log = logging.getLogger(__name__)

_UNKNOWN_STEPS = 2**53  # streaming data gives sys.maxsize; no training plans as many steps

_reporting: weakref.WeakSet[TrainwardenCallback] = weakref.WeakSet()
"""The callbacks with an open run: a Trainer that has several is reported by one of them."""


class TrainwardenCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Reports steps, metrics, phases and checkpoints, and carries out commands at step borders.

    Each `Trainer.train()` is a run of its own. On several ranks every rank needs the callback; rank 0 reports.

    Args:
        reporter: For the next `train()` only, in place of one made from the environment; for tests.
    """

    def __init__(self, *, reporter: Reporter | None = None) -> None:
        self._given = reporter
        self._reporter: Reporter | None = None
        self._border: StepBorder | None = None
        self._watch: Watch | None = None
        self._state: Callable[[], TrainerState | None] = _no_state
        self._progress = Progress()
        self._phase: Phase = "init"
        self._asked_at = -1  # step after which `should_save` was set for an order

    # ------------------------------------------------------------------ begin and end

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Begin a run, from the step it resumes at."""
        self._begin(args, state)

    def _begin(self, args: Any, state: TrainerState) -> None:
        self.end_failed("another training began before this one ended")
        if any(other._state() is state for other in _reporting):
            return
        reporter, self._given = self._given, None
        if reporter is None:
            reporter = Reporter(
                rank=args.process_index,
                world=args.world_size,
                total=_total(state),
                epochs=_epochs(state),
                step=state.global_step,
            )
        self._reporter = reporter
        self._state = weakref.ref(state)
        _reporting.add(self)
        reporter.report(state.global_step, epoch=state.epoch, total=_total(state))
        self._phase = "init"
        self._enter("train")
        self._border = StepBorder(reporter, step=state.global_step, world=args.world_size)
        self._asked_at = -1
        self._progress = Progress()
        self._watch = Watch(self, partial(_fail, reporter, self._border))

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """End the run: `done`, at whatever step it stopped."""
        reporter, border = self._forget()
        if border is not None:
            border.close()
        if reporter is not None:
            if self._progress.owed(state.global_step):
                reporter.report(state.global_step, epoch=state.epoch)
            reporter.finish()
            reporter.close()

    def end_failed(self, reason: str) -> None:
        """End the run that is open, if any, as failed."""
        reporter, border = self._forget()
        _fail(reporter, border, reason)

    def _forget(self) -> tuple[Reporter | None, StepBorder | None]:
        if self._watch is not None:
            self._watch.done()
        self._watch = None
        reporter, border = self._reporter, self._border
        self._reporter = self._border = None
        _reporting.discard(self)
        self._state = _no_state
        return reporter, border

    # ------------------------------------------------------------------ progress

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> None:
        """Report what the Trainer logs."""
        if self._reporter is None or not logs:
            return
        metrics = {name: value for name, value in logs.items() if name != "epoch" and _is_number(value)}
        self._progress.told(state.global_step)
        self._reporter.report(state.global_step, metrics, epoch=state.epoch)

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Be in phase `train`; an order that the Trainer has not saved for by now will not be."""
        border = self._border
        if border is None:
            return
        if self._phase != "train":
            self._enter("train")
        if border.order is not None:
            border.failed(f"the Trainer did not save at step {self._asked_at}")
            border.hold()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report the step, and ask the Trainer to save when an order is due."""
        reporter, border = self._reporter, self._border
        if reporter is None or border is None:
            return
        step = state.global_step
        order = border.reached(step)
        if order is not None or self._progress.due(step):
            self._progress.told(step)
            reporter.report(step, epoch=state.epoch)
        if order is not None:
            self._asked_at = step
            control.should_save = True
        self._expect(control)

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Evaluation and saving may come now."""
        self._expect(control)

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Be in phase `eval`."""
        if self._phase != "eval":
            self._enter("eval")

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Evaluation is over."""
        self._enter("checkpoint" if control.should_save else "train")

    def on_predict(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Prediction is over."""
        self._enter("train")

    def _expect(self, control: TrainerControl) -> None:
        if control.should_evaluate:
            self._enter("eval")
        elif control.should_save:
            self._enter("checkpoint")

    def _enter(self, phase: Phase) -> None:
        if self._reporter is not None and phase != self._phase:
            self._phase = phase
            self._reporter.set_phase(phase)

    # ------------------------------------------------------------------ checkpoints

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Announce the checkpoint; when it was asked for, answer, hold, and stop if that was asked."""
        border = self._border
        if border is None:
            return
        order: Order | None = border.order
        border.saved(_checkpoint_path(args, state), step=state.global_step)
        if order is not None:
            self._enter("checkpoint")
            border.hold()
            if order.stop:
                control.should_training_stop = True
        self._enter("train")

    def __getstate__(self) -> dict[str, Any]:
        # Trainers are copied and pickled for hyperparameter searches: a copy is as good as a new callback.
        fresh: dict[str, Any] = TrainwardenCallback().__dict__
        return fresh


class AutomaticCallback(TrainwardenCallback):
    """The callback that TRAINWARDEN_AUTO=1 adds: it stands back when the user's own code has one."""

    def __init__(self) -> None:
        super().__init__()
        self._due = False

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Let the user's own callback, which comes later, begin first."""
        self._due = True

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Begin, unless another one has."""
        self._begin_if_due(args, state)

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Begin with the evaluation that comes before the first epoch."""
        self._begin_if_due(args, state)
        super().on_prediction_step(args, state, control, **kwargs)

    def _begin_if_due(self, args: Any, state: TrainerState) -> None:
        if self._due:
            self._due = False
            self._begin(args, state)


def _fail(reporter: Reporter | None, border: StepBorder | None, reason: str) -> None:
    if border is not None:
        border.close(reason)
    if reporter is not None:
        reporter.fail(reason)
        reporter.close()


def _no_state() -> None:
    return None


def _total(state: TrainerState) -> int | None:
    return state.max_steps if 0 < state.max_steps < _UNKNOWN_STEPS else None


def _epochs(state: TrainerState) -> float | None:
    return float(state.num_train_epochs) if 0 < state.num_train_epochs < _UNKNOWN_STEPS else None


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool | str)


def _checkpoint_path(args: Any, state: TrainerState) -> Path:
    """Where the Trainer has just saved; the trials of a hyperparameter search have a folder each."""
    path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
    if not state.is_hyper_param_search:
        return path
    trials = sorted(Path(args.output_dir).glob(f"*/{path.name}"), key=lambda found: found.stat().st_mtime)
    return trials[-1] if trials else path

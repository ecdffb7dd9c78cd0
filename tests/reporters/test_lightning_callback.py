"""What trainwarden learns from a Lightning Trainer, and what a Trainer does when asked."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainwarden.reporters import Recorder
from trainwarden.reporters.lightning import TrainwardenCallback
from trainwarden.reporters.wire import Command, Reply, Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # what lightning and torch warn of is theirs
]


class Line(LightningModule):  # type: ignore[misc]  # lightning is not followed
    """Fits a line."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class At(Callback):  # type: ignore[misc]  # lightning is not followed
    """Calls a function within one step, as if something happened from outside."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self.step, self.act = step, act

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step + 1 == self.step:
            self.act()


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Points without end."""

    def __iter__(self) -> Any:
        while True:
            yield torch.ones(1), torch.ones(1)


def points(count: int = 12) -> DataLoader[tuple[torch.Tensor, ...]]:
    x = torch.linspace(-1, 1, count).unsqueeze(1)
    return DataLoader(TensorDataset(x, 2 * x), batch_size=2)


def fit(folder: Path, *callbacks: Any, data: Any = None, resume: str | None = None, **more: Any) -> Any:
    given: dict[str, Any] = {
        "max_epochs": 1,
        "log_every_n_steps": 1,
        "enable_checkpointing": False,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "default_root_dir": folder,
    }
    trainer = Trainer(callbacks=list(callbacks), **{**given, **more})
    validation = more.pop("validation", None)
    trainer.fit(Line(), data if data is not None else points(), validation or points(4), ckpt_path=resume)
    return trainer


def reports_of(folder: Path, *callbacks: Any, **more: Any) -> list[Report]:
    with Recorder() as recorder:
        fit(folder, *callbacks, TrainwardenCallback(), **more)
    return recorder.reports


def asked(folder: Path, command: Command, **more: Any) -> tuple[Reply, list[Report]]:
    """Train with a command that comes within the third step; its final reply, and the reports."""
    with Recorder() as recorder:
        sent: list[list[Reply]] = []
        fit(folder, At(3, lambda: sent.append(recorder.send(command))), TrainwardenCallback(), **more)
        final = recorder.wait(sent[0])
    assert final is not None
    return final, recorder.reports


def test_steps_total_phases_and_metrics_are_reported(tmp_path: Path) -> None:
    reports = reports_of(tmp_path)

    assert (reports[0].step, reports[0].total, reports[0].epochs) == (0, 6, 1)
    assert sorted({report.step for report in reports if "train_loss" in report.metrics}) == [1, 2, 3, 4, 5, 6]
    assert [report.step for report in reports if "val_loss" in report.metrics] == [6]
    phases = [report.phase for report in reports]
    changes = [second for first, second in pairwise(phases) if first != second]
    assert changes[-3:] == ["eval", "train", "done"]
    assert reports[-1].step == 6


def test_with_accumulation_a_step_is_an_optimizer_step(tmp_path: Path) -> None:
    reports = reports_of(tmp_path, accumulate_grad_batches=3)

    assert (reports[0].total, reports[-1].step) == (2, 2)


def test_a_stream_has_no_total_unless_max_steps_gives_it(tmp_path: Path) -> None:
    stream = DataLoader(Stream(), batch_size=2)

    assert reports_of(tmp_path, data=stream, max_epochs=-1, max_steps=4)[0].total == 4
    _, reports = asked(tmp_path, Command(id="c", run="", op="stop"), data=stream, max_epochs=-1)
    assert reports[0].total is None


def test_a_checkpoint_is_saved_proven_and_resumed_from(tmp_path: Path) -> None:
    final, reports = asked(tmp_path, Command(id="c", run="", op="checkpoint"))

    assert final.checkpoint is not None
    assert (final.state, final.checkpoint.step) == ("saved", 3)
    assert Path(final.checkpoint.path) == tmp_path / "trainwarden-step=3.ckpt"
    assert reports[-1].step == 6

    resumed = reports_of(tmp_path, resume=final.checkpoint.path)
    assert (resumed[0].step, resumed[0].total) == (3, 6)
    assert sorted({report.step for report in resumed if "train_loss" in report.metrics}) == [4, 5, 6]


def test_a_stop_ends_the_training_after_its_checkpoint(tmp_path: Path) -> None:
    final, reports = asked(tmp_path, Command(id="c", run="", op="stop"), max_epochs=5)

    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 3)
    assert (reports[-1].phase, reports[-1].step) == ("done", 3)


def test_own_checkpoints_are_announced(tmp_path: Path) -> None:
    reports = reports_of(tmp_path, ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=2), enable_checkpointing=True)

    newest = reports[-1].checkpoint
    assert newest is not None
    assert newest.step == 6
    assert newest.digest is not None


def test_early_stopping_is_done(tmp_path: Path) -> None:
    reports = reports_of(tmp_path, EarlyStopping("val_loss", min_delta=1e9, patience=1), max_epochs=9)

    assert (reports[-1].phase, reports[-1].step, reports[-1].total) == ("done", 12, 54)


def test_an_exception_is_reported_failed(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("bad batch")

    with Recorder() as recorder, pytest.raises(ValueError, match="bad batch"):
        fit(tmp_path, At(3, fail), TrainwardenCallback())

    assert (recorder.reports[-1].phase, recorder.reports[-1].step) == ("failed", 2)


def test_each_fit_is_a_run_of_its_own(tmp_path: Path) -> None:
    callback = TrainwardenCallback()
    with Recorder() as recorder:
        fit(tmp_path, callback)
        fit(tmp_path, callback)

    assert len({report.run for report in recorder.reports}) == 2

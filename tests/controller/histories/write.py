"""Write the files in `written/` with the libraries themselves: `python write.py LIBRARY…`, each where it is installed.

The losses are the same in all: 4 / (1 + step / 10) for 40 steps, an evaluation at each tenth step, NaN at step 37.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import sys
import time
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "written"


def loss(step: int) -> float:
    return math.nan if step == 37 else 4 / (1 + step / 10)


def logs() -> list[tuple[int, dict[str, float]]]:
    """What is logged, in order."""
    found: list[tuple[int, dict[str, float]]] = []
    for step in range(1, 41):
        found.append((step, {"train/loss": loss(step), "lr": 0.001}))
        if step % 10 == 0:
            found.append((step, {"eval/loss": 4 / (1 + step / 10) + 0.1}))
    return found


def tensorboard(folder: Path) -> None:
    """Two sessions: the second begins again at step 21."""
    from torch.utils.tensorboard import SummaryWriter

    for session, values in enumerate(([e for e in logs() if e[0] <= 25], [e for e in logs() if e[0] > 20])):
        with SummaryWriter(str(folder), filename_suffix=f".{session}") as writer:
            for step, metrics in values:
                for name, value in metrics.items():
                    writer.add_scalar(name, value, step, walltime=1.7e9 + step + 100 * session, new_style=session == 1)
            writer.add_text("notes", "not a scalar")
        time.sleep(1.1)  # file names hold whole seconds


def lightning(folder: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(folder, name="lightning_logs")
    for step, metrics in logs():
        logger.log_metrics(
            {**{name.replace("/", "_"): value for name, value in metrics.items()}, "epoch": step // 10}, step
        )
    logger.save()


def transformers(folder: Path) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            out = x * self.weight
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    data: Any = [{"x": torch.tensor([1.0]), "labels": torch.tensor([3.0])} for _ in range(160)]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=40, logging_steps=2, eval_strategy="steps", eval_steps=10, save_steps=20,
        per_device_train_batch_size=4, learning_rate=0.05, report_to=[], use_cpu=True, disable_tqdm=False,
    )  # fmt: skip
    folder.mkdir(parents=True)
    with (folder / "stdout.log").open("w") as log, redirect_stdout(log), redirect_stderr(log):
        Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:8]).train()
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("trainer_state.json", "stdout.log"):
            path.unlink()


def mlflow(folder: Path) -> None:
    import mlflow as library

    folder.mkdir(parents=True)
    for name, uri in (("file", (folder / "mlruns").as_uri()), ("sqlite", f"sqlite:///{folder / 'mlflow.db'}")):
        library.set_tracking_uri(uri)
        library.set_experiment("toys")
        with library.start_run(run_name=f"in-{name}"):
            for step, metrics in logs():
                for metric, value in metrics.items():
                    library.log_metric(metric, value, step=step, timestamp=1_700_000_000_000 + 1000 * step)
            library.log_metric("overflow", math.inf, step=40, timestamp=1_700_000_040_000)
    _make_small(folder)


def _make_small(folder: Path) -> None:
    """Leave out what no reader looks at, and the paths of this machine."""
    for tags in folder.glob("mlruns/*/*/tags"):
        shutil.rmtree(tags)
    for meta in folder.rglob("meta.yaml"):
        meta.write_text(meta.read_text().replace(folder.as_uri(), "file:///store"))
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table not in ("runs", "metrics"):
                database.execute(f"DROP TABLE {table}")
        database.execute("UPDATE runs SET artifact_uri = 'file:///store', user_id = 'someone', source_name = ''")
        database.commit()
        database.execute("VACUUM")


if __name__ == "__main__":
    for library_name in sys.argv[1:]:
        target = HERE / library_name
        shutil.rmtree(target, ignore_errors=True)
        globals()[library_name](target)
        print(library_name, *(path for path in sorted(target.rglob("*")) if path.is_file()))

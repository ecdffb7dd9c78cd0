"""A GPT-2 of two thousand weights, and a Trainer for it that takes a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Sequences(Dataset[dict[str, torch.Tensor]]):
    """Sequences of eight tokens."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(8) + number) % 16
        return {"input_ids": tokens, "labels": tokens}


class Stream(IterableDataset[dict[str, torch.Tensor]]):
    """Sequences without end."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        number = 0
        while True:
            yield Sequences(1)[number]
            number += 1


class At(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Calls a function within one step, as if something happened from outside."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self.step, self.act = step, act

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == self.step:
            self.act()


def model() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
    )


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 6,
        "per_device_train_batch_size": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return TrainingArguments(**{**given, **more})


def trainer(folder: Path, *callbacks: Any, data: Any = None, kind: Any = Trainer, **more: Any) -> Any:
    extra = {name: more.pop(name) for name in ("eval_dataset",) if name in more}
    return kind(
        model=model(),
        args=arguments(folder, **more),
        train_dataset=Sequences(64) if data is None else data,
        callbacks=list(callbacks),
        **extra,
    )

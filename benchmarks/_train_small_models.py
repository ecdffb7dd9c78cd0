"""Train small models and record their curves: other tasks and schedules than those the presets were tuned on.

    python -m benchmarks._train_small_models OUT.jsonl [--seeds N]

Needs PyTorch and scikit-learn, which are no part of the product. Five tasks (digits by a perceptron and by a small
convolution, noisy labels, a regression, characters of Python's own source by a recurrent network), two optimizers, four
schedules and two learning rates for each seed; some of them far too high or too low, as in a sweep.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import math
import textwrap
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

STEPS, EVALUATIONS = 1500, 75
TASKS = ("digits", "digits-convolution", "digits-noisy", "regression", "characters")
OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine", "steps", "warm-up and linear")


def schedule(name: str, step: int) -> float:
    """Factor of the learning rate."""
    done = step / STEPS
    match name:
        case "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        case "steps":
            return 1.0 if done < 0.5 else 0.1 if done < 0.75 else 0.01
        case "warm-up and linear":
            return done / 0.05 if done < 0.05 else (1 - done) / 0.95
    return 1.0


def data(task: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, shuffled."""
    chance = torch.Generator().manual_seed(seed)
    if task == "regression":
        x = torch.randn(2000, 20, generator=chance)
        y = torch.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] + 0.3 * torch.randn(2000, generator=chance)
        return x, y
    if task == "characters":
        text = inspect.getsource(textwrap) + inspect.getsource(argparse)
        codes = torch.tensor([min(ord(each), 127) for each in text])
        starts = torch.randint(0, len(codes) - 33, (3000,), generator=chance)
        return torch.stack([codes[at : at + 32] for at in starts]), torch.stack(
            [codes[at + 1 : at + 33] for at in starts]
        )
    x, y = (torch.tensor(each) for each in load_digits(return_X_y=True))
    order = torch.randperm(len(x), generator=chance)
    x, y = x[order].float() / 16, y[order].long()
    if task == "digits-noisy":
        wrong = torch.rand(len(y), generator=chance) < 0.3
        y = torch.where(wrong, torch.randint(0, 10, (len(y),), generator=chance), y)
    return x, y


class Characters(nn.Module):
    """Next character by a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell, self.head = (
            nn.Embedding(128, 32),
            nn.GRU(32, 64, batch_first=True),
            nn.Linear(64, 128),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of all characters at each place."""
        answer: torch.Tensor = self.head(self.cell(self.embedding(x))[0]).transpose(1, 2)
        return answer


def model(task: str) -> nn.Module:
    """A network for a task."""
    if task == "characters":
        return Characters()
    if task == "digits-convolution":
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
        )  # fmt: skip
    width, outputs = (20, 1) if task == "regression" else (64, 10)
    return nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs))


def train(task: str, optimizer: str, plan: str, rate: float, seed: int) -> dict[str, object]:
    """Train once; the run as a line of a file of curves."""
    torch.manual_seed(seed)
    x, y = data(task, seed)
    held = len(x) // 4
    network = model(task)
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    optimizing = kind(network.parameters(), lr=rate)

    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output = network(inputs)
        if task == "regression":
            return nn.functional.mse_loss(output[:, 0], targets), output
        return nn.functional.cross_entropy(output, targets), output

    series: dict[str, list[list[float | str]]] = {"loss": [], "validation/loss": []}
    elapsed, began = [], time.monotonic()
    for step in range(STEPS + 1):
        if step % (STEPS // EVALUATIONS) == 0:
            with torch.no_grad():
                loss, output = loss_of(x[:held], y[:held])
            series["validation/loss"].append([step, _number(loss.item())])
            if task != "regression":
                right = (output.argmax(1) == y[:held]).float().mean().item()
                series.setdefault("validation/accuracy", []).append([step, right])
            elapsed.append([step, time.monotonic() - began])
        for group in optimizing.param_groups:
            group["lr"] = rate * schedule(plan, step)
        picked = torch.randint(held, len(x), (32,))
        loss, _ = loss_of(x[picked], y[picked])
        optimizing.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizing.step()
        if step % 5 == 0:
            series["loss"].append([step, _number(loss.item())])
    name = f"{task}/{optimizer}/{plan}/{rate:g}/{seed}"
    return {"id": name, "source": "small models", "series": series, "elapsed": elapsed, "total_steps": STEPS}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def main() -> None:
    """Train all, and write a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rates = {"sgd": (0.02, 0.2), "adam": (0.0005, 0.005)}
    with options.out.open("w") as out:
        for task, optimizer, plan, seed in itertools.product(TASKS, OPTIMIZERS, SCHEDULES, range(options.seeds)):
            for rate in rates[optimizer]:
                out.write(json.dumps(train(task, optimizer, plan, rate, seed)) + "\n")
                out.flush()


if __name__ == "__main__":
    main()

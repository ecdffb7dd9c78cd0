"""Healthy trainings that look ill to a hasty rule: warm-up, noisy loss, cosine schedule with restarts, slow progress.

A small network learns which letter comes next. The policy beside it enforces plateau, divergence and stall rules; none
of them may touch one of these.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from trainwarden.reporters.torch import TrainingLoop

TEXT = Path(__file__).parents[1] / "founding.txt"
CONTEXT = 8  # letters that the network sees


def warmup(step: int, steps: int) -> float:
    """A learning rate that rises over a third of the training: the loss hardly moves at first."""
    return min(1.0, (3 * step / steps) ** 3) * (1.0 - 0.9 * step / steps)


def steady(step: int, steps: int) -> float:
    """A learning rate that falls a little."""
    return 1.0 - 0.9 * step / steps


def cosine_restarts(step: int, steps: int) -> float:
    """A cosine that starts anew four times: the loss jumps up at each restart."""
    return 0.5 * (1.0 + math.cos(math.pi * (4 * step / steps % 1.0)))


KINDS: dict[str, tuple[Callable[[int, int], float], float, int, float]] = {
    # schedule, learning rate, batch, seconds to pause in each step
    "warmup": (warmup, 3e-3, 64, 0.0),
    "noisy": (steady, 1e-3, 2, 0.0),
    "cosine_restarts": (cosine_restarts, 6e-3, 64, 0.0),
    "slow": (steady, 1.5e-4, 64, 0.02),
}


def batches(tokens: torch.Tensor, batch: int, first: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches without end; a resumed training goes on with the same ones."""
    number = first
    while True:
        chance = torch.Generator().manual_seed(number)
        starts = torch.randint(len(tokens) - CONTEXT, (batch,), generator=chance)
        yield torch.stack([tokens[at : at + CONTEXT] for at in starts]), tokens[starts + CONTEXT]
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--output", type=Path, default=Path("checkpoints/healthy"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    schedule, rate, batch, pause = KINDS[options.kind]
    torch.set_num_threads(1)
    torch.manual_seed(1)

    text = TEXT.read_text(encoding="utf-8")
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(letter) for letter in text])
    model = nn.Sequential(
        nn.Embedding(len(letters), 16),
        nn.Flatten(),
        nn.Linear(16 * CONTEXT, 96),
        nn.Tanh(),
        nn.Linear(96, len(letters)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)

    def save(step: int) -> Path:
        path: Path = options.output / f"{options.kind}-{step}.pt"
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        return path

    with TrainingLoop(total=options.steps, save=save, save_every=500) as loop:
        start = 0
        if loop.resume_path:
            saved = torch.load(loop.resume_path)
            start = saved["step"]
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        for step, (seen, following) in loop.steps(batches(tokens, batch, start), start=start):
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule(step, options.steps)
            loss = nn.functional.cross_entropy(model(seen), following)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimizer.step()
            loop.log(loss=loss, learning_rate=rate * schedule(step, options.steps))
            time.sleep(pause)


if __name__ == "__main__":
    main()

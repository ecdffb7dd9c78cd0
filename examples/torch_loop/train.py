"""A plain torch loop: reports, saves when a policy asks, holds, stops, resumes. A small network learns a curve."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from trainwarden.reporters.torch import TrainingLoop


def batches(first: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches without end of points on a noisy curve; number n is always the same one."""
    number = first
    while True:
        chance = torch.Generator().manual_seed(number)
        x = torch.rand(32, 1, generator=chance) * 6 - 3
        yield x, torch.sin(3 * x) + 0.3 * torch.randn(32, 1, generator=chance)
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--output", type=Path, default=Path("checkpoints/torch_loop"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def save(step: int) -> Path:
        path: Path = options.output / f"step-{step}.pt"
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        return path

    with TrainingLoop(total=options.steps, save=save) as loop:
        start = 0
        if loop.resume_path:
            saved = torch.load(loop.resume_path)
            start = saved["step"]
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        for step, (x, y) in loop.steps(batches(start), start=start):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimizer.step()
            if step % 10 == 0:
                loop.log(loss=loss)


if __name__ == "__main__":
    main()

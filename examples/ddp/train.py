"""Two ranks train one model under torchrun, and save at the same step when a policy asks. On CPU, over gloo.

python -m torch.distributed.run --standalone --nproc-per-node 2 examples/ddp/train.py
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainwarden.reporters.torch import TrainingLoop


def points(count: int) -> TensorDataset:
    """Points on a noisy curve."""
    x = torch.rand(count, 1) * 6 - 3
    return TensorDataset(x, torch.sin(3 * x) + 0.3 * torch.randn(count, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=Path("checkpoints/ddp"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    data = points(1024)
    # Each rank keeps its half, so that rank 0's loss is comparable from epoch to epoch.
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=1e-2)

    def save(step: int) -> Path:
        path: Path = options.output / f"step-{step}.pt"
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        return path

    with TrainingLoop(total=options.steps, save=save, save_on="rank0") as loop:
        start = 0
        if loop.resume_path:
            saved = torch.load(loop.resume_path)
            start = saved["step"]
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        loop.step = start
        while not loop.over:
            losses = []
            for step, (x, y) in loop.steps(loader):
                for group in optimizer.param_groups:
                    group["lr"] = 1e-2 * 0.5 ** (step / 500)
                loss = nn.functional.mse_loss(parallel(x), y)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
                optimizer.step()
                losses.append(loss.detach())
                if len(losses) == len(loader):
                    loop.log(loss=torch.stack(losses).mean())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

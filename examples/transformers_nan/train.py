"""A small GPT-2 whose learning rate grows without bound, until its loss is NaN: a schedule with the wrong sign.

The Trainer is told to log NaN as it is (`logging_nan_inf_filter=False`): by default it repeats the last good loss.
Nothing is downloaded.
"""

import argparse
import logging
import os
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from trainwarden.reporters import resume_from
from trainwarden.reporters.transformers import TrainwardenCallback

TEXT = Path(__file__).parents[1] / "founding.txt"
EPOCH = 10  # steps; the loss is logged once per epoch


class Excerpts(Dataset[dict[str, torch.Tensor]]):
    """Excerpts of one text, a token per character; number n is always the same one."""

    def __init__(self, text: str, length: int, count: int) -> None:
        letters = sorted(set(text))
        self.vocabulary = len(letters)
        self.tokens = torch.tensor([letters.index(letter) for letter in text])
        self.length, self.count = length, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        start = number * 7919 % (len(self.tokens) - self.length)
        excerpt = self.tokens[start : start + self.length]
        return {"input_ids": excerpt, "labels": excerpt}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--growth", type=float, default=1.03, help="of the learning rate, per step")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--save-steps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("checkpoints/transformers_nan"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(1)

    data = Excerpts(TEXT.read_text(encoding="utf-8"), length=48, count=EPOCH * options.batch)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=data.vocabulary,
            n_positions=data.length,
            n_embd=options.width,
            n_layer=options.layers,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = LambdaLR(optimizer, lambda step: options.growth**step)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(options.output),
            max_steps=options.steps,
            per_device_train_batch_size=options.batch,
            logging_steps=EPOCH,
            save_steps=options.save_steps,
            save_total_limit=2,
            logging_nan_inf_filter=False,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=1,
        ),
        train_dataset=data,
        optimizers=(optimizer, schedule),
        callbacks=[TrainwardenCallback()],
    )
    trainer.train(resume_from_checkpoint=resume_from())


if __name__ == "__main__":
    main()

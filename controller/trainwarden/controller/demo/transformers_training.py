"""The demo's training where transformers is installed: a small GPT-2 learns to write from a short text.

Its learning rate was planned for fewer steps than it is trained for, so that its loss goes flat and all that follows
is wasted. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset, Subset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

from trainwarden.reporters import resume_from

_LENGTH = 32
_SCHEDULE = 250  # steps after which the learning rate is next to nothing


class Excerpts(Dataset[dict[str, torch.Tensor]]):
    """Excerpts of one text, a token per character."""

    def __init__(self, text: str) -> None:
        letters = sorted(set(text))
        self.vocabulary = len(letters)
        self.tokens = torch.tensor([letters.index(letter) for letter in text])

    def __len__(self) -> int:
        return len(self.tokens) - _LENGTH

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        excerpt = self.tokens[number : number + _LENGTH]
        return {"input_ids": excerpt, "labels": excerpt}


def main() -> None:
    """Train; trainwarden attaches by itself, since `trainwarden run` sets TRAINWARDEN_AUTO."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_500)
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = Excerpts((Path(__file__).parent / "text.txt").read_text(encoding="utf-8"))
    size = GPT2Config(
        vocab_size=data.vocabulary, n_positions=_LENGTH, n_embd=24, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = LambdaLR(optimizer, lambda step: max(2e-4, 1.0 - step / _SCHEDULE))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="checkpoints",
            max_steps=options.steps,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            eval_strategy="steps",
            eval_steps=20,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=1,
        ),
        train_dataset=data,
        eval_dataset=Subset(data, range(0, len(data), 100)),
        optimizers=(optimizer, schedule),
    )
    trainer.remove_callback(PrinterCallback)
    resumed = resume_from()
    if resumed:
        print(f"training: going on from {Path(resumed).name}", flush=True)
    trainer.train(resume_from_checkpoint=resumed)
    print(f"training: ended at step {trainer.state.global_step}", flush=True)


if __name__ == "__main__":
    main()

"""A transformers Trainer as anybody writes it; that it reports is its own doing, through its KubeflowCallback."""

import tempfile
import time
from pathlib import Path
from typing import Any

from tests.reporters.tiny_gpt import trainer
from transformers import TrainerCallback


class Slow(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Steps of half a second, as those of a larger model."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(0.5)


trainer(Path(tempfile.mkdtemp()), Slow(), max_steps=120).train()

"""A transformers Trainer as anybody writes it; that it reports is its own doing, through its KubeflowCallback."""

import tempfile
import time
from pathlib import Path

from tests.reporters.tiny_gpt import At, trainer

slow = [At(step, lambda: time.sleep(0.5)) for step in range(1, 121)]
trainer(Path(tempfile.mkdtemp()), *slow, max_steps=120).train()

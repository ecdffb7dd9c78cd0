"""Reports a training's progress to trainwarden and takes its commands. Never blocks or breaks training."""

from trainwarden.reporters.recorder import Recorder
from trainwarden.reporters.reporter import Reporter, resume_from

__all__ = ["Recorder", "Reporter", "resume_from"]

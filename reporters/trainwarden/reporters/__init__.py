"""Reports a training's progress to trainwarden and takes its commands. Never blocks or breaks training."""

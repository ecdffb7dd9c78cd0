"""A real Kubernetes with Trainer, JobSet and Kueue, from package registries alone: for tests and for a laptop."""

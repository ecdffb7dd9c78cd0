"""Local mode: a process runner in the operator's place; engine and notifier are the same as in a cluster."""

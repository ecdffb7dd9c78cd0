"""The domain: what a policy says, what is known of a run, and what follows. No I/O and no clock of its own."""

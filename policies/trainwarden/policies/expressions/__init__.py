"""CEL expressions of a policy: one language on two engines."""

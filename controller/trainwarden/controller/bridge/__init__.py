"""The HTTP bridge: trainings that speak the protocol of Trainer's status server report to trainwarden through it."""

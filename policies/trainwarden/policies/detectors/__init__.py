"""What rules ask of a metric's history. Pure functions; `docs/detectors.md` tells each with formula and source."""

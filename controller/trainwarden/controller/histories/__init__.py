"""Recorded runs as other programs wrote them: one module for each format, each a stream of rows."""

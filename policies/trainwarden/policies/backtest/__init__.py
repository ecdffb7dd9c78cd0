"""Recorded runs through the real judge: what policies would have done, and what that would have been worth."""

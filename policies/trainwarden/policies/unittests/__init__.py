"""Unit tests for policies: a test file read, its runs replayed through the judge, and what it expects compared."""

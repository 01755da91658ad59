"""Workflows: turns that wait for each other, for a time or for a condition, as one run."""

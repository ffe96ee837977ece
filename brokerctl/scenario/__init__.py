"""Scenarios: read, run in a world, judged."""

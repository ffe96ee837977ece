"""Streaming readers of traces: what must hold, and who waits for whom."""

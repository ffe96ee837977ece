"""Watching workers that prove that they live: by their heartbeat files, as processes, as units, as containers."""

"""Real logs, formatted and parsed."""

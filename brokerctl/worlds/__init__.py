"""The worlds that a model can live in."""

"""Stops a Flux broker, or any service with a phased stop, within bounds that it can promise."""

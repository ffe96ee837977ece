"""`brokerctl stop`: a minimal core that cannot be brought down, and a helper that asks and reports."""

"""The world of virtual time."""

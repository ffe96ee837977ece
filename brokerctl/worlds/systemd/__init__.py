"""The world of a real service manager: a systemd of our own, and scenarios that run as units in it."""

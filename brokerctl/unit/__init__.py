"""Unit files of systemd, read as systemd reads them: syntax, drop-ins, values, command lines; each with its place."""

from __future__ import annotations

from brokerctl.unit.merge import Unit, UnitError, load

__all__ = ["Unit", "UnitError", "load"]

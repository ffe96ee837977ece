"""A service unit as systemd 252 was seen to run it, as a pure machine (SYSTEMD.md A–G)."""

from brokerctl.model.unit.machine import Unit
from brokerctl.records.units import UnitSettings

__all__ = ["Unit", "UnitSettings"]

"""`brokerctl lint`: what in a unit, or between a unit and what it runs, makes a stop lose data."""

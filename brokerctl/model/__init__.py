"""The pure model of a broker: events in, effects out."""

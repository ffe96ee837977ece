"""The world of a real Flux: an instance of brokers on this machine, driven from outside, and told from what it logs."""

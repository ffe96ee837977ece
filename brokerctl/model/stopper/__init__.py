"""The decisions of `brokerctl stop`: what a wrapper around a service's stop asks, waits for, signals and tells."""

from brokerctl.model.stopper.stopper import Stopper

__all__ = ["Stopper"]

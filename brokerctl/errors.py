"""What can go wrong, with one base; a message says where, what, and what was expected.

Messages are lower-case and read on after `brokerctl: `.
"""

from __future__ import annotations

EXIT_FOUND = 1  # it ran, and found failures
EXIT_USAGE = 2  # usage, configuration, scenario: nothing was started
EXIT_BUG = 70  # EX_SOFTWARE of sysexits(3)


class BrokerctlError(Exception):
    """The base of all that is told to the user in one line; `exit_code` is the tool's then."""

    exit_code = EXIT_USAGE


class UsageError(BrokerctlError):
    """Raised when a flag, an argument or an environment variable can't be used."""


class ConfigError(BrokerctlError):
    """Raised when a configuration file or an attribute can't be used."""


class ScenarioError(BrokerctlError):
    """Raised when a scenario can't be read; nothing has been run."""


class TraceError(BrokerctlError):
    """Raised when a trace can't be read."""


class ControlError(BrokerctlError):
    """Raised when the control socket can't be used, or what came over it is nonsense."""


class KernelError(BrokerctlError):
    """Raised when the operating system refuses something that the whole run needs."""

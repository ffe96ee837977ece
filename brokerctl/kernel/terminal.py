"""Our terminal: whose foreground we are, given to a command that inherits it, and taken back (tcsetpgrp(3))."""

from __future__ import annotations

import os
import signal


def own_terminal() -> int | None:
    """Our stdin, if it is the terminal whose foreground we are: a command that inherits it gets that, too."""
    try:
        return 0 if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp() else None
    except OSError:
        return None


def take_terminal() -> None:
    """Take the foreground back; without SIGTTOU blocked that would stop us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(0, os.getpgrp())
    except OSError:
        pass  # the terminal has gone
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

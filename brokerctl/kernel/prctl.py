"""prctl(2), of which the standard library has nothing; `ctypes` (2 ms) is imported when it is called."""

from __future__ import annotations

import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> bool:
    import ctypes

    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def become_subreaper() -> bool:
    """Adopt descendants whose parent dies, in place of init; False where the kernel refuses."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_when_orphaned(parent: int, signum: int) -> bool:
    """Get a signal when the parent of that pid dies, 0 for none; False if it is gone already."""
    _prctl(PR_SET_PDEATHSIG, signum)
    return os.getppid() == parent

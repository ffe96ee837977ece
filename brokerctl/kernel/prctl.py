"""prctl(2), of which the standard library has nothing; `ctypes` (2 ms) is imported when it is called."""

from __future__ import annotations

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Adopt descendants whose parent dies, in place of init; False where the kernel refuses."""
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)

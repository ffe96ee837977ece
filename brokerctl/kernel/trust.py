"""Who else may write a file or directory: what root reads, runs or writes to must be root's alone."""

from __future__ import annotations

import os
import stat

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def untrusted(found: os.stat_result, owners: tuple[int, ...] = (0,), *, sticky: bool = False) -> str:
    """Why others may write it, in words: `belongs to uid 1000`, `has mode 0777`; "" where nobody but an owner may.

    `sticky`: in a sticky directory what is there stays its owner's, which is enough for what exists already.
    """
    if found.st_uid not in owners:
        return f"belongs to uid {found.st_uid}"
    if found.st_mode & _OTHERS and not (sticky and stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
        return f"has mode {stat.S_IMODE(found.st_mode):04o}"
    return ""

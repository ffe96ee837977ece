"""What a life of an instance leaves to the next one: the files of its state directory, and where that was.

Flux writes them when rc3 unloads its modules, and at each checkpoint (`kvs.checkpoint-period`); one that was killed has
what it had written by then. A job that waits for the next life has paths of the private directory in its jobspec, and
the cookie in its environment: so both are the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY = "flux"  # among what is stored


class Kept(msgspec.Struct, frozen=True):
    """What the next life begins with. `jobs`: label → id; `state`: the files by name."""

    folder: str
    cookie: str
    jobs: dict[str, str]
    state: dict[str, bytes]

    def stored(self) -> dict[str, str]:
        """As a world hands it on."""
        return {KEY: msgspec.json.encode(self).decode()}


def restored(stored: Mapping[str, str]) -> Kept | None:
    """What the life before has left; None where there was none, or where it kept nothing."""
    return msgspec.json.decode(stored[KEY], type=Kept) if KEY in stored else None


def files(folder: Path) -> dict[str, bytes]:
    """What a state directory has; nobody may write there any more."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}

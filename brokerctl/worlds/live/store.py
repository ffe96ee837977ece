"""What a broker keeps for its next life: a small JSON file in its rundir, replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from brokerctl.errors import KernelError

STORE = "store.json"  # in the rundir
# Keys and values are few and short; a larger file was not written by us.
SIZE_MAX = 16 << 20

_decode = msgspec.json.Decoder(dict[str, str]).decode


class Store:
    """Values by key; the file is read when this is made, and written by every `put`."""

    def __init__(self, path: Path) -> None:
        """Read it; KernelError where it is there but can't be used."""
        self._path = path
        self.values: dict[str, str] = {}
        try:
            with path.open("rb") as file:
                self.values = _decode(file.read(SIZE_MAX))
        except FileNotFoundError:
            return
        except OSError as error:
            raise KernelError(f"{path}: cannot read: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise KernelError(f"{path}: not what a broker stored: {error}") from None

    def put(self, key: str, value: str) -> str:
        """Keep a value; returns what went wrong, or nothing. A reader sees the old file or the new one."""
        return self.put_all({key: value})

    def put_all(self, values: Mapping[str, str]) -> str:
        """Keep several values at once."""
        self.values.update(values)
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:  # noqa: PTH123 - from a descriptor
                file.write(msgspec.json.encode(self.values))
                file.flush()
                os.fsync(fd)
            draft.rename(self._path)
        except OSError as error:
            return error.strerror or str(error)
        return ""

"""What an actor asks of the broker that has started it, over its control socket, and how it waits for the answer.

The broker is found as its own commands find it: by BROKERCTL_RUNDIR. The name of the run is what the cookie ends with.
"""

from __future__ import annotations

import os
import select
from pathlib import Path

from brokerctl.errors import ControlError
from brokerctl.kernel import proc
from brokerctl.worlds.live.client import Connection


class Asking:
    """One request that was sent; `prints` and `rc`, 1 where it was refused, are known when it is answered."""

    def __init__(self, asks: tuple[str, ...]) -> None:
        self.prints: list[tuple[str, str]] = []
        self.rc = 0
        self._connection: Connection | None = None
        what, *words = asks
        run = os.environ.get(proc.COOKIE, "").rpartition(":")[2]
        try:
            self._connection = Connection(Path(os.environ["BROKERCTL_RUNDIR"]))
            self._connection.send(what, words, run)
        except (ControlError, KeyError) as error:
            self._refuse(str(error))

    def _refuse(self, error: str) -> None:
        self.prints, self.rc = [("err", error)], 1

    def answered(self, wait_s: float) -> bool:
        """Whether the answer has come within this time."""
        if self._connection is None:
            return True
        if not select.select([self._connection], [], [], wait_s)[0]:
            return False
        try:
            body = self._connection.answer()
        except ControlError as error:
            self._refuse(str(error))
            return True
        if "error" in body:
            self._refuse(str(body["error"]))
        else:
            self.prints = [(str(stream), str(text)) for stream, text in body.get("prints", [])]
        return True

"""`--status-file`: what became of a lifecycle, for programs; an exit code alone may be anybody's (docs/running.md).

    {"kind": "running", "pid": 4711}
    {"kind": "exited", "code": 129, "culprit": {"run": "cleanup.3", "command": "…", "how": "Hangup", "rc": 129},
     "states": [{"state": "run", "held_ns": 12000000000}, …]}
    {"kind": "refused", "code": 2, "error": "…"}      nothing was started
    {"kind": "bug", "code": 70, "error": "…"}

The culprit is the first action whose code is not 0, or null. The file is replaced as a whole: readers see one of these.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from brokerctl.errors import UsageError
from brokerctl.heartbeat import replace_file
from brokerctl.records import Ended, Moved

if TYPE_CHECKING:
    from pathlib import Path

    from brokerctl.records import Line


class _Running(msgspec.Struct):
    kind: str
    pid: Annotated[int, msgspec.Meta(gt=1)]


class StatusFile:
    """Writes the file; as a sink of lines it learns what to write at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._culprit: dict[str, Any] | None = None
        self._states: list[dict[str, Any]] = []

    def __call__(self, line: Line) -> None:
        """Learn from a line of the trace."""
        what = line.what
        if isinstance(what, Moved):
            self._states.append({"state": what.old, "held_ns": what.held_ns})
        elif isinstance(what, Ended) and what.rc and self._culprit is None:
            self._culprit = {"run": what.run, "command": what.command, "how": what.how, "rc": what.rc}

    def running(self) -> None:
        """Say that it runs; UsageError where the file can't be written, before anything is started."""
        try:
            self._write({"kind": "running", "pid": os.getpid()})
        except OSError as error:
            raise UsageError(f"--status-file {self._path}: cannot write: {error.strerror}") from None

    def exited(self, code: int) -> None:
        """Say how it ended."""
        self._at_end({"kind": "exited", "code": code, "culprit": self._culprit, "states": self._states})

    def refused(self, code: int, error: str) -> None:
        """Say that nothing was started, and why; where that can't be written, stderr has it all the same.

        A broker that runs keeps its word: the file of one that lives is left alone.
        """
        with suppress(OSError):
            if self._is_taken():
                return
            self._write({"kind": "refused", "code": code, "error": error})

    def bug(self, code: int, error: str) -> None:
        """Say that it was our own fault."""
        self._at_end({"kind": "bug", "code": code, "error": error})

    def _is_taken(self) -> bool:
        """Another broker lives that said `running` here."""
        try:
            said = msgspec.json.decode(self._path.read_bytes(), type=_Running)
            os.kill(said.pid, 0)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, OverflowError):
            return False
        return said.kind == "running" and said.pid != os.getpid()

    def _at_end(self, body: dict[str, Any]) -> None:
        try:
            self._write(body)
        except OSError as error:  # too late to refuse; the exit code stays what it is
            print(f"brokerctl run: --status-file {self._path}: cannot write: {error.strerror}", file=sys.stderr)

    def _write(self, body: dict[str, Any]) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        replace_file(str(self._path), str(draft), msgspec.json.encode(body) + b"\n")

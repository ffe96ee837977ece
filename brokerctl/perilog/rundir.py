"""The files of one run, below /run: who runs it, what its script gets, how it ended.

    /run/flux-KIND@INSTANCE.env                the script's environment, at the place that Flux's own units read too
    /run/flux-perilog/KIND@INSTANCE.run        locked by the helper that has the run; others wait, and read its result
    /run/flux-perilog/KIND@INSTANCE.status     how the unit ended, in systemd's words, by its ExecStopPost

Directories are opened once and files below them by descriptor; no link is followed, no FIFO opened (SYSTEMD.md 114,
115), nothing ever has a mode wider than 0600.
"""

from __future__ import annotations

import fcntl
import os

from brokerctl.errors import BrokerctlError
from brokerctl.kernel.trust import untrusted

RUN = "/run"
OWN = "flux-perilog"

_READ_MAX = 4096
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class RundirError(BrokerctlError):
    """Raised when a directory or file of a run can't be used."""


class Rundir:
    """The files of one kind and instance."""

    def __init__(self, kind: str, instance: str, root: str = RUN) -> None:
        self._environment = f"flux-{kind}@{instance}.env"
        self._lock = f"{kind}@{instance}.run"
        self._status = f"{kind}@{instance}.status"
        self._root = _directory(root)
        try:
            os.mkdir(OWN, 0o700, dir_fd=self._root)
        except FileExistsError:
            pass
        except OSError as error:
            raise RundirError(f"cannot make {root}/{OWN}: {error.strerror}") from None
        self._own = _directory(OWN, self._root)
        self._held: int | None = None
        self._waited = False

    # ---- who has the run

    def acquire(self) -> bool:
        """Take the lock of this run; False while another helper has it. The kernel lets it go when its holder dies."""
        while True:
            try:
                if self._held is None:
                    self._held = os.open(self._lock, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600, dir_fd=self._own)
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waited = True
                return False
            except OSError as error:
                raise RundirError(f"cannot lock {RUN}/{OWN}/{self._lock}: {error.strerror}") from None
            if self.result() is not None:
                return True
            if os.fstat(self._held).st_nlink:
                os.ftruncate(self._held, 0)  # of a helper that was killed at its very end
                return True
            self.leave()  # it ended before we came to wait for it

    def result(self) -> tuple[int, str] | None:
        """The code and how it ended, of the run that we waited for; None if we didn't, or its helper was killed."""
        assert self._held is not None
        if not self._waited:
            return None
        words = os.pread(self._held, _READ_MAX, 0).decode(errors="replace").partition("\n")
        return (int(words[0]), words[2]) if words[0].isdecimal() else None

    def finish(self, code: int, how: str) -> None:
        """Remove all files of the run, and tell those who wait for the lock how it ended."""
        assert self._held is not None
        self.remove_environment()
        _remove(self._status, self._own)
        try:
            os.pwrite(self._held, f"{code}\n{how}".encode(errors="replace")[:_READ_MAX], 0)
        except OSError:
            return  # no room: at our end one of those who wait gets the lock, and runs it again
        _remove(self._lock, self._own)
        self.leave()

    def leave(self) -> None:
        """Let the lock go."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    # ---- what the script gets

    def write_environment(self, data: bytes) -> None:
        """Put the file in place as a whole, with whatever was there before gone; RundirError where that fails."""
        new = f".{self._environment}.new"
        try:
            _remove(new, self._root)  # of a helper that was killed; the lock is ours
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=self._root)
            try:
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
            os.rename(new, self._environment, src_dir_fd=self._root, dst_dir_fd=self._root)
        except OSError as error:
            _remove(new, self._root)
            raise RundirError(f"cannot write {RUN}/{self._environment}: {error.strerror}") from None

    def remove_environment(self) -> None:
        """Without it the unit can't be started."""
        _remove(self._environment, self._root)

    # ---- how it ended

    def forget_status(self) -> None:
        """Remove what an earlier run left."""
        _remove(self._status, self._own)

    def status(self) -> list[str] | None:
        """SERVICE_RESULT, EXIT_CODE and EXIT_STATUS as ExecStopPost had them, the latter two if there was a process."""
        try:
            fd = os.open(self._status, os.O_RDONLY | _FLAGS, dir_fd=self._own)
        except OSError:
            return None
        try:
            return os.read(fd, _READ_MAX).decode(errors="replace").split() or None
        finally:
            os.close(fd)


def _directory(path: str, parent: int | None = None) -> int:
    """A descriptor of a directory that only root can write."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        raise RundirError(f"cannot open {path}: {error.strerror}") from None
    if why := untrusted(os.fstat(fd)):
        os.close(fd)
        raise RundirError(f"{path} {why}; expected a directory that only root can write")
    return fd


def _remove(name: str, parent: int) -> None:
    """Remove a file; what stands in the way of that is told when the name is used again."""
    try:
        os.unlink(name, dir_fd=parent)
    except OSError:
        return

"""The rundir: one directory a broker, with its lock and its control socket; who holds the lock is the broker.

A directory that others can write to, that is a symbolic link, or that belongs to somebody else is refused: whoever can
replace the socket could pose as the broker. Files are opened relative to it, so nobody can swap it meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from brokerctl.errors import UsageError
from brokerctl.kernel.trust import untrusted

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCK = "lock"
CONTROL = "control"
TBON = "tbon"
DRAFT = ".tbon"  # its name until it listens
SOCKETS = (CONTROL, TBON, DRAFT)
# sockaddr_un has 108 bytes with the final NUL (unix(7)).
SOCKET_PATH_MAX = 107
# Each retry means that another broker ended between our open and our lock; more than a few in a row is no accident.
LOCK_TRIES = 10


def choose(option: str | None, env: Mapping[str, str] | None = None, uid: int | None = None) -> Path:
    """The rundir that is meant: `--rundir`, else what the environment says, else the user's default.

    $BROKERCTL_RUNDIR, then the first of $RUNTIME_DIRECTORY (systemd.exec(5)), then $XDG_RUNTIME_DIR/brokerctl, then
    /run/brokerctl for root; a user without any of them gets a directory of mode 0700 below /tmp.
    """
    env = os.environ if env is None else env
    uid = os.geteuid() if uid is None else uid
    if option is not None and not option:
        raise UsageError("--rundir: is empty; expected a directory")
    if named := option or env.get("BROKERCTL_RUNDIR") or env.get("RUNTIME_DIRECTORY", "").split(":")[0]:
        return Path(named)
    if base := env.get("XDG_RUNTIME_DIR"):
        return Path(base) / "brokerctl"
    return Path("/run/brokerctl") if uid == 0 else Path(f"/tmp/brokerctl-{uid}")  # noqa: S108 - made 0700, owner checked


def control_path(rundir: Path) -> Path:
    """Where the control socket of a rundir is; UsageError where the system can't name it."""
    path = rundir / CONTROL
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise UsageError(
            f"rundir {rundir}: the path of its socket is too long; expected at most {SOCKET_PATH_MAX} bytes"
        )
    return path


class Rundir:
    """A rundir that is ours: locked, without leftovers. `close` removes what we made."""

    def __init__(self, path: Path) -> None:
        """Make and lock it; UsageError in one line where that can't be."""
        control_path(path)
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        self.made = _make(self.path)
        self._dir = _open(self.path)
        self._lock = -1
        try:
            self._lock = self._take_lock()
            self._remove_stale_sockets()
        except BaseException:
            self._release()
            raise

    def _take_lock(self) -> int:
        for _ in range(LOCK_TRIES):
            try:
                lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._dir)
            except OSError as error:
                raise UsageError(f"rundir {self.path}: cannot write: {error.strerror}") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(lock):
                    os.ftruncate(lock, 0)
                    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
                    return lock
            except BlockingIOError:
                holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
                os.close(lock)
                by = f"pid {holder}" if holder.isdigit() else "another broker"
                raise UsageError(f"rundir {self.path} is in use by {by}") from None
            except OSError as error:
                os.close(lock)
                raise UsageError(f"rundir {self.path}: cannot lock: {error.strerror}") from None
            os.close(lock)
        raise UsageError(f"rundir {self.path} is in use by another broker")

    def _is_current(self, lock: int) -> bool:
        """Whether the file we locked is still the one by that name: its last holder may have removed it meanwhile."""
        try:
            now = os.stat(LOCK, dir_fd=self._dir, follow_symlinks=False)
        except FileNotFoundError:
            return False
        ours = os.fstat(lock)
        return (now.st_dev, now.st_ino) == (ours.st_dev, ours.st_ino)

    def _remove_stale_sockets(self) -> None:
        """Sockets that are there although we hold the lock belonged to a broker that was killed."""
        for name in SOCKETS:
            try:
                found = os.stat(name, dir_fd=self._dir, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if not stat.S_ISSOCK(found.st_mode):
                raise UsageError(f"rundir {self.path}: {name} is no socket; expected nothing or a stale one")
            os.unlink(name, dir_fd=self._dir)

    def close(self) -> None:
        """Remove the lock and the sockets, and the directory if we made it and nothing else is in it."""
        for name in (*SOCKETS, LOCK):
            try:
                os.unlink(name, dir_fd=self._dir)
            except OSError:
                continue
        if self.made:
            with contextlib.suppress(OSError):
                self.path.rmdir()
        self._release()

    def _release(self) -> None:
        for fd in (self._lock, self._dir):
            if fd >= 0:
                os.close(fd)
        self._lock = self._dir = -1


def remove_files(path: Path) -> None:
    """Remove what a broker that was killed left in its rundir; nothing that it stored for its next life."""
    for name in (*SOCKETS, LOCK):
        with contextlib.suppress(OSError):
            (path / name).unlink()


def _make(path: Path) -> bool:
    """Whether the directory had to be made."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(f"rundir {path}: cannot create: {error.strerror}") from None
    return True


def _open(path: Path) -> int:
    """A descriptor of the directory, which has been found safe to use."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise UsageError(f"rundir {path}: is no directory (links are not followed)") from None
        raise UsageError(f"rundir {path}: cannot open: {error.strerror}") from None
    if why := untrusted(os.fstat(fd), (os.geteuid(),)):
        os.close(fd)
        raise UsageError(f"rundir {path}: {why}; expected it to be uid {os.geteuid()}'s alone, with mode 0700")
    return fd

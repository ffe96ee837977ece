"""Sub-cgroups for runs, where our own cgroup (v2) was delegated to us (systemd.resource-control(5), Delegate=).

systemd marks a delegated cgroup with an extended attribute, `trusted.delegate` or `user.delegate`, value `1`. Without
that mark nothing is touched: the cgroup belongs to somebody else. Sub-cgroups have no controllers, so processes may
live both here and in them.
"""

from __future__ import annotations

import os
import re
import time

# A cgroup whose processes are gone can be removed at once, but one in which they just died needs a moment.
_REMOVE_PATIENCE_NS = 20_000_000
_OCTAL = re.compile(r"\\([0-7]{3})")


def mount_point(mountinfo: str) -> tuple[str, str] | None:
    """Where cgroup v2 is mounted, and which cgroup is its root there: (mount point, root). proc_pid_mountinfo(5)."""
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if dash and len(fields) >= 5 and after.startswith("cgroup2 "):
            return unescape(fields[4]), unescape(fields[3])
    return None


def unescape(text: str) -> str:
    """A path of mountinfo: spaces and the like are octal there."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def own_path(cgroup: str) -> str | None:
    """The path of the v2 line of /proc/self/cgroup: `0::/system.slice/flux.service`."""
    for line in cgroup.splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None


def own_folder() -> str | None:
    """The directory of our own cgroup; None where version 2 is not mounted, or not so that ours can be seen."""
    return folder_of("self")


def folder_of(pid: int | str) -> str | None:
    """The directory of a process' cgroup; None where it has gone, or its cgroup can't be seen."""
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as file:  # noqa: PTH123 - lean
            mounted = mount_point(file.read())
        with open(f"/proc/{pid}/cgroup", errors="surrogateescape") as file:  # noqa: PTH123 - lean
            path = own_path(file.read())
    except OSError:
        return None
    if mounted is None or path is None:
        return None
    point, root = mounted
    if root != "/":
        if path != root and not path.startswith(f"{root}/"):
            return None
        path = path[len(root) :]
    return point + path.rstrip("/")


def delegated() -> str | None:
    """The directory of our own cgroup if it is delegated to us and we can make sub-cgroups in it; else None."""
    folder = own_folder()
    if folder is None:
        return None
    marked = any(_attribute(folder, name) == b"1" for name in ("trusted.delegate", "user.delegate"))
    return folder if marked and os.access(folder, os.W_OK) else None


def _attribute(folder: str, name: str) -> bytes:
    try:
        return os.getxattr(folder, name)
    except OSError:
        return b""


class Cgroup:
    """The sub-cgroup of one run."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def make(cls, parent: str, name: str) -> Cgroup | None:
        """Make `PARENT/run-NAME`; None where that is not possible, and the run does without."""
        path = f"{parent}/run-{name}"
        try:
            os.mkdir(path)  # noqa: PTH102 - lean
        except FileExistsError:
            pass  # of an earlier life that was killed; its processes, if any, are members then as they should be
        except OSError:
            return None
        return cls(path)

    @property
    def procs(self) -> str:
        """The file through which a process joins."""
        return f"{self.path}/cgroup.procs"

    def members(self) -> list[int]:
        """Its processes, those of its sub-cgroups included."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.path):
            try:
                with open(f"{folder}/cgroup.procs") as file:  # noqa: PTH123 - lean
                    found.extend(int(word) for word in file.read().split())
            except OSError:
                continue
        return found

    def holds(self, pid: int) -> bool:
        """Whether a process lives in it now, or in one of its sub-cgroups."""
        folder = folder_of(pid)
        return folder is not None and f"{folder}/".startswith(f"{self.path}/")

    def kill(self) -> bool:
        """SIGKILL to all of it at once, forks included (Linux 5.14); False where the kernel can't."""
        try:
            with open(f"{self.path}/cgroup.kill", "w") as file:  # noqa: PTH123 - lean
                file.write("1")
        except OSError:
            return False
        return True

    def remove(self) -> bool:
        """Remove it, deepest first; False if processes still live in it. Waits at most 20 ms for the dead to leave."""
        deadline_ns = time.monotonic_ns() + _REMOVE_PATIENCE_NS
        while True:
            left = False
            for folder, _, _ in os.walk(self.path, topdown=False):
                try:
                    os.rmdir(folder)  # noqa: PTH106 - lean
                except OSError:
                    left = True
            if not left or self.members() or time.monotonic_ns() > deadline_ns:
                return not left
            time.sleep(0.001)

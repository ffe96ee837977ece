"""A systemd of our own: PID 1 of namespaces of its own, for tests and for scenarios; boots in a quarter of a second.

It sees the file system of the host through an overlay, so what it writes is lost at its end; but the directories that
are shared are the host's own, read and written at the same paths. /run, /dev, /etc/systemd, the journal, the message
bus and the cgroups are its own; the network is the host's. Settings of the kernel are read-only inside, but for the
network's: as every systemd it raises net.unix.max_dgram_qlen to 512 where that is lower. Nothing else of it outlives
whoever booted it: a keeper outside waits for the end of a pipe, also where that is kill -9, then kills it and removes
its cgroups.

What it needs: root with CAP_SYS_ADMIN, overlayfs, cgroup v2 (also the unified part of a hybrid hierarchy; it gets a
cgroup below our own one, without controllers), systemd, dbus and util-linux; `unsupported` names what is missing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple, Self

from brokerctl.durations import S
from brokerctl.errors import KernelError
from brokerctl.kernel import cgroup, pidfd, proc
from brokerctl.kernel.spawn import Child, spawn

SCRIPT = Path(__file__).with_name("private.sh")
SYSTEMD = Path("/lib/systemd/systemd")
NEEDED = ("setpriv", "unshare", "nsenter", "mount", "umount", "pivot_root", "systemctl", "journalctl", "dbus-daemon")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Nothing of the caller's: its tests mark what they start, and this is nobody's.
ENVIRONMENT = {"PATH": PATH, "LANG": "C.UTF-8"}
TMP = "/tmp"  # noqa: S108 - the place, not a file in it
CAP_SYS_ADMIN = 21  # capabilities(7)
SYSLOG = "/run/systemd/journal/syslog"
# Where this manager keeps the units that are written for it.
UNITS = "/etc/systemd/system"

# Measured: 0.2 to 0.3 s; a machine that is overloaded needs some seconds.
BOOT_LIMIT_NS = 30 * S
POLL_S = 0.01
# SIGKILL to all of it and the removal of its cgroups take hundredths of a second.
END_LIMIT_S = 10.0
RUN_LIMIT_S = 60.0
# Kept for the message about a boot that failed.
WORDS_MAX = 4096

# File systems that a manager has for itself, or that belong to the kernel; also what bind mounts can do nothing with.
_PSEUDO = frozenset(
    (
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
        "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs",
        "tracefs",
    )
)  # fmt: skip
_OWN = ("/proc", "/sys", "/dev", "/run", "/etc/systemd", "/etc/machine-id")
_UP = frozenset({"running", "degraded"})
_BASE = frozenset({"init.scope", "dbus.service", "dbus.socket", "systemd-journald.service", "systemd-journald.socket"})


@functools.cache
def unsupported() -> str:
    """Why no private systemd can run here; empty where nothing speaks against it."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if not SYSTEMD.exists():
        missing.insert(0, str(SYSTEMD))
    if missing:
        return f"needs {', '.join(missing)}"
    if not int(_status_field("CapEff"), 16) >> CAP_SYS_ADMIN & 1:
        return "needs CAP_SYS_ADMIN"
    folder = cgroup.own_folder()
    if folder is None:
        return "needs cgroup v2"
    if not os.access(folder, os.W_OK):
        return f"needs a cgroup to write in; {folder} is read-only"
    return ""


def _status_field(name: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return "0"


def mounts(mountinfo: str) -> list[str]:
    """The mount points that an overlay of `/` lacks: those of real file systems, outer ones first."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        path, kind = cgroup.unescape(before.split(" ")[4]), after.split(" ")[0]
        if path != "/" and kind not in _PSEUDO and not any(path == own or path.startswith(f"{own}/") for own in _OWN):
            found.append(path)
    return list(dict.fromkeys(found))


class Done(NamedTuple):
    """How a command inside ended."""

    returncode: int
    stdout: str
    stderr: str


class PrivateSystemd:
    """One such manager, running; `close`, or the end of a `with`, ends it. KernelError where it does not come up.

    `shared` are directories that it shares with the host, beside /tmp and where this package is. `log_level` is how
    much the manager tells of itself (systemd(1)); whoever binds a socket at `SYSLOG` inside gets that, and all else
    that goes to the journal, at once.
    """

    def __init__(self, shared: Iterable[str | Path] = (), log_level: str = "info") -> None:
        self.name = f"brokerctl-systemd-{secrets.token_hex(4)}"
        folder = cgroup.own_folder()
        if folder is None:
            raise KernelError("cannot boot a systemd: there is no cgroup v2")
        package = Path(__file__).resolve().parents[3]
        inside = mounts(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
        self._since_s = 0.0
        self.pid, self._pidfd = 0, -1
        self._words = os.memfd_create("systemd-words")
        told, teller = os.pipe()
        awake, self._awake = os.pipe()
        try:
            self._keeper: Child = spawn(
                [
                    "/bin/sh", str(SCRIPT), "keep", f"{folder}/{self.name}", f"/run/{self.name}", log_level,
                    *inside, "--", TMP, *dict.fromkeys(os.path.realpath(path) for path in (package, *shared)),
                ],
                env=ENVIRONMENT, stdin=awake, stdout=teller, stderr=self._words, cwd="/",
            )  # fmt: skip
        finally:
            os.close(awake)
            os.close(teller)
        try:
            with os.fdopen(told) as pipe:
                self._unshare = int(pipe.readline() or 0)
            self._wait_until_up()
        except BaseException:
            with contextlib.suppress(KernelError):  # what was wrong first is told
                self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End it and all that runs in it; KernelError where it does not end."""
        if self._awake < 0:
            return
        os.close(self._awake)
        self._awake = -1
        deadline_s = time.monotonic() + END_LIMIT_S
        while (status := pidfd.wait(self._keeper.pidfd)) is None and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        words = self._last_words()
        for fd in (self._keeper.pidfd, self._words, *([self._pidfd] if self._pidfd >= 0 else [])):
            os.close(fd)
        self._pidfd = -1
        if status != 0:
            raise KernelError(f"cannot end a private systemd: {words or 'no reason given'}")

    def _wait_until_up(self) -> None:
        """Until it has started all that it starts by itself."""
        deadline_ns = time.monotonic_ns() + BOOT_LIMIT_NS
        while time.monotonic_ns() < deadline_ns:
            found = proc.stat(self._unshare) if self._unshare else None
            if found is None or found.state in "ZX":
                raise KernelError(f"cannot boot a systemd: {self._last_words() or 'it ended at once'}")
            if self._is_systemd() and self._state() in _UP:
                return
            time.sleep(POLL_S)
        raise KernelError(f"cannot boot a systemd: it is not up after {BOOT_LIMIT_NS // S} s")

    def _is_systemd(self) -> bool:
        """It has become systemd, and lives; from then on `pid` is its number as the host sees it."""
        if self._pidfd < 0:
            self.pid = next((pid for pid in proc.children_of(self._unshare) if proc.comm(pid) == SYSTEMD.name), 0)
            opened = pidfd.open_pid(self.pid) if self.pid else None
            self._pidfd = -1 if opened is None else opened
        return self._pidfd >= 0 and not pidfd.ends_within(self._pidfd, 0)

    def _check_alive(self) -> None:
        """Its number may be another process's when it has ended: what is done by it would be done to the host."""
        if self._pidfd < 0 or pidfd.ends_within(self._pidfd, 0):
            raise KernelError("the private systemd has ended")

    def _state(self) -> str:
        return self.systemctl("is-system-running", check=False).stdout.strip()

    def _last_words(self) -> str:
        size = os.fstat(self._words).st_size
        text = os.pread(self._words, WORDS_MAX, max(0, size - WORDS_MAX)).decode(errors="replace")
        return " ".join(text.split())

    # ---- inside

    def path(self, inside: str | Path) -> Path:
        """How the host reaches a file inside; KernelError where it has ended."""
        self._check_alive()
        return Path(f"/proc/{self.pid}/root{inside}")

    def argv(self, argv: Sequence[str | Path]) -> list[str]:
        """The argument list that, outside, runs this one inside, as root, in `/`; KernelError where it has ended."""
        self._check_alive()
        return ["nsenter", "-t", str(self.pid), "-a", "--", *map(str, argv)]

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        text: str = "",
        limit_s: float = RUN_LIMIT_S,
    ) -> Done:
        """Run a command inside, with `text` for its stdin; KernelError where `check` and it fails, or at the limit."""
        options: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, "env": env, "errors": "replace"}
        with self.popen(argv, **options) as process:
            try:
                out, err = process.communicate(text, timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise KernelError(f"{' '.join(map(str, argv))}: has not ended after {limit_s:g} s") from None
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        done = Done(process.returncode, out, err)
        if check and done.returncode:
            words = " ".join((done.stderr or done.stdout).split())
            raise KernelError(f"{' '.join(map(str, argv))}: exit code {done.returncode}: {words}")
        return done

    def popen(self, argv: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - of Popen
        """Start a command inside; its process here is `nsenter`, which ends as the command does.

        Both are in a process group of their own: `os.killpg` reaches the command.
        """
        return subprocess.Popen(self.argv(argv), **{"text": True, "process_group": 0, **options})

    def systemctl(self, *args: str, check: bool = True, limit_s: float = RUN_LIMIT_S) -> Done:
        """`systemctl ARGS…`."""
        return self.run(["systemctl", *args], check=check, limit_s=limit_s)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit, as `systemctl show` prints them; all without names."""
        lines = self.systemctl("show", "--all", *(f"--property={name}" for name in names), "--", unit).stdout
        pairs = (line.partition("=") for line in lines.splitlines())
        return {name: value for name, _, value in pairs}

    def journal(self, unit: str) -> list[str]:
        """The messages of a unit and about it, since `forget`."""
        return [str(entry.get("MESSAGE", "")) for entry in self.entries(unit)]

    def entries(self, unit: str) -> list[dict[str, Any]]:
        """The same with all their fields (systemd.journal-fields(7))."""
        self.run(["journalctl", "--sync"])
        lines = self.run(
            ["journalctl", "--unit", unit, "--output=json", "--all", "--no-pager", f"--since=@{self._since_s:.6f}"]
        ).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def is_busy(self) -> bool:
        """Whether a unit is active that it did not start by itself, or it is not in good health."""
        if self._state() not in _UP:
            return True
        kinds = "--type=service,socket,timer,path,scope"
        lines = self.systemctl(
            "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating,reloading", kinds
        )
        return any(line.split()[0] not in _BASE for line in lines.stdout.splitlines())

    def forget(self) -> None:
        """Forget all units that were written, how they ended, and the journal; none may be active (`is_busy`)."""
        for path in self.path(UNITS).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.systemctl("daemon-reload")
        self.systemctl("reset-failed")
        self._since_s = time.time()

    def unit(self, name: str, text: str) -> Path:
        """Write a unit file, or with `NAME.d/FILE.conf` a drop-in; its path inside.

        A manager that never loaded the name needs no daemon-reload, which would end what is extended (SYSTEMD.md 42).
        """
        inside = Path(UNITS) / name
        path = self.path(inside)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return inside

"""What a real Flux needs on disk to act a scenario out: a private directory with configuration, and scripts of puppets.

`DIR/bin/PUPPET` is what Flux runs; in what it logs, `as_told` puts the puppet's own command in its place.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from brokerctl import config
from brokerctl.durations import S, as_text
from brokerctl.errors import KernelError
from brokerctl.ids import hostlist, idset
from brokerctl.kernel import proc
from brokerctl.model.tree import flat
from brokerctl.worlds.flux import kept
from brokerctl.worlds.flux.fit import OWN, fanout, has_modules, pushed
from brokerctl.worlds.flux.kept import Kept
from brokerctl.worlds.live.ways import ACTOR, Ways, decode_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brokerctl.records import Command
    from brokerctl.settings import Action, Housekeeping, Perilog
    from brokerctl.worlds.contract import Resolved

# Which broker a process belongs to is told by the socket that it finds it by: rank 3's is `…/local-3`.
_SCRIPT = """\
#!/bin/sh
export BROKERCTL_RANK="${{FLUX_URI##*local-}}"
{before}exec {way}
"""
_BROKER = re.compile(r"\S*/flux-broker\b")
# After the leader, what is left is killed then; it may need a minute for its goodbye, and the horizon comes first.
EXIT_TIMEOUT = "10m"
SOCKET_MAX = 107  # bytes in the path of a socket (unix(7))


class Stage:
    """The private directory of one life of an instance; `close` removes it. KernelError where it can't be had.

    Whatever descends from the instance carries `cookie` in its environment.
    """

    def __init__(self, scenario: Resolved, flux: str) -> None:
        self._scenario = scenario
        self.flux = flux
        earlier = kept.restored(scenario.restored)
        self.folder = _made(earlier)
        self.cookie = secrets.token_hex(8) if earlier is None else earlier.cookie
        self.earlier = {} if earlier is None else earlier.jobs  # jobs of earlier lives: label → id
        self.size = len(scenario.topology.parents)
        self._bin = self.folder / "bin"
        self._ways = Ways(scenario, self.folder)
        self.scripts: dict[str, str] = {}
        try:
            self._fill({} if earlier is None else earlier.state)
        except BaseException:
            self.close()
            raise

    def _fill(self, state: Mapping[str, bytes]) -> None:
        _check(self.folder, self.size)
        for name in ("run", "state", "conf", "bin"):
            (self.folder / name).mkdir(mode=0o700)
        for name, data in state.items():
            (self.folder / "state" / name).write_bytes(data)
        for spec in self._scenario.puppets.values():
            self._write(spec.name)
        self.config = self._config()
        (self.folder / "conf" / "brokerctl.toml").write_text(self.config)

    def stored(self, jobs: dict[str, str]) -> dict[str, str]:
        """What the next life begins with, once all brokers have ended. Without modules, a Flux keeps nothing."""
        if not has_modules(self._scenario):
            return {}
        return Kept(str(self.folder), self.cookie, jobs, kept.files(self.folder / "state")).stored()

    def close(self) -> None:
        """Remove it all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def dump(self) -> Path:
        """Where rc3 writes what the KVS has."""
        return self.folder / "dump.tgz"

    def uri(self, rank: int) -> str:
        """Where that broker is found."""
        return f"local://{self.folder}/run/local-{rank}"

    def as_told(self, text: str) -> str:
        """A line of a log with the commands that the scenario has, and `$DIR` for this directory."""
        for name in sorted(self._scenario.puppets, key=len, reverse=True):  # one may begin as another does
            text = text.replace(str(self._bin / name), self._scenario.puppets[name].command)
        return self.abroad(text)

    def abroad(self, text: str) -> str:
        """A text without what is only of this machine and this run."""
        text = text.replace(shlex.join(ACTOR), "puppet").replace(str(self.folder), "$DIR")
        return _BROKER.sub("flux-broker", text.replace(self.flux, "flux"))

    # ---- scripts

    def _write(self, name: str) -> None:
        spec = self._scenario.puppets[name]
        if spec.command.startswith(OWN):
            return
        rc2 = [action.command.puppet for action in self._scenario.settings.rc2]
        before = "".join(f"{self.push(words)}\n" for words in self.pushes) if name in rc2 else ""
        way = self._ways.of(spec)
        path = self._bin / name
        if spec.start_errno:
            path.symlink_to(way[0])
            return
        text = _SCRIPT.format(before=before, way=shlex.join(way))
        path.write_text(text)
        path.chmod(0o700)
        self.scripts[name] = self.abroad(text)

    def command(self, command: Command) -> str:
        """What Flux is told to run for it."""
        return command.text if command.text.startswith(OWN) else str(self._bin / command.puppet)

    @property
    def pushes(self) -> list[str]:
        """What is pushed on the cleanup list when the leader runs, in the order in which it is pushed."""
        return [self.command(one.command) for one in reversed(pushed(self._scenario.settings))]

    def push(self, text: str) -> str:
        """The command that pushes it."""
        return f"{shlex.quote(self.flux)} admin cleanup-push {shlex.quote(text)}"

    # ---- configuration

    def _config(self) -> str:
        settings = self._scenario.settings
        lines = []
        if settings.prolog is not None or settings.epilog is not None:
            lines += ["[job-manager]", 'plugins = [ { load = "perilog.so" } ]']
        for name in ("prolog", "epilog"):
            script: Perilog | None = getattr(settings, name)
            if script is not None:
                lines += [f"[job-manager.{name}]", *self._perilog(script)]
        if settings.housekeeping is not None:
            lines += ["[job-manager.housekeeping]", *self._housekeeping(settings.housekeeping)]
        if settings.checkpoint_period_ns is not None:
            lines += ["[kvs]", f'checkpoint-period = "{as_text(settings.checkpoint_period_ns)}"']
        if settings.exec_kill_timeout_ns != config.FLUX.exec_kill_timeout_ns:
            lines += ["[exec]", f'kill-timeout = "{as_text(settings.exec_kill_timeout_ns)}"']
        if settings.heartbeat_timeout_ns != config.FLUX.heartbeat_timeout_ns:
            lines += ["[heartbeat]", f'timeout = "{_or_never(settings.heartbeat_timeout_ns)}"']
        if settings.cores != _cores():
            lines += ["[resource]", f'path = "{self._resources()}"', "noverify = true"]
        return "".join(f"{line}\n" for line in lines)

    def _perilog(self, script: Perilog) -> list[str]:
        lines = [
            f'command = [ "{self._bin / script.command.puppet}" ]',
            f"per-rank = {str(script.per_rank).lower()}",
            f"kill-timeout = {script.kill_timeout_ns / S}",
            f"cancel-on-exception = {str(script.cancel_on_exception).lower()}",
        ]
        return lines if script.timeout_ns is None else [*lines, f'timeout = "{as_text(script.timeout_ns)}"']

    def _housekeeping(self, script: Housekeeping) -> list[str]:
        lines = [f'command = [ "{self._bin / script.command.puppet}" ]']
        if script.release_after_ns is not None:
            lines.append(f'release-after = "{as_text(script.release_after_ns)}"')
        return lines

    def _resources(self) -> Path:
        """As many cores of each node as the scenario says (RFC 20)."""
        cores = self._scenario.settings.cores
        lite = [{"rank": idset(range(self.size)), "children": {"core": idset(range(cores))}}]
        execution = {"R_lite": lite, "starttime": 0, "expiration": 0, "nodelist": [self._hosts()]}
        path = self.folder / "conf" / "R.json"
        path.write_bytes(msgspec.json.encode({"version": 1, "execution": execution}))
        return path

    def _hosts(self) -> str:
        return hostlist(self._scenario.topology.hosts)

    # ---- the launch

    def attributes(self) -> dict[str, str]:
        """The broker's attributes that the scenario decides, beside those of every run."""
        settings = self._scenario.settings
        found: dict[str, str] = {}
        for name, limit_ns in (
            ("broker.cleanup-timeout", settings.cleanup_timeout_ns),
            ("broker.shutdown-timeout", settings.shutdown_timeout_ns),
            ("broker.quorum-warn", settings.quorum_warn_ns),
            ("broker.shutdown-warn", settings.shutdown_warn_ns),
            ("broker.sd-stop-timeout", settings.sd_stop_timeout_ns),
        ):
            if limit_ns is not None:
                found[name] = as_text(limit_ns)
        if settings.quorum is not None:
            found["broker.quorum"] = str(settings.quorum)
        if settings.exit_norestart is not None:
            found["broker.exit-norestart"] = str(settings.exit_norestart)
        if settings.sd_notify:
            found["broker.sd-notify"] = "1"
        if settings.torpid_max_ns != config.FLUX.torpid_max_ns:
            found["tbon.torpid_max"] = _or_never(settings.torpid_max_ns)
        for name, actions in (("broker.rc1_path", settings.rc1), ("broker.rc3_path", settings.rc3)):
            text = self._path(actions)
            if text is not None:
                found[name] = text
        return found

    def _path(self, actions: tuple[Action, ...]) -> str | None:
        """Nothing where it is Flux's own."""
        if not actions:
            return None if has_modules(self._scenario) else ""
        command = actions[0].command
        return None if command.text.startswith(OWN) else self.command(command)

    @property
    def topo(self) -> str:
        """The tree as Flux's attribute has it."""
        parents = self._scenario.topology.parents
        wide = self.size if parents == flat(self.size) else fanout(parents)
        return f"kary:{max(wide or 1, 1)}"

    def argv(self) -> list[str]:
        """The argument list of the instance."""
        settings = self._scenario.settings
        every = {
            "log-stderr-level": "7",
            "log-stderr-mode": "local",
            "log-forward-level": "-1",
            "statedir": f"{self.folder}/state",
            "tbon.topo": self.topo,
        }
        if not settings.rc2:
            every["broker.rc2_none"] = "1"
        if has_modules(self._scenario):
            every["content.dump"] = str(self.dump)
        words = [
            self.flux, "start", "-v", f"--test-size={self.size}", f"--test-hosts={self._hosts()}",
            f"--test-rundir={self.folder}/run", f"--test-exit-timeout={EXIT_TIMEOUT}", "--test-exit-mode=leader",
            *(f"-S{name}={value}" for name, value in {**every, **self.attributes()}.items()),
            f"--config-path={self.folder}/conf",
        ]  # fmt: skip
        return words + [self.command(action.command) for action in settings.rc2]

    def environment(self, notify: str) -> dict[str, str]:
        """That of the instance."""
        env = {**os.environ, proc.COOKIE: self.cookie}
        for name in ("FLUX_URI", "FLUX_CONF_DIR", "NOTIFY_SOCKET", "WATCHDOG_USEC"):
            env.pop(name, None)
        if notify:
            env["NOTIFY_SOCKET"] = notify
        cleanup = self._scenario.settings.cleanup
        if pushed(self._scenario.settings) == cleanup:
            env["FLUX_DISABLE_JOB_CLEANUP"] = "1"
        return env

    def jobspec(self, text: str) -> bytes:
        """A job as Flux is told of it (RFC 25)."""
        spec = decode_job(text)
        slot = {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": spec.cores or 1}]}
        node: dict[str, object] = {"type": "node", "count": spec.width, "with": [slot]}
        if spec.cores is None:
            node["exclusive"] = True
        env = {"PATH": os.environ.get("PATH", os.defpath), proc.COOKIE: self.cookie}
        system: dict[str, object] = {"duration": 0, "environment": env, "job": {"name": spec.name}}
        if spec.ranks:
            system["constraints"] = {"ranks": [idset(spec.ranks)]}
        task = {"command": [self.command(spec.task)], "slot": "task", "count": {"per_slot": 1}}
        made = {"version": 1, "resources": [node], "tasks": [task], "attributes": {"system": system}}
        return msgspec.json.encode(made)


def _cores() -> int:
    """The cores that a Flux finds here by itself: those of this process, the hardware threads of one counted once."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        try:
            found.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            found.add(str(cpu))
    return len(found)


def _or_never(limit_ns: int | None) -> str:
    """A limit that Flux takes 0 for none of."""
    return "0" if limit_ns is None else as_text(limit_ns)


def _made(earlier: Kept | None) -> Path:
    """A new directory, or that of the life before; nobody else's, if there is one of its name meanwhile."""
    try:
        if earlier is None:
            return Path(tempfile.mkdtemp(prefix="brokerctl-"))
        folder = Path(earlier.folder)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise KernelError(f"cannot make {error.filename}: {error.strerror}") from None
    return folder


def _check(folder: Path, size: int) -> None:
    """Brokers have their sockets there, and shells are told commands there."""
    if len(os.fsencode(f"{folder}/run/local-{size}")) > SOCKET_MAX:
        raise KernelError(f"{folder}: too long a path for the sockets of brokers; expected a shorter TMPDIR")
    if shlex.quote(str(folder)) != str(folder):
        raise KernelError(f"{folder}: a path that a shell would take apart; expected another TMPDIR")

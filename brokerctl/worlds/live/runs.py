"""The real processes of a broker: started, watched, read, signalled and reaped.

What a world promises about the order of their events, so that two worlds tell the same story: a run's last lines and
the end of its output come before its exit, where both are known; `Emptied` comes after both.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from brokerctl.kernel import cgroup, pidfd, proc, reap
from brokerctl.kernel.cgroup import Cgroup
from brokerctl.kernel.proc import User
from brokerctl.kernel.scope import Family
from brokerctl.kernel.spawn import spawn
from brokerctl.kernel.terminal import own_terminal, take_terminal
from brokerctl.records import (
    AnyEvent,
    Command,
    Emptied,
    Exited,
    KillFailed,
    Output,
    OutputEnded,
    Scope,
    SpawnFailed,
)
from brokerctl.worlds.live.loop import READ
from brokerctl.worlds.live.output import Cap, Name, Stream

if TYPE_CHECKING:
    from brokerctl.worlds.live.loop import Loop, Timer

# How often to look whether an aborted run is gone, while nothing else tells. On a machine with so many processes that
# looking takes long, it never takes more than a tenth of the time.
POLL_NS = 50_000_000
POLL_SHARE = 10
# How long after its process group the rest of a run is signalled: time for those who die of it to get a processor.
ELSEWHERE_NS = 2_000_000
STREAMS: tuple[Name, Name] = ("out", "err")


class Run:
    """One started process and what is known of it."""

    __slots__ = ("cap", "family", "holds_terminal", "name", "seen_empty", "streams", "watched")

    def __init__(self, name: str, family: Family, streams: list[Stream], cap: Cap, *, holds_terminal: bool) -> None:
        self.name = name
        self.cap = cap
        self.family = family
        self.streams = streams
        self.holds_terminal = holds_terminal
        self.watched = False  # `Emptied` is owed
        self.seen_empty = False

    @property
    def over(self) -> bool:
        """Nothing can be told of it any more."""
        return self.family.pidfd is None and not self.streams and not self.watched


class Runs:
    """All runs of a broker. What happens to them is posted.

    `cookie` names the broker in its processes' environment; `adopts` says that this process is a subreaper.
    They run as `user`, else as we do.
    """

    def __init__(
        self,
        loop: Loop,
        post: Callable[[AnyEvent], None],
        cookie: str,
        environment: Mapping[str, str],
        *,
        adopts: bool,
        user: User | None = None,
    ) -> None:
        self._loop = loop
        # Brokers may share a cgroup (of a tree, of a terminal's scope), and their runs have the same names.
        self._prefix = f"{os.getpid()}."
        self._post = post
        self._cookie = cookie
        self._environment = environment
        self._adopts = adopts
        self._user = user
        self._cgroup = cgroup.delegated()
        self._runs: dict[str, Run] = {}
        self._by_pid: dict[int, Run] = {}
        self._kept_cgroups: list[Cgroup] = []
        self._poll: Timer | None = None
        self._next_look_ns = 0
        # Takes in what a dead process has said, before its end is told.
        self.last_words: Callable[[], None] = _nothing

    # ---- orders

    def start(self, name: str, command: Command, more: Mapping[str, str] | None = None) -> None:
        """Start a run, with `more` in its environment; SpawnFailed is posted where that fails."""
        assert name not in self._runs, "a name is a run's for the rest of its life"
        try:
            run = self._start(name, command, more or {})
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in a word
            self._post(SpawnFailed(name, getattr(error, "errno", None) or errno.EINVAL))
            return
        self._runs[name] = run
        self._by_pid[run.family.pid] = run
        assert run.family.pidfd is not None
        self._loop.watch(run.family.pidfd, READ, lambda _: self._main_gone(run))
        for stream in run.streams:
            self._loop.watch(stream.fd, READ, partial(self._readable, run, stream))

    def _start(self, name: str, command: Command, more: Mapping[str, str]) -> Run:
        group = Cgroup.make(self._cgroup, self._prefix + name) if self._cgroup is not None else None
        terminal = own_terminal() if command.inherit else None
        pipes: list[tuple[int, int]] = []
        try:
            while len(pipes) < len(STREAMS) and not command.inherit:
                pipes.append(os.pipe())
            child = spawn(
                command.argv,
                env={**self._environment_of(name), **more},
                stdin=0 if command.inherit else None,
                stdout=1 if command.inherit else pipes[0][1],
                stderr=2 if command.inherit else pipes[1][1],
                cgroup_procs=None if group is None else group.procs,
                # A puppet takes its signals itself; none may come before it can.
                blocked=signal.valid_signals() if command.puppet else (),
                terminal=terminal,
                user=self._user,
            )
        except BaseException:
            for reader, _ in pipes:
                os.close(reader)
            if group is not None:
                group.remove()
            if terminal is not None:
                take_terminal()
            raise
        finally:
            for _, writer in pipes:
                os.close(writer)
        cap = Cap()
        show = self._shower(name)
        streams = [Stream(pipe[0], stream, cap, show) for pipe, stream in zip(pipes, STREAMS, strict=False)]
        family = Family(child.pid, child.pidfd, self._cookie_of(name).encode(), group)
        return Run(name, family, streams, cap, holds_terminal=terminal is not None)

    def _cookie_of(self, name: str) -> str:
        return f"{self._cookie}:{name}"

    def _environment_of(self, name: str) -> dict[str, str]:
        """Brokers nest, and so do their cookies."""
        outer = self._environment.get(proc.COOKIE)
        cookie = self._cookie_of(name)
        return {**self._environment, proc.COOKIE: f"{outer},{cookie}" if outer else cookie}

    def _shower(self, run: str) -> Callable[[Name, str], None]:
        return lambda stream, text: self._post(Output(run, stream, text))

    def kill(self, name: str, signum: int, scope: Scope) -> None:
        """Signal a run; KillFailed is posted where nobody was reached."""
        run = self._runs.get(name)
        if run is None:
            self._post(KillFailed(name, signum, errno.ESRCH))
            return
        failed = 0
        if scope == "all" and run.family.kill_at_once(signum):
            self._loop.after(ELSEWHERE_NS, lambda: self._kill_elsewhere(run, signum))
        else:
            failed = run.family.kill(signum, scope)
        if failed:
            self._post(KillFailed(name, signum, failed))
        if scope == "all":
            run.watched = True
            self._next_look_ns = 0
            self._look_soon(0 if failed else POLL_NS)

    def _kill_elsewhere(self, run: Run, signum: int) -> None:
        if run.watched:
            run.family.kill_elsewhere(signum)

    def close_output(self, name: str) -> None:
        """Wait no longer for the end of a run's output; who held it is named."""
        run = self._runs.get(name)
        if run is None or not run.streams:
            return
        inodes = [stream.inode() for stream in run.streams if stream.read_out()]
        held_by = ""
        if inodes:
            pid = proc.holder(inodes[0], run.family.members())
            held_by = f"{proc.comm(pid)} (pid {pid})" if pid is not None else "an unknown process"
        for stream in run.streams:
            stream.finish()
            self._close(stream)
        self._output_ended(run, held_by)

    def abandon(self, name: str) -> None:
        """Forget a run, whatever becomes of it: its main process is still reaped, but nothing is told."""
        run = self._runs.pop(name, None)
        if run is None:
            return
        run.watched = False
        for stream in run.streams:
            self._close(stream)
        run.streams.clear()
        if run.family.pidfd is None:
            self._forget(run)

    def knows(self, name: str) -> bool:
        """Whether a run can still tell something."""
        return name in self._runs

    def run_of(self, pid: int) -> str | None:
        """The run of which this is the main process, dead or alive, as long as it was not reaped."""
        run = self._by_pid.get(pid)
        return run.name if run is not None and self._runs.get(run.name) is run else None

    def pid_of(self, name: str) -> int | None:
        """The main process of a run, as long as it was not reaped."""
        run = self._runs.get(name)
        return None if run is None or run.family.pidfd is None else run.family.pid

    # ---- what happens

    def _readable(self, run: Run, stream: Stream, _events: int) -> None:
        if stream.read() < 0:
            self._close(stream)
            run.streams.remove(stream)
            if not run.streams:
                self._output_ended(run, "")

    def _output_ended(self, run: Run, holder: str) -> None:
        run.streams.clear()
        self._post(OutputEnded(run.name, run.cap.dropped, holder))
        self._forget_if_over(run)

    def _drain(self, run: Run) -> None:
        """Read a run's pipes out; those at their end are closed."""
        for stream in tuple(run.streams):
            if not stream.read_out():
                self._close(stream)
                run.streams.remove(stream)
                if not run.streams:
                    self._output_ended(run, "")

    def _main_gone(self, run: Run) -> None:
        """The main process is dead: its last words first, then how it ended."""
        self.last_words()
        self._drain(run)
        main = run.family.pidfd
        if main is None:
            return
        status = pidfd.wait(main)
        if status is None:
            return
        self._loop.unwatch(main)
        os.close(main)
        run.family.pidfd = None
        del self._by_pid[run.family.pid]
        if run.holds_terminal:
            take_terminal()
        if self._runs.get(run.name) is run:
            self._post(Exited(run.name, status))
        self._look()
        self._forget_if_over(run)

    def child_died(self) -> None:
        """SIGCHLD: reap orphans that were adopted, and see whether an aborted run is gone."""
        self._continue_stopped()
        if reap.take_in(self._is_main):
            self._look()
        else:
            self._loop.after(0, self.child_died)

    def _is_main(self, pid: int) -> bool:
        """Take in the end of a run's main process, if the dead one is that."""
        run = self._by_pid.get(pid)
        if run is not None:
            self._main_gone(run)
        return run is not None

    def _continue_stopped(self) -> None:
        """There is no job control here: nobody could ever continue a command that Ctrl-Z has stopped."""
        for run in self._runs.values():
            main = run.family.pidfd
            if run.holds_terminal and main is not None and pidfd.stopped_by_terminal(main):
                run.family.kill(signal.SIGCONT, "group")

    # ---- whether an aborted run is gone

    def _look(self) -> None:
        """Post `Emptied` for every watched run of which nobody is left; look again later for the others."""
        now_ns = time.monotonic_ns()
        waiting = [run for run in self._runs.values() if run.watched]
        if not waiting:
            return
        nobody = self._adopts and reap.childless()  # then no orphan of ours lives either: we would have adopted it
        if now_ns < self._next_look_ns and not nobody:
            self._look_soon(0)
            return
        for run in waiting:
            if run.family.pidfd is None and (nobody or not run.family.members()):
                self._gone(run)
            else:
                run.seen_empty = False
        self._next_look_ns = time.monotonic_ns() + POLL_SHARE * (time.monotonic_ns() - now_ns)
        if any(run.watched for run in waiting):
            self._look_soon()

    def _gone(self, run: Run) -> None:
        """Nobody is left. A pipe that is still open was handed to a stranger, or its holder is just being torn down."""
        self._drain(run)
        if run.streams and not run.seen_empty:
            run.seen_empty = True
            return
        run.watched = False
        self._post(Emptied(run.name))
        self._forget_if_over(run)

    def _look_soon(self, delay_ns: int = POLL_NS) -> None:
        if self._poll is not None:
            self._poll.cancel()
        self._poll = self._loop.at(max(time.monotonic_ns() + delay_ns, self._next_look_ns), self._polled)

    def _polled(self) -> None:
        self._poll = None
        self._look()

    # ---- the end

    def _close(self, stream: Stream) -> None:
        self._loop.unwatch(stream.fd)
        os.close(stream.fd)

    def _forget_if_over(self, run: Run) -> None:
        if run.over:
            if self._runs.get(run.name) is run:
                del self._runs[run.name]
            self._forget(run)

    def _forget(self, run: Run) -> None:
        if run.family.cgroup is not None:
            self._kept_cgroups.append(run.family.cgroup)
            self._kept_cgroups = [kept for kept in self._kept_cgroups if not kept.remove()]

    def leftovers(self) -> list[int]:
        """Living processes that this broker started, or that descend from them."""
        if self._adopts and reap.childless():
            return []
        found = set(proc.carriers(self._cookie.encode())) | set(proc.children())
        return sorted(pid for pid in found if (at := proc.stat(pid)) is not None and at.state not in "ZX")

    def close(self) -> None:
        """Forget all runs, and reap what is dead; living processes stay as they are. The loop has ended."""
        for run in {id(run): run for run in (*self._runs.values(), *self._by_pid.values())}.values():
            for stream in run.streams:
                self._close(stream)
            run.streams.clear()
            if run.family.pidfd is not None:
                self._loop.unwatch(run.family.pidfd)
                os.close(run.family.pidfd)
                run.family.pidfd = None
            if run.holds_terminal:
                take_terminal()
            self._forget(run)
        self._runs.clear()
        self._by_pid.clear()
        reap.take_in()


def _nothing() -> None:
    pass

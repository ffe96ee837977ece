"""The frozen settings of one broker: every limit and every habit that the model knows, named for what it does.

Where they come from (policy, file, `-S`) is `config`'s; below it the word policy does not exist.
Durations are nanoseconds; None is no limit.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from brokerctl.durations import MINUTE, S
from brokerctl.records import Command, Scope


class Rung(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step of a kill ladder: a signal, and how long it may take before the next; None is for ever."""

    signum: int
    wait_ns: int | None


class Action(msgspec.Struct, frozen=True, gc=False):
    """One command of an ordered list (rc1, rc2, cleanup, rc3).

    With `ranks` it runs on those (an RFC 22 idset, or `all`), else on the broker's own. With `worker` it runs nothing:
    it is that worker's stop.

    `timeout_ns` cuts off this action alone. An `essential` action still runs after its list was aborted, within a slice
    of its own: its timeout, else `Settings.essential_timeout_ns`.
    """

    command: Command
    timeout_ns: int | None = None
    essential: bool = False
    ranks: str = ""
    worker: str = ""


class Worker(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A process that the leader starts after rc1, watches, and stops in CLEANUP.

    One that notifies is ready when it says so, and is ended if it doesn't within `ready_timeout_ns`; another one is
    ready when it runs. From then on it must not be silent for longer than `watchdog_ns`, nor have more than `memory`
    bytes. Its stop is a SIGTERM, and a SIGKILL after `stop_timeout_ns`. The end of a `required` one ends RUN.
    """

    name: str
    command: Command
    ready_timeout_ns: int = 60 * S
    watchdog_ns: int | None = None
    memory: int | None = None
    stop_timeout_ns: int = 10 * S
    required: bool = True

    def stop_action(self) -> Action:
        """The cleanup action that stops it."""
        text = f"stop of worker {self.name}"
        return Action(Command(text), self.stop_timeout_ns, essential=True, worker=self.name)


class Perilog(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`[job-manager.prolog]` or `.epilog`: a script before or after each job (FLUX.md 67).

    `per_rank` runs it on each node of the job, else on the leader only. After `timeout_ns` it gets SIGTERM, and
    `kill_timeout_ns` later its job is no longer held. `cancel_on_exception`: a fatal exception of the job ends it too.
    """

    command: Command
    per_rank: bool = False
    timeout_ns: int | None = None
    kill_timeout_ns: int = 60 * S
    cancel_on_exception: bool = False


class Housekeeping(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`[job-manager.housekeeping]`: a script on each node of a job that is over (FLUX.md 79–83).

    Nodes are given back all together (`release_after_ns` None), or that long after the first one is done: those that
    are done by then at once, each other one when it is (0: each when it is).
    """

    command: Command
    release_after_ns: int | None = None


class Hold(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A named prolog or epilog action that a plugin holds a job with (FLUX.md 58, 79).

    It is finished `after_ns` from its beginning (None: only by `release`), or, with `until`, when that service is
    active on all nodes of the job. Before that it `posts` an event that scripts may wait for.
    """

    name: str
    phase: Literal["prolog", "epilog"] = "epilog"
    after_ns: int | None = None
    until: str = ""
    posts: str = ""


Script = Literal["", "prolog", "epilog", "housekeeping"]


class NodeService(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A daemon on each node, which scripts start and stop: a script that exits 0 on a node has done it there.

    A `quiet` one must not be active on a node between start and finish of a job that runs there.
    """

    name: str
    active: bool = True  # when the instance starts
    started_by: Script = ""
    stopped_by: Script = ""
    quiet: bool = False


SignalHabit = Literal["abort", "arm"]


class Settings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one broker promises and how it behaves; immutable, shared by all ranks of an instance."""

    rc1: tuple[Action, ...] = ()
    rc2: tuple[Action, ...] = ()
    cleanup: tuple[Action, ...] = ()
    rc3: tuple[Action, ...] = ()
    workers: tuple[Worker, ...] = ()
    quorum: int | None = None  # how many ranks make the instance full; None is all of them
    shell: str = "/bin/bash"  # runs a command that is one string (FLUX.md 13)

    # Limits. FLUX.md 25, 36, 37, 11, 12 give Flux's defaults; the hardened ones are in docs/stop.md.
    cleanup_timeout_ns: int | None = None
    shutdown_timeout_ns: int | None = None
    finalize_timeout_ns: int | None = None
    config_sync_timeout_ns: int | None = None
    goodbye_timeout_ns: int = 60 * S
    unload_timeout_ns: int = 60 * S
    quorum_warn_ns: int | None = 60 * S
    shutdown_warn_ns: int | None = 60 * S
    essential_timeout_ns: int = 10 * S
    # How long the broker takes to unload its built-in parts (Flux: ~1 ms, FLUX.md J).
    unload_takes_ns: int = 0
    # How long after a process has exited a stranger may hold its output (FLUX.md 22: for ever).
    output_grace_ns: int | None = None
    # Flux waits 0.1 s to report ranks that come online together (FLUX.md 01: quorum lasts 0.100s at size 1).
    online_batch_ns: int = 0

    # The kill ladder of an aborted or timed-out action (FLUX.md 20: SIGHUP, once), and whom it reaches.
    ladder: tuple[Rung, ...] = (Rung(1, None),)
    ladder_scope: Scope = "group"
    # A signal that equals the last one within this time is the same one told twice (FLUX.md 30, 100).
    same_signal_ns: int = 0
    # What a terminating signal does in a CLEANUP that a request began, and in FINALIZE (FLUX.md 29, 31): `abort` what
    # runs, or `arm` the timeout of a signal-initiated stop from that moment.
    signal_in_requested_cleanup: SignalHabit = "abort"
    signal_in_finalize: SignalHabit = "abort"
    # Flux never disarms shutdown-timeout: it is logged, and ignored, even in FINALIZE (recorded run 12-rc3--hangs).
    shutdown_timeout_outlives_state: bool = False
    # What a parent does with children that still hold it when its bound is over: Flux goes on and leaves them unlost,
    # so that what is pending to them never ends (FLUX.md 57); a shed one is disconnected: EHOSTUNREACH is delivered.
    shed: bool = False
    # Whether the end of a connection is noticed at once. Flux notices a dead child when it next sends to it, within a
    # heartbeat, and a dead parent after heartbeat.timeout (FLUX.md 84, 86, 105).
    loss_at_once: bool = False
    heartbeat_period_ns: int = 2 * S
    heartbeat_timeout_ns: int | None = 5 * MINUTE
    torpid_max_ns: int | None = 30 * S
    # A follower that is still in rc1 when its parent stops: Flux's parent waits for it (FLUX.md 94).
    abort_rc1_with_parent: bool = False
    lost_exit_code: int = 0  # the leader's, if ranks were lost or shed and nothing else failed (Flux: 0)
    # How many levels below a broker a stuck rank may hold it, times this: slack of the nested bounds.
    shutdown_slack_ns: int | None = None

    # Lines that Flux does not have: why rc2 could not be started, what an abort dropped, which code another one hides.
    explain: bool = False

    # Jobs (FLUX.md E–H): what runs before and after each, and what each node has.
    cores: int = 2
    prolog: Perilog | None = None
    epilog: Perilog | None = None
    housekeeping: Housekeeping | None = None
    holds: tuple[Hold, ...] = ()
    services: tuple[NodeService, ...] = ()
    # What became of a rank that was lost under a prolog or an epilog: its wait status for the job (Flux: 0, as if it
    # had succeeded; letter e), and whether it is drained under a reason of its own (Flux: only together with ranks that
    # failed, under their reason; letter j).
    lost_status: int = 0
    drain_lost: bool = False
    # Whether an epilog that begins in RUN, after a failed prolog, holds its job too (Flux: no; letter h), and whether
    # epilogs begin while the broker is in CLEANUP (FLUX.md 54).
    count_every_epilog: bool = False
    epilog_in_cleanup: bool = False
    # Whether a prolog or epilog that ignores SIGTERM gets SIGKILL after its kill-timeout (Flux: it runs on; letter q).
    perilog_kill: bool = False
    # Whether nodes where housekeeping failed or was cut off are drained, and housekeeping that a stop cut off is run
    # again after a restart (Flux: neither; letter i).
    housekeeping_drains: bool = False
    # Whether what is known of jobs is stored before rc3 too, which may fail (Flux: when rc3 has succeeded).
    store_before_rc3: bool = False
    # Whether the shells of a job hang when a broker of it stops (FLUX.md 65, 93; letter n); else the job is ended.
    shells_hang: bool = True
    # Whether an epilog that the end of the broker has cut off is run again after a restart (letter f).
    rerun_epilog: bool = False
    exec_kill_timeout_ns: int = 5 * S  # tasks get SIGTERM, and SIGKILL that much later
    checkpoint_period_ns: int | None = None  # kvs.checkpoint-period: how often jobs are stored while the broker runs

    exit_norestart: int | None = None
    sd_notify: bool = False
    sd_stop_timeout_ns: int | None = None
    # Extend the service manager's deadline to cover the state's bound, re-sent in time (else as Flux: sd-stop-timeout
    # on entry and before each action, FLUX.md 97, 98).
    extend_to_bound: bool = False


class StopSettings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the wrapper of a stop (`brokerctl stop`) does, and how long it waits; `stop.toml` sets it.

    Its site `actions` run before main gets its SIGTERM. `timeout_stop_ns` is the unit's TimeoutStopSec, where known.
    """

    actions: tuple[Action, ...] = ()
    actions_timeout_ns: int = 10 * S
    essential_timeout_ns: int = 10 * S
    # How long a question may take, and how long a broker that does not answer is asked again before its stop begins.
    ask_timeout_ns: int = 2 * S
    ask_patience_ns: int = 5 * S
    # The limit of CLEANUP where main tells none (FLUX.md 34), and how long after it the processes that still hold
    # CLEANUP are ended; the broker's own timeout acts first (FLUX.md 25, 103).
    cleanup_timeout_ns: int | None = None
    holders_after_ns: int = 5 * S
    # How long ranks may hold SHUTDOWN, or CLEANUP (FLUX.md 102), before they are shed; None is for ever.
    shed_after_ns: int | None = 60 * S
    shed_in_cleanup_after_ns: int | None = None
    # FINALIZE has no bound; the deadline is extended by this as long as it makes progress. A parallel file system that
    # fails over stalls for minutes.
    finalize_patience_ns: int = 5 * MINUTE
    stall_warn_ns: int = 30 * S
    timeout_stop_ns: int | None = None

    ladder: tuple[Rung, ...] = (Rung(1, 2 * S), Rung(15, 5 * S), Rung(9, 5 * S))
    ladder_scope: Scope = "all"
    output_grace_ns: int | None = 1 * S
    explain: bool = True


# The limit on one command list and its words: a mistake, not a need, beyond it.
ACTIONS_MAX = 1000
EXTEND_EVERY_NS = 10 * S
EXTEND_SLACK_NS = 5 * S
# EXTEND_TIMEOUT_USEC is an int in Flux; more than this overflows there (CASES S7).
SD_STOP_TIMEOUT_MAX_NS = 35 * MINUTE

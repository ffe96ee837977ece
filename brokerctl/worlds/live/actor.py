"""Acts one process of a puppet out: the same pure machine that the simulator steps, with real signals and children.

Its world starts it with all signals blocked, so that none that comes before it is ready is lost or kills it; it takes
them one by one with sigtimedwait(2) and asks the machine what they do. Leaves are real children that hold its output.
Few imports: scenarios start this by the dozen.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import msgspec

from brokerctl.durations import S
from brokerctl.kernel import proc
from brokerctl.model.puppet import Part, Puppet

if TYPE_CHECKING:
    from brokerctl.worlds.live.acting import Acting
    from brokerctl.worlds.live.asking import Asking
    from brokerctl.worlds.live.unit_acting import UnitActing, UnitAsking

# What stops, continues or is ignored by default does not end a process; KILL can't be caught; 32, 33 are libc's.
_NOT_TAKEN = frozenset(
    {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGCONT,
        signal.SIGCHLD,
        signal.SIGURG,
        signal.SIGWINCH,
    }
)
TAKEN = frozenset(signal.valid_signals()) - _NOT_TAKEN

# In the environment of a process of a unit in the world `systemd`: the FIFO in which it tells more (`unit_acting`).
IN_UNIT = "BROKERCTL_REPORTS"
# One sigtimedwait(2) at most; the loop goes on. (Its C type is a time_t, but a century is a long time, too.)
WAIT_MAX_S = 3600.0
# Who waits for an answer looks for signals that often.
ASK_WAIT_S = 0.01


def main(words: list[str]) -> NoReturn:
    """`PARTS [COUNTER]`: act the nth of a rank's parts, for the nth process there that takes a number at COUNTER.

    PARTS is JSON: ranks, -1 for every other one, and a list of parts for each.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
    ranks = msgspec.json.decode(words[0], type=dict[int, list[Part]])
    rank = int(os.environ.get("BROKERCTL_RANK", "0"))
    parts = ranks.get(rank) or ranks[-1]
    nth = _number(f"{words[1]}.{rank}", len(parts)) if len(words) > 1 else 0
    _act(parts[nth])


def _number(counter: str, count: int) -> int:
    """How many processes of this puppet came before: the first file name that nobody has made yet."""
    for nth in range(count):
        try:
            os.close(os.open(f"{counter}.{nth}", os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            continue
        return nth
    return count - 1


def _act(part: Part) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump is a bit of the wait status
    began_ns = _began_ns()
    puppet = Puppet(part, began_ns)
    _grow_leaves(part, began_ns)
    for stream, text in part.prints:
        _print(1 if stream == "out" else 2, text)
    asking: Asking | UnitAsking | None = None
    unit = _in_unit()
    acting = _acting(part, began_ns) if unit is None else None
    while "exited" not in (happened := puppet.advance(time.monotonic_ns())):
        if acting is not None:
            acting.turn(puppet)
        if unit is not None:
            unit.turn(puppet)
        if "asked" in happened:
            asking = _ask(part.asks, unit)
        due_ns = puppet.due()
        wait_s = WAIT_MAX_S if due_ns is None else min(max(0, due_ns - time.monotonic_ns()) / 1e9, WAIT_MAX_S)
        if acting is not None:
            wait_s = min(wait_s, acting.wait_s)
        got = signal.sigtimedwait(TAKEN if unit is None else unit.taken, wait_s if asking is None else 0)
        if got is not None:
            if unit is not None and not unit.signalled(got):
                continue
            puppet.signal(time.monotonic_ns(), got.si_signo, "group")
        elif asking is not None and asking.answered(ASK_WAIT_S):
            for channel, words in asking.prints:
                _print(1 if channel == "out" else 2, words)
            puppet.answer(time.monotonic_ns(), asking.rc << 8 or puppet.status)
            asking = None
    if acting is not None:
        acting.turn(puppet)
    if unit is not None:
        unit.turn(puppet)
    _leave(puppet.status)


def _in_unit() -> UnitActing | None:
    if IN_UNIT not in os.environ:
        return None
    from brokerctl.worlds.live.unit_acting import UnitActing

    return UnitActing(TAKEN)


def _ask(asks: tuple[str, ...], unit: UnitActing | None) -> Asking | UnitAsking:
    if unit is not None:
        from brokerctl.worlds.live.unit_acting import UnitAsking

        return UnitAsking(asks)
    from brokerctl.worlds.live.asking import Asking

    return Asking(asks)


def _acting(part: Part, began_ns: int) -> Acting | None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return None
    from brokerctl.worlds.live.acting import Acting

    return Acting(part, began_ns, address)


def _began_ns() -> int:
    """When this process was started: its time runs from there, however long an interpreter takes to be ready.

    The kernel tells it in whole ticks; the later end of the tick, so that nothing is ever early.
    """
    now_ns = time.monotonic_ns()
    found = proc.stat(os.getpid())
    return now_ns if found is None else now_ns - max(0, proc.age_ns(found) - S // os.sysconf("SC_CLK_TCK"))


def _grow_leaves(part: Part, began_ns: int) -> None:
    """Start the leaves; each is what it shall be, in its own session or not, before anything else happens."""
    if not part.leaves:
        return
    ready, unready = os.pipe()
    leaves = [_leaf(part, began_ns, unready) for _ in range(part.leaves)]
    os.close(unready)
    os.read(ready, 1)  # its end: nobody has the other end open any more
    os.close(ready)
    if not part.detached:
        _catch_up(leaves)


def _leaf(part: Part, began_ns: int, unready: int) -> int:
    """A child that holds the output until its time is up or a signal ends it; its pid. It closes `unready`."""
    pid = os.fork()
    if pid:
        return pid
    if part.detached:
        os.setsid()
    for signum in TAKEN:
        # Python ignores SIGPIPE and handles SIGINT; ignoring each for a moment also drops what was sent to the group
        # before this child had left it.
        if part.detached:
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signum, signal.SIG_DFL)
    if IN_UNIT in os.environ:
        from brokerctl.worlds.live.unit_acting import UnitActing

        unit = UnitActing(TAKEN, leaf=True)
        os.close(unready)
        end_ns = None if part.leaves_ns is None else began_ns + part.leaves_ns
        _leave(unit.live_as_leaf(end_ns, frozenset(part.leaves_ignore)))
    for ignored in part.leaves_ignore:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TAKEN)
    os.close(unready)
    if part.leaves_ns is not None:
        time.sleep(max(0, began_ns + part.leaves_ns - time.monotonic_ns()) / 1e9)
        os._exit(0)
    while True:
        signal.pause()


def _catch_up(leaves: list[int]) -> None:
    """Give the leaves the signals that the group got before they were born."""
    for signum in signal.sigpending() & TAKEN:
        for pid in leaves:
            os.kill(pid, signum)


def _print(fd: int, text: str) -> None:
    try:
        os.write(fd, text.encode(errors="surrogateescape") + b"\n")
    except OSError:
        return  # whoever read it has gone: not this process's business


def _leave(status: int) -> NoReturn:
    """End with this wait status."""
    signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if signum:
        if signum not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
        # Only a signal that doesn't end a process by default leads here.
    os._exit(os.waitstatus_to_exitcode(status) if not signum else 128 + signum)


if __name__ == "__main__":
    main(sys.argv[1:])

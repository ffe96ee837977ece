"""The text that a Flux broker logs: written from a trace, and read back from real logs.

One line is `<LEVEL>COMPONENT.SEVERITY[RANK]: TEXT` (FLUX.md, head). What has a text of its own:

    Moved        shutdown: run->cleanup 1.50656s                        INFO          FLUX.md 2
    Ignored      rc2-none: ignored in run                               DEBUG         FLUX.md 3
    Ended        cleanup.3: flux queue idle --quiet Hangup (rc=129) 2.4s   INFO or ERR   FLUX.md 13
    Unreachable  stuck: epilog: picl1 (rank 1): No route to host        ERR           FLUX.md 46
    UnitMoved    stop->stop-sigterm 2s, result timeout   (systemd's; no rank)   INFO   SYSTEMD.md 26
    Drain        drain idset=1 nodelist=picl1 overwrite=0 reason=…     INFO          FLUX.md 68
    Log          as it stands

Reading goes from the right: a command may hold any word, `Exited` and `(rc=3)` too, but what follows it is
known. An action may print what looks like one of these lines; as the text is the same, it is read as that.
"""

from __future__ import annotations

import re
import signal
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from brokerctl import durations
from brokerctl.durations import S
from brokerctl.ids import hostlist, idset, parse_idset
from brokerctl.records import Drain, Ended, Ignored, Line, Log, Moved, UnitMoved, Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

# The index is syslog(3)'s level.
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
ERR, INFO, DEBUG = 3, 6, 7

# The kinds of record that have a text.
TOLD: frozenset[type] = frozenset({Log, Moved, Ended, Ignored, Unreachable, Drain, UnitMoved})
# Runs of jobs on their nodes; what became of them is told by the job manager.
_JOB = "job."

EXITED = "Exited"
LAUNCH_ERROR = "error launching process: "  # then strerror(3); FLUX.md 18
ABORTED = "aborted after exit with rc=0"  # FLUX.md 21
STILL_RUNNING = "still running"  # what survived the whole ladder; Flux's own has no end


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a broker's log, `level` as in syslog(3). `text` may have several lines."""

    level: int
    component: str
    rank: int
    text: str

    def __str__(self) -> str:
        """As Flux writes it to stderr, without a final newline; every line of the text has the head."""
        head = f"<{self.level}>{self.plain_head()}"
        return head + self.text.replace("\n", "\n" + head)

    def plain_head(self) -> str:
        """`broker.info[0]: `: what stands before the text where the level is shown by other means.

        Who is no broker has no rank: `systemd: `.
        """
        if self.rank < 0:
            return f"{self.component}: "
        return f"{self.component}.{SEVERITIES[self.level]}[{self.rank}]: "


def entry(line: Line, hosts: Sequence[str]) -> Entry | None:
    """What Flux logs for a line of a trace; None where it logs nothing. `hosts` has each rank's host."""
    what = line.what
    if isinstance(what, Log):
        return Entry(what.level, what.component, line.rank, what.text)
    if isinstance(what, Moved):
        text = f"{what.event}: {what.old}->{what.new} {durations.as_fsd(what.held_ns)}"
        return Entry(INFO, "broker", line.rank, text)
    if isinstance(what, Ended) and not what.run.startswith(_JOB):
        text = f"{what.run}: {what.command} {what.how} (rc={what.rc}) {what.held_ns / S:.1f}s"
        return Entry(ERR if what.rc else INFO, "broker", line.rank, text)
    return _rarer(line, hosts)


def _rarer(line: Line, hosts: Sequence[str]) -> Entry | None:
    what = line.what
    if isinstance(what, Ignored):
        return Entry(DEBUG, "broker", line.rank, f"{what.event}: ignored in {what.state}")
    if isinstance(what, Unreachable):
        return Entry(ERR, "job-manager", line.rank, _unreachable(what, hosts[what.rank]))
    if isinstance(what, Drain):
        nodes = hostlist([hosts[rank] for rank in what.ranks])
        text = f"drain idset={idset(what.ranks)} nodelist={nodes} overwrite=0 reason={what.reason}"
        return Entry(INFO, "resource", line.rank, text)
    if isinstance(what, UnitMoved):
        result = "" if what.result == "success" else f", result {what.result}"
        return Entry(INFO, "systemd", line.rank, f"{what.old}->{what.new} {durations.as_fsd(what.held_ns)}{result}")
    return None


def as_flux_log(line: Line, hosts: Sequence[str]) -> str | None:
    """`entry` as text, `<6>broker.info[0]: shutdown: run->cleanup 1.50656s`; None where Flux logs nothing."""
    found = entry(line, hosts)
    return None if found is None else str(found)


def _unreachable(what: Unreachable, host: str) -> str:
    # Flux itself orders the fields of housekeeping otherwise than those of prolog and epilog (FLUX.md 46).
    name, _, job = what.what.partition(": ")
    if name == "housekeeping":
        return f"{name}: {host} (rank {what.rank}) {job}: No route to host"
    return f"{what.what}: {host} (rank {what.rank}): No route to host"


@cache
def _pattern(source: str) -> re.Pattern[str]:
    # Compiled when first needed: a broker only writes logs, and starts milliseconds earlier for it.
    return re.compile(source, re.DOTALL)


# ---- reading ---------------------------------------------------------------------------------------------


class Parsed(msgspec.Struct, frozen=True, gc=False):
    """A line of a real log; `t_ns` is the number of seconds that it begins with, None where there is none."""

    t_ns: int | None
    rank: int
    what: Moved | Ignored | Ended | Unreachable | Drain | Log


def parse(text: str) -> Parsed | None:
    """Read one log line back; None where it is no Flux log line.

    A time (seconds, ISO 8601, or the journal's) with host and unit, and `<N>`, may stand before it, or not.
    """
    match = _pattern(
        r"(?:\s*(?P<seconds>\d{1,9}\.\d{1,9})\s+|\s*)(?:(?P<before>\S.*?)\s)??(?:<[0-7]>)?"
        rf"(?P<component>[\w.-]+)\.(?P<severity>{'|'.join(SEVERITIES)})\[(?P<rank>\d{{1,9}})\]: (?P<text>.*)"
    ).fullmatch(text.removesuffix("\n"))
    if match is None or not _is_journal(match["before"]):
        return None
    return Parsed(
        t_ns=None if match["seconds"] is None else durations.parse(match["seconds"]),
        rank=int(match["rank"]),
        what=_what(match["component"], SEVERITIES.index(match["severity"]), match["text"]),
    )


def _is_journal(before: str | None) -> bool:
    """Whether what stands before the head is an ISO 8601 time, or `Nov 29 18:02:11 host unit[pid]:`."""
    if before is None:
        return True
    iso = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*"
    month = r"[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(?:\.\d+)?"
    return bool(_pattern(rf"{iso}|(?:{iso}|{month}|\[ *\d+\.\d+\])(?: \S+)? \S+:").fullmatch(before))


def _what(component: str, level: int, text: str) -> Moved | Ignored | Ended | Unreachable | Drain | Log:
    found: Moved | Ignored | Ended | Unreachable | Drain | None = None
    if component == "broker":
        found = _moved(level, text) or _ignored(level, text) or _ended(level, text)
    elif component == "job-manager" and level == ERR:
        found = _unreached(text)
    elif component == "resource" and level == INFO:
        found = _drained(text)
    return found or Log(component, level, text)


def _moved(level: int, text: str) -> Moved | None:
    match = _pattern(r"([a-z0-9-]+): ([a-z-]+[a-z])->([a-z-]+) ([0-9.e-]+(?:ms|s|m|h|d))").fullmatch(text)
    if match is None or level != INFO:
        return None
    try:
        held_ns = durations.parse(match[4])
    except ValueError:
        return None
    return None if held_ns is None else Moved(match[1], match[2], match[3], held_ns)


def _ignored(level: int, text: str) -> Ignored | None:
    match = _pattern(r"([a-z0-9-]+): ignored in ([a-z-]+)").fullmatch(text)
    return None if match is None or level != DEBUG else Ignored(match[1], match[2])


def _ended(level: int, text: str) -> Ended | None:
    match = _pattern(r"(\w+\.\d+): (.+) \(rc=(\d{1,3})\) (\d{1,9}\.\d)s").fullmatch(text)
    if match is None or level != (INFO if match[3] == "0" else ERR):
        return None
    rc = int(match[3])
    command, how = _split_outcome(match[2], rc)
    held_ns = durations.parse(match[4])
    return Ended(match[1], command, rc, how, held_ns) if how and held_ns is not None else None


def _split_outcome(text: str, rc: int) -> tuple[str, str]:
    """`CMDLINE OUTCOME` in two; no outcome where none of those that this code can have is there."""
    outcomes = [EXITED]
    if 128 < rc < 128 + signal.NSIG:
        outcomes.append(signal.strsignal(rc - 128) or "")
    if rc == 128 + signal.SIGKILL:
        outcomes.append(STILL_RUNNING)
    if rc == 1:
        outcomes.append(ABORTED)
    for how in outcomes:
        if how and text.endswith(f" {how}"):
            return text.removesuffix(f" {how}"), how
    command, found, error = text.rpartition(f" {LAUNCH_ERROR}")
    return (command, LAUNCH_ERROR + error) if found and rc in {126, 127} else (text, "")


def _unreached(text: str) -> Unreachable | None:
    match = _pattern(r"housekeeping: \S+ \(rank (\d+)\) (\S+): No route to host").fullmatch(text)
    if match is not None:
        return Unreachable(int(match[1]), f"housekeeping: {match[2]}")
    match = _pattern(r"(\S+: \w+): \S+ \(rank (\d+)\): No route to host").fullmatch(text)
    return None if match is None else Unreachable(int(match[2]), match[1])


def _drained(text: str) -> Drain | None:
    match = _pattern(r"drain idset=([0-9,-]+) nodelist=\S+ overwrite=\d reason=(.*)").fullmatch(text)
    if match is None:
        return None
    try:
        return Drain(tuple(parse_idset(match[1])), match[2])
    except ValueError:
        return None

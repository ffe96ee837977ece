"""What is seen of a running instance, gathered for its recording."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerctl.durations import S, as_fsd
from brokerctl.ids import f58
from brokerctl.logs import eventlog
from brokerctl.logs.fluxlog import ERR, INFO, SEVERITIES, parse
from brokerctl.logs.recording import Event, Observed, Recording
from brokerctl.records import Ended, Ignored, Log, Moved

if TYPE_CHECKING:
    from brokerctl.worlds.flux.stage import Stage

# The directory of a job in the KVS is its id, 16 bits a level.
_EVENTLOG = re.compile(r"job/([0-9a-f]{4})/([0-9a-f]{4})/([0-9a-f]{4})/([0-9a-f]{4})/eventlog")
_RESOURCES = "resource/eventlog"
Transition = tuple[str, str, str, str, float]


class Observations:
    """All that is seen; `clock` tells the nanoseconds since the launch, which was at CLOCK_REALTIME `realtime_ns`."""

    def __init__(self, clock: Callable[[], int], realtime_ns: Callable[[], int]) -> None:
        self._clock, self._realtime_ns = clock, realtime_ns
        self._log: list[str] = []
        self._steps: list[str] = []
        self._notify: list[tuple[float, int, str]] = []
        self._followed: dict[str, list[Event]] = {}
        self.broker_rc: dict[str, str] = {}
        self.jobs: dict[str, str] = {}  # label → id
        self.exit_code: int | None = None

    def _now_s(self) -> float:
        return round(self._clock() / S, 3)

    def step(self, text: str, t_s: float | None = None) -> None:
        """Something was done."""
        self._steps.append(f"t={self._now_s() if t_s is None else t_s}: {text}")

    def log(self, text: str) -> None:
        """Something was logged."""
        self._log.append(f"{self._now_s():9.3f} {text}")

    def last_words(self) -> str:
        """The last line that was logged."""
        return self._log[-1][10:] if self._log else "nothing was said"

    def notify(self, rank: int, text: str) -> None:
        """A broker told the service manager something."""
        self._notify.append((self._now_s(), rank, text))

    def submitted(self, label: str, how: str, job: str) -> None:
        """A job was accepted."""
        self.jobs[label] = job
        self._followed.setdefault(label, [])
        self.step(f"submit {label}: {how} -> {job}")

    def event(self, label: str, event: eventlog.Entry) -> None:
        """A job had an event."""
        self._followed.setdefault(label, []).append(self._placed(event))

    def _placed(self, event: eventlog.Entry) -> Event:
        return Event(round((event.t_ns - self._realtime_ns()) / S, 3), event.name, event.context)

    def recording(self, stage: Stage, name: str) -> Recording:
        """All of it; eventlogs are those of the dump that rc3 has written, where there is one."""
        eventlogs, drained = dict(self._followed), list[Event]()
        labels = {job: label for label, job in self.jobs.items()}
        for job, events in self._dumped(stage).items():
            if job == _RESOURCES:
                drained = events
            elif job in labels:
                eventlogs[labels[job]] = events
        found = [one for one in map(parse, self._log) if one is not None]
        moved: dict[int, list[Transition]] = {rank: [] for rank in range(stage.size)}
        actions = []
        for one in found:
            t_s = (one.t_ns or 0) / S
            match one.what:
                case Moved(event, old, new, held_ns):
                    moved[one.rank].append((event, old, new, as_fsd(held_ns), t_s))
                case Ended(run, command, rc, how, held_ns):
                    told = {"rank": one.rank, "name": run, "command": command, "outcome": how, "rc": rc}
                    actions.append({**told, "seconds": held_ns / S, "t": t_s, "sev": SEVERITIES[ERR if rc else INFO]})
        return Recording(
            name=name,
            about=name,
            size=stage.size,
            topo=stage.topo,
            attrs=stage.attributes(),
            config_toml=stage.abroad(stage.config),
            steps=self._steps,
            scripts=stage.scripts,
            log="".join(f"{line}\n" for line in self._log),
            observed=Observed(
                rank0_transitions=moved.pop(0),
                other_ranks_transitions={str(rank): rows for rank, rows in moved.items()},
                actions=actions,
                log_err=self._of_level(ERR),
                log_warn=self._of_level(ERR + 1),
                signals_and_ignored=self._signals(),
                exit_code=self.exit_code,
                broker_rc=self.broker_rc,
                notify=self._notify,
                eventlogs=eventlogs,
                drained=drained,
            ),
        )

    def _of_level(self, level: int) -> list[str]:
        return [line[10:] for line in self._log if line[10:].startswith(f"<{level}>")]

    def _signals(self) -> list[tuple[float, str]]:
        found = []
        for line in self._log:
            one = parse(line)
            if one is not None and (
                isinstance(one.what, Ignored) or (isinstance(one.what, Log) and re.match("signal ", one.what.text))
            ):
                found.append(((one.t_ns or 0) / S, line[10:]))
        return found

    def _dumped(self, stage: Stage) -> dict[str, list[Event]]:
        """By job id the eventlogs of a dump, and that of the nodes."""
        found: dict[str, list[Event]] = {}
        try:
            with tarfile.open(stage.dump) as dump:
                for member in dump:
                    match = _EVENTLOG.fullmatch(member.name)
                    file = dump.extractfile(member) if match or member.name == _RESOURCES else None
                    if file is not None:
                        events = eventlog.parse(file.read().decode())
                        job = f58(int("".join(match.groups()), 16)) if match else _RESOURCES
                        found[job] = [self._placed(event) for event in events]
        except (OSError, EOFError, zlib.error, tarfile.TarError):
            return found  # rc3 did not come to it, or not to its end
        return found

"""Finding out what the report tells: before the SIGTERM, and when main has gone."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from brokerctl.durations import MS
from brokerctl.kernel import proc
from brokerctl.kernel.cgroup import Cgroup, folder_of
from brokerctl.records.stops import Report
from brokerctl.stop import flux, report
from brokerctl.stop.broker import FluxBroker
from brokerctl.stop.errands import Command, Errand, Said
from brokerctl.stop.journal import entries
from brokerctl.stop.story import story

if TYPE_CHECKING:
    from brokerctl.stop.supervised import Supervised

ASK_NS, NAMES_NS = 1000 * MS, 500 * MS
USERS_MAX = 200  # on one command line
PERILOG_UNITS = ("flux-prolog@*.service", "flux-epilog@*.service", "flux-housekeeping@*.service")


class Reporter:
    """What is told of one stop of a broker."""

    def __init__(self, broker: FluxBroker | Supervised) -> None:
        self._broker = broker
        self._folder = folder_of(broker.aim.pid) if broker.aim.unit else None
        self._invocation = os.environ.get("INVOCATION_ID", "")
        self._housekeeping: list[flux.Housekeeping] = []

    def before(self, said: Sequence[Said] = ()) -> Errand[Report]:
        """Which jobs run, and which housekeeping; `said` is what `flux job list` and the job manager have answered."""
        broker = self._broker
        if not isinstance(broker, FluxBroker) or broker.rank:
            return Report()
        said = said or (yield [broker.flux.list_jobs(), broker.flux.job_manager()])
        self._housekeeping = flux.housekeeping(said[1].text)
        if said[0].why:
            return Report(tuple(report.before(report.Before())))
        jobs = flux.jobs(said[0].text)
        users = yield from names([job.userid for job in jobs])
        found = report.Before(jobs, users, self._housekeeping, time.time())
        return Report(tuple(report.before(found)))

    def after(self, words: Sequence[str]) -> Errand[Report]:
        """How the stop went."""
        broker, unit = self._broker, self._broker.aim.unit
        finding = broker.finding() if isinstance(broker, FluxBroker) else []
        ended = Command(
            ["systemctl", "show", "--property=ExecMainCode,ExecMainStatus", "--", unit or "-.slice"], ASK_NS
        )
        logged, answers = yield from entries(self._invocation, ended, units_running(), *finding)
        shown, units, *dumped = answers
        try:
            dump = broker.dump(dumped[0]) if isinstance(broker, FluxBroker) and dumped else None
        except OSError:
            finding, dump = [], None  # nobody can tell
        fields = dict(line.partition("=")[::2] for line in shown.text.splitlines())
        return _report(
            report.After(
                facts=report.facts(words),
                story=story(logged, broker.rank),
                exit_text=report.exit_text(fields.get("ExecMainCode", ""), fields.get("ExecMainStatus", "")),
                perilog_units=unit_names(units.text),
                leftovers=leftovers(self._folder),
                dumps=bool(finding),
                dump=(dump.path, dump.size, dump.complete) if dump else None,
                housekeeping=self._housekeeping,
                unit=unit,
                leader=broker.rank == 0,
                flux=isinstance(broker, FluxBroker),
            )
        )


def _report(found: report.After) -> Report:
    lines, failed = report.after(found)
    return Report(tuple(lines), failed)


def names(uids: Sequence[int]) -> Errand[dict[int, str]]:
    """The names of users, by a command: a directory service may be as stuck as anything else."""
    wanted = sorted(set(uids))[:USERS_MAX]
    if not wanted:
        return {}
    said = (yield [Command(["getent", "passwd", *map(str, wanted)], NAMES_NS)])[0]
    found = {}
    for line in said.text.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdigit():
            found[int(fields[2])] = fields[0]
    return found


def units_running() -> Command:
    """The units of prolog, epilog and housekeeping that are active here."""
    argv = ["systemctl", "list-units", "--plain", "--no-legend", "--no-pager", "--state=active,activating,deactivating"]
    return Command([*argv, "--", *PERILOG_UNITS], ASK_NS)


def unit_names(text: str) -> list[str]:
    """The first column of `systemctl list-units`."""
    return [words[0] for line in text.splitlines() if (words := line.split())]


def leftovers(folder: str | None) -> list[str]:
    """What still lives in a unit's cgroup when its main has gone, beside us: our session (SYSTEMD.md 21)."""
    found = []
    ours = os.getsid(0)
    for pid in Cgroup(folder).members() if folder else []:
        at = proc.stat(pid)
        if at is not None and at.state not in "ZX" and at.session != ours:
            found.append(f"{proc.command(pid)} (pid {pid})")
    return found

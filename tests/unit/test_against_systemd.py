"""What the reader makes of a unit is what systemd makes of it: 200 random ones, drop-ins included."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest

from brokerctl.durations import LIMIT_NS, US
from brokerctl.unit import keys, load, service
from tests.unit.generate import unit_file

UNITS = 200
INFINITY_US = 2**64 - 1
EXEC_FLAGS = {"ignore-failure": "-", "no-env-expand": ":", "privileged": "+", "no-setuid": "!", "ambient": "!!"}
PLAIN = {
    "type": "Type", "restart": "Restart", "kill_mode": "KillMode", "send_sigkill": "SendSIGKILL",
    "send_sighup": "SendSIGHUP", "remain_after_exit": "RemainAfterExit", "kill_signal": "KillSignal",
    "final_kill_signal": "FinalKillSignal", "watchdog_signal": "WatchdogSignal", "notify_access": "NotifyAccess",
    "timeout_stop_failure_mode": "TimeoutStopFailureMode", "timeout_start_failure_mode": "TimeoutStartFailureMode",
    "exit_type": "ExitType", "collect_mode": "CollectMode", "start_limit_burst": "StartLimitBurst",
}  # fmt: skip
TIMES = {
    "timeout_start_ns": "TimeoutStartUSec", "timeout_stop_ns": "TimeoutStopUSec",
    "timeout_abort_ns": "TimeoutAbortUSec",
    "runtime_max_ns": "RuntimeMaxUSec", "restart_ns": "RestartUSec",
    "start_limit_interval_ns": "StartLimitIntervalUSec",
}  # fmt: skip
STATUSES = {
    "success_exit_status": "SuccessExitStatus", "restart_prevent_exit_status": "RestartPreventExitStatus",
    "restart_force_exit_status": "RestartForceExitStatus",
}  # fmt: skip
LINES = {
    "exec_condition": "ExecConditionEx", "exec_start_pre": "ExecStartPreEx", "exec_start": "ExecStartEx",
    "exec_start_post": "ExecStartPostEx", "exec_reload": "ExecReloadEx", "exec_stop": "ExecStopEx",
    "exec_stop_post": "ExecStopPostEx",
}  # fmt: skip

ASK = """
while read path; do
  for interface in Unit Service; do
    busctl --json=short call org.freedesktop.systemd1 "$path" org.freedesktop.DBus.Properties GetAll s \
      org.freedesktop.systemd1.$interface || exit 1
  done
done
"""


def object_path(name):
    escaped = "".join(char if char.isalnum() and char.isascii() else f"_{ord(char):02x}" for char in name)
    return f"/org/freedesktop/systemd1/unit/{escaped}"


def properties(systemd, names):
    """Every property of each unit, as systemd has it."""
    text = "".join(f"{object_path(name)}\n" for name in names)
    done = systemd.run(["sh", "-c", ASK], text=text, limit_s=120)
    answers = [json.loads(line)["data"][0] for line in done.stdout.splitlines()]
    assert len(answers) == 2 * len(names)
    return [
        {name: value["data"] for name, value in (one | two).items()}
        for one, two in zip(answers[::2], answers[1::2], strict=True)
    ]


def ours(settings):
    """The record in systemd's own units and names."""
    found = {theirs: getattr(settings, field) for field, theirs in PLAIN.items()}
    for field, theirs in TIMES.items():
        value = getattr(settings, field)
        found[theirs] = INFINITY_US if value is None or value == LIMIT_NS else value // US
    for field, theirs in STATUSES.items():
        value = getattr(settings, field)
        found[theirs] = [sorted(value.codes), sorted(value.signals)]
    for field, theirs in LINES.items():
        found[theirs] = [
            [line.command.argv, "-" * line.ignore_failure + line.prefixes.replace("@", "")]
            for line in getattr(settings, field)
        ]
    return found


def theirs(answer):
    found = {name: answer[name] for name in (*PLAIN.values(), *TIMES.values())}
    for name in STATUSES.values():
        found[name] = [sorted(part) for part in answer[name]]
    for name in LINES.values():
        found[name] = []
        for path, argv, flags, *_ in answer[name]:
            prefixes = "".join(EXEC_FLAGS[flag] for flag in EXEC_FLAGS if flag in flags)
            found[name].append([(path, *argv[1:]), prefixes])
    return found


def compare(systemd, count):
    """What is read otherwise of so many random units, and how many of them systemd refuses."""
    names = []
    units = []
    for index in range(count):
        random = Random(f"units/{index}")
        name = random.choice([f"u{index}.service", f"a-b{index}@x-y.service", f"t{index}@i\\x2d{index}.service"])
        file = name if "@" not in name else name.partition("@")[0] + "@.service"
        path = systemd.unit(file, unit_file(random, base=True).decode())
        for number in range(random.randrange(3)):
            folder = random.choice([file, name])
            systemd.unit(f"{folder}.d/{number}.conf", unit_file(random, base=False).decode())
        names.append(name)
        units.append(load(systemd.path(path), name))
    different = []
    refused = 0
    for name, unit, answer in zip(names, units, properties(systemd, names), strict=True):
        fatal = any(problem.fatal for problem in unit.problems)
        if fatal or answer["LoadState"] != "loaded":
            refused += 1
            if (answer["LoadState"] != "loaded") != fatal:
                different.append((name, "LoadState", fatal, answer["LoadState"], answer["LoadError"]))
            continue
        mine, real = ours(service.settings(unit)), theirs(answer)
        different += [(name, key, mine[key], real[key]) for key in real if mine[key] != real[key]]
    return different, refused


def test_two_hundred_random_units_are_read_as_systemd_reads_them(private_systemd):
    different, refused = compare(private_systemd, UNITS)
    assert not different, "\n".join(map(str, different))
    assert 5 < refused < UNITS / 2


@pytest.mark.parametrize(
    ("key", "broken", "property_name"),
    [
        ("RestartSec", {"read": int}, "RestartUSec"),  # a time has units
        ("SuccessExitStatus", {"join": None}, "SuccessExitStatus"),  # lines add up
    ],
)
def test_a_reader_that_is_wrong_is_found(private_systemd, monkeypatch, key, broken, property_name):
    where = ("Service", key)
    wrong = dict(keys.KEYS) | {where: msgspec.structs.replace(keys.KEYS[where], **broken)}
    monkeypatch.setattr(keys, "KEYS", wrong)
    different, _ = compare(private_systemd, UNITS // 2)
    assert {name for _, name, *_ in different} >= {property_name}

"""Runs inside the private systemd: many helpers at once, signals to their process groups at exact moments."""

import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

LIBEXEC = "/usr/local/libexec/brokerctl"
LIMIT_S = 60


def start(kind, job, **more):
    env = {"PATH": "/usr/bin:/bin", "FLUX_JOB_ID": job, **more}
    return subprocess.Popen(
        [f"{LIBEXEC}/flux-run-{kind}"], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def end(helper):
    _, words = helper.communicate(timeout=LIMIT_S)
    return {"code": helper.returncode, "words": words.strip()}


def until(condition):
    deadline = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def holds(pid, signum):
    """Whether a process has blocked a signal."""
    blocked = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk"))
    return int(blocked.split()[1], 16) >> (signum - 1) & 1


def states(pattern):
    """The units of a pattern that systemd knows, with their states."""
    argv = ["systemctl", "list-units", "--all", "--plain", "--no-legend", pattern]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: line.split()[2] for line in text.splitlines()}


def at_once(jobs, kind="epilog"):
    """All at once; the answers in their order."""
    helpers = [start(kind, job) for job in jobs]
    return [end(helper) for helper in helpers]


def in_turn(jobs, width, kind="epilog"):
    """At most so many at a time."""
    answers = []
    for first in range(0, len(jobs), width):
        answers += at_once(jobs[first : first + width], kind)
    return answers


def told_to_stop(delays_ms, rounds, log, signals):
    """Helpers whose process groups get a signal after a while (None: when the script runs); what each left running."""
    report = []
    for nth in range(rounds):
        for delay_ms in delays_ms:
            job = str(1000 * nth + (999 if delay_ms is None else delay_ms))
            helper = start("epilog", job)
            signum = signals[nth % len(signals)]
            if signum == signal.SIGINT:
                # Before, Python itself answers, now and then by losing it.
                until(functools.partial(holds, helper.pid, signum))
            if delay_ms is None:
                until(functools.partial(runs, log, job))
            else:
                time.sleep(delay_ms / 1000)
            os.killpg(helper.pid, signum)
            began = time.monotonic()
            answer = end(helper)
            seconds = time.monotonic() - began
            running = states("flux-epilog@*")
            report.append(
                {
                    **answer,
                    "seconds": seconds,
                    "job": job,
                    "delay_ms": delay_ms,
                    "running": running,
                    "runs": runs(log, job),
                }
            )
    time.sleep(1)  # whatever was to start late has started
    for entry in report:
        entry["late"] = runs(log, entry["job"]) - entry["runs"]
    return {"rounds": report, "running": states("flux-epilog@*")}


def at_random(rounds, seed):
    """Several helpers of one job a round, some killed or told to stop, and others that come at once; their answers."""
    draw = random.Random(seed)
    report = []
    for nth in range(rounds):
        helpers = [start("epilog", str(nth)) for _ in range(draw.randint(1, 3))]
        time.sleep(draw.uniform(0, 0.35))
        for helper in helpers[: draw.randint(1, len(helpers))]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        time.sleep(draw.uniform(0, 0.1))
        helpers += [start("epilog", str(nth)) for _ in range(draw.randint(1, 2))]
        report += [end(helper) for helper in helpers]
    return {"answers": report, "running": states("flux-epilog@*")}


def runs(log, job):
    path = Path(log)
    return path.read_text().split().count(job) if path.exists() else 0


def killed_then(kind, job, wait_for, then=None):
    """A helper that gets SIGKILL when its script has begun, and the answer of the next one, which waits for a file."""
    first = start(kind, job)
    until(Path(wait_for).exists)
    os.killpg(first.pid, signal.SIGKILL)
    end(first)
    if then:
        until(Path(then).exists)
    return {"state": states(f"flux-{kind}@*"), "next": end(start(kind, job))}


def after_start(kind, job, wait_for, command):
    """A helper, and a command when its script has begun."""
    helper = start(kind, job)
    until(Path(wait_for).exists)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return {**end(helper), "command": done.returncode, "said": done.stderr}


def stop_the_stop(kind, job, wait_for, again_after_s):
    """A helper that gets SIGTERM, and SIGTERM again while it stops its unit."""
    helper = start(kind, job)
    until(Path(wait_for).exists)
    os.killpg(helper.pid, signal.SIGTERM)
    time.sleep(again_after_s)
    os.killpg(helper.pid, signal.SIGTERM)
    began = time.monotonic()
    return {**end(helper), "seconds": time.monotonic() - began, "state": states(f"flux-{kind}@*")}


def waiting_one_told(kind, job, wait_for):
    """Two helpers of one job; the one that waits gets SIGTERM."""
    holder = start(kind, job)
    until(Path(wait_for).exists)
    waiting = start(kind, job)
    waiting.stderr.readline()  # it says that it waits
    os.killpg(waiting.pid, signal.SIGTERM)
    return {"waiting": end(waiting), "holder": end(holder), "state": states(f"flux-{kind}@*")}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))

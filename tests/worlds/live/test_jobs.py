"""Jobs with real processes: the same stories as in virtual time, told by brokers that are started as anybody would."""

from pathlib import Path

import pytest

from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.scenario.compare import first_difference

# On a busy machine a process needs long to be up. So what is stuck is ended by a second signal (FLUX.md 29) that counts
# from its start, not by a timeout of the list; and what goes on beside the story has seconds to end.
STOP = """about = "a stop with jobs"
[instance]
size = 3
hosts = "n[0-2]"
[attrs]
"broker.cleanup-timeout" = "30s"
[puppet.short]
runs = "0.2s"
[puppet.long]
runs = "forever"
[puppet.queue-stop]
asks = "queue-stop"
[puppet.cancel]
asks = "cancel-running"
[puppet.idle]
command = "flux queue idle --quiet"
runs = "0.2s"
asks = "queue-idle"
[[cleanup]]
puppet = "queue-stop"
[[cleanup]]
puppet = "cancel"
[[cleanup]]
puppet = "idle"
"""
PROLOG = """[perilog.prolog]
per-rank = true
puppet = "prolog"
"""
EPILOG = """[perilog.epilog]
per-rank = true
puppet = "epilog"
"""
JOB = """[[job]]
name = "job"
nodes = 2
puppet = "short"
"""
STORIES = {
    "an epilog that is stuck": EPILOG + JOB + """
[puppet.epilog]
runs = { "1" = "forever", default = "0.1s" }
[puppet.hk]
runs = "0.1s"
[housekeeping]
puppet = "hk"
[[job]]
name = "canceled"
ranks = "2"
puppet = "long"
[[step]]
at = "job epilog-start + 0.5s"
do = "sigterm"
[[step]]
at = "cleanup.2 start + 3s"
do = "sigterm"
[expect]
exit = 129
events.job = ["start", "finish status=0", "epilog-start", "epilog-finish status=0", "free", "clean"]
events.canceled = ["exception type=cancel", "finish status=36608", "release", "free", "clean"]
drained = {}
log = [
  "cleanup.1: flux-cancel: Canceled 1 job (0 errors)",
  "cleanup.2: flux queue idle --quiet Hangup (rc=129)",
  "job: epilog: n1 (rank 1): No route to host",
]
""",
    "a prolog that fails on one rank": PROLOG + EPILOG + JOB + """
[puppet.prolog]
exit = { "1" = 3, default = 0 }
prints-err = ["oops"]
[puppet.epilog]
runs = "0.1s"
[[step]]
at = "job clean + 3s"
do = "sigterm"
[expect]
exit = 0
events.job = ["epilog-start", "exception note='prolog exited with code=3 on n1 (rank 1)'", "prolog-finish status=768"]
drained = { "1" = "prolog failed for job job" }
log = ["flux_jobtap_epilog_finish: No such file or directory"]
violates = ["starts-finish"]
""",
    "scripts that wait for an event, and for a plugin": PROLOG + JOB + """
[puppet.prolog]
asks = "wait-event dws_environment"
[[hold]]
name = "dws-setup"
phase = "prolog"
for = "4s"
posts = "dws_environment"
[[step]]
at = "job clean + 0.2s"
do = "sigterm"
[expect]
exit = 0
events.job = [
  "prolog-start description=dws-setup", "prolog-finish description=dws-setup", "prolog-finish status=0", "clean",
]
""",
    "an epilog that can't be started": EPILOG + JOB + """
[puppet.epilog]
start = "not-found"
[[step]]
at = "job clean + 0.2s"
do = "sigterm"
[expect]
exit = 0
events.job = ["exception note='epilog exited with code=127 on n[0-1] (rank 0-1)'", "epilog-finish status=32512"]
drained = { "0-1" = "epilog failed for job job" }
log = ["job: epilog: n0 (rank 0): error launching process: No such file or directory"]
""",
    "an epilog on the leader that is stuck, and the next life": EPILOG + """
[puppet.epilog]
runs = "forever"
[[run]]
[[run.job]]
name = "job"
puppet = "short"
[[run.step]]
at = "job epilog-start + 0.3s"
do = "sigterm"
[[run.step]]
at = "cleanup.2 start + 3s"
do = "sigterm"
[run.expect]
exit = 129
never = ["job epilog-finish"]
violates = ["starts-finish"]
[[run]]
[[run.step]]
at = "run + 0.3s"
do = "post-event job epilog-finish description=job-manager.epilog status=0"
[[run.step]]
at = "job clean + 0.2s"
do = "sigterm"
[run.expect]
exit = 0
log = ["restart: 1 jobs", "restart: 1 running jobs"]
events.job = ["epilog-finish status=0", "free", "clean"]
""",
}  # fmt: skip


def run(scenario, world):
    lines = []
    result = runner.run(scenario, world, sink=lines.append)
    assert result.status == "passed", "\n" + text.story(result) + text.verdict(result)
    return lines


@pytest.mark.parametrize("name", STORIES)
def test_a_story_with_jobs_holds_in_both_worlds_and_is_the_same_there(tmp_path: Path, name: str):
    path = tmp_path / "s.toml"
    path.write_text(STOP + STORIES[name])
    scenario = scenario_format.load(path)
    assert first_difference(run(scenario, "sim"), run(scenario, "live")) is None

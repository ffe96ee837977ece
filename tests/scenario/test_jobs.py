"""Jobs in scenario files: what can't be is told in one line; moments, expectations, lives, draws."""

import json
from pathlib import Path

import msgspec
import pytest

from brokerctl.errors import ScenarioError
from brokerctl.records import Asked, JobEvent
from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import lives, moments, runner
from brokerctl.scenario.resolve import resolve

HEAD = """about = "x"
[instance]
size = 3
hosts = "n[0-2]"
[puppet.task]
runs = "10s"
[puppet.epilog]
runs = "1s"
"""
JOB = """[[job]]
name = "job"
at = "2s"
nodes = 2
puppet = "task"
[[step]]
at = "60s"
do = "sigterm"
"""


def load(tmp_path, body, head=HEAD):
    path = tmp_path / "s.toml"
    path.write_text(head + body)
    return scenario_format.load(path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('[[job]]\nname = "a b"\npuppet = "task"', "job[0].name: 'a b' is no name; expected letters"),
        ('[[job]]\nname = "rank"\npuppet = "task"', "job[0].name: 'rank' is no name"),
        (2 * '[[job]]\nname = "a"\npuppet = "task"\n', "job[0].name: 'a' stands here twice"),
        ('[[job]]\nname = "a"\npuppet = "nobody"', "job[0].puppet: unknown puppet 'nobody'; known are task, epilog"),
        ('[[job]]\nname = "a"\npuppet = "task"\nnodes = 4', "job[0].nodes: 4 can't be; expected 1 to 3"),
        ('[[job]]\nname = "a"\npuppet = "task"\nnodes = "3..2"', "job[0].nodes: 3..2 can't be"),
        ('[[job]]\nname = "a"\npuppet = "task"\nnodes = "many"', "job[0].nodes: 'many' is no number of nodes"),
        ('[[job]]\nname = "a"\npuppet = "task"\nranks = "3"', "job[0].ranks: ranks '3' are out of range"),
        ('[[job]]\nname = "a"\npuppet = "task"\nranks = "1"\nnodes = 1', "job[0].nodes: the ranks are given"),
        ('[[job]]\nname = "a"\npuppet = "task"\ncores = 3', "job[0].cores: 3 is too many; expected at most 2"),
        ('[[job]]\nname = "a"\npuppet = "task"\nat = "b finish"', "job[0].at: 'b' is no action and no job"),
        ('[[job]]\nname = "a"\npuppet = "task"\nat = "a eat"', "job[0].at: jobs have no 'eat'; expected an event"),
        ('[[job]]\nname = "a"\npuppet = "task"\nevery = "forever"', "job[0].every: 'forever' has no end"),
        ('[perilog.epilog]\npuppet = "x"', "perilog.epilog.puppet: unknown puppet 'x'"),
        ('[perilog.epilog]\npuppet = "epilog"\ntimeout = "soon"', "perilog.epilog.timeout: 'soon' is no duration"),
        ('[housekeeping]\npuppet = "x"', "housekeeping.puppet: unknown puppet 'x'"),
        ('[[hold]]\nname = "dws"\nuntil = "mountd"', "hold[0].until: unknown service 'mountd'; known are none"),
        ('[[step]]\nat = "1s"\ndo = "cancel it"', "step[0].do: unknown job 'it'; known are none"),
        (JOB + '[[step]]\nat = "1s"\ndo = "post-event job"', "step[1].do: 'post-event job' can't be done"),
        (JOB + "[expect]\nevents.other = []", "expect.events: unknown job 'other'; known are job"),
        (JOB + '[expect]\nevents.job = ["finish status"]', "expect.events.job: 'finish status' is no event"),
        (JOB + '[expect]\ndrained = { 7 = "x" }', "expect.drained: ranks '7' are out of range"),
        ('[puppet.p]\nasks = "for-more"', "puppet.p.asks: 'for-more' can't be asked for; expected one of queue-stop"),
    ],
)
def test_what_can_not_be_is_told_in_one_line_before_anything_runs(tmp_path, body, message):
    with pytest.raises(ScenarioError) as told:
        runner.prepare(load(tmp_path, body))
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_a_moment_of_a_job_counts_from_its_event():
    moment = moments.parse("job epilog-start nth 2 + 3s", 3, ["job"])
    assert str(moment) == "job epilog-start nth 2 + 3s"
    assert moment.wants == {JobEvent}


def test_expectations_of_jobs_are_told_with_expected_and_got(tmp_path):
    body = JOB + '[expect]\nevents.job = ["finish status=7"]\ndrained = { "1" = "x" }\nfreed.job = { "0" = "5s" }\n'
    result = runner.run(load(tmp_path, body), "sim")
    told = {failure.name: failure.text for failure in result.failures}
    assert told["expect.events.job"].startswith(
        "expected 'finish status=7', got no such event there; there were submit"
    )
    assert told["expect.drained"] == "expected 1: 'x'; got none drained"
    assert told["expect.freed.job"] == "expected rank 0 to be given back after 5s, got after 0s"


@pytest.mark.parametrize("value", ["--5", "²", "5-", "9" * 5000])
def test_what_is_no_integer_is_expected_as_text(tmp_path, value):
    result = runner.run(load(tmp_path, JOB + f'[expect]\nevents.job = ["finish status={value}"]\n'), "sim")
    assert [failure.name for failure in result.failures] == ["expect.events.job"]


def test_a_deadlock_that_was_expected_and_is_none_is_told(tmp_path):
    result = runner.run(load(tmp_path, JOB + '[expect]\nwaits = ["a waits for b"]\n'), "sim")
    assert [failure.text for failure in result.failures] == [
        "expected 'a waits for b' to be told of a deadlock; got no deadlock"
    ]


def test_log_lines_may_be_expected_with_the_id_or_the_name_of_a_job(tmp_path):
    head = HEAD.replace('runs = "1s"', 'exit = 3\nruns = "1s"')
    body = JOB + '[perilog.epilog]\nper-rank = true\npuppet = "epilog"\n[expect]\n'
    for name in ("job", "ƒ2UzHM"):
        more = f'log = ["reason=epilog failed for job {name}"]\nno-log = ["of {name}x"]\n'
        result = runner.run(load(tmp_path, body + more, head), "sim")
        assert result.status == "passed", text.verdict(result)


def test_jobs_are_drawn_from_the_seed_each_with_a_name_of_its_own(tmp_path):
    body = '[[job]]\nname = "j"\nat = "1s"\nnodes = "1..3"\ncount = 20\nevery = "1s..5s"\npuppet = "task"\n'
    scenario = load(tmp_path, body)
    assert scenario.jobs() == ["j", *(f"j-{nth}" for nth in range(2, 21))]

    def drawn():
        steps = [step for step in resolve(scenario).steps if isinstance(step.deed.event, Asked)]
        return [(step.trigger.begin(), json.loads(step.deed.event.text).get("nodes", 1)) for step in steps]

    assert drawn() == drawn()
    times, widths = zip(*drawn(), strict=True)
    assert set(widths) == {1, 2, 3}
    assert list(times) == sorted(times)
    assert len(set(times)) == 20


LIVES = """
[perilog.epilog]
per-rank = true
puppet = "epilog"
[[run]]
[[run.job]]
name = "job"
at = "1s"
puppet = "task"
[[run.step]]
at = "20s"
do = "sigterm"
[run.expect]
events.job = ["clean"]
[[run]]
[run.puppet.task]
runs = "3s"
[[run.job]]
name = "later"
at = "1s"
puppet = "task"
[[run.step]]
at = "20s"
do = "sigterm"
[run.expect]
exit = 9
"""


def test_a_later_life_has_puppets_and_jobs_of_its_own_and_knows_the_earlier_jobs(tmp_path):
    one, two = lives.of(load(tmp_path, LIVES))
    assert (one.jobs(), two.jobs()) == (["job"], ["job", "later"])
    assert (one.file.puppet["task"].runs, two.file.puppet["task"].runs) == ("10s", "3s")
    assert one.file.perilog == two.file.perilog


def test_all_lives_are_told_and_a_failure_names_its_life(tmp_path):
    lines = []
    result = runner.run(load(tmp_path, LIVES), "sim", sink=lines.append)
    assert [failure.text for failure in result.failures] == ["life 2: expected exit code 9, got 0"]
    assert len(result.endings) == 2
    for rank in range(3):
        assert [line.n for line in lines if line.rank == rank] == list(range(sum(line.rank == rank for line in lines)))
    times = [line.t_ns for line in lines]
    assert times == sorted(times)


def test_lines_are_numbered_on_after_a_life_that_took_no_time(tmp_path):
    body = '[puppet.none]\nstart = "not-found"\n[[rc1]]\npuppet = "none"\n[[run]]\n[[run]]\n'
    lines = []
    runner.run(load(tmp_path, body, 'about = "x"\npolicy = "hardened"\n'), "sim", sink=lines.append)
    assert {line.t_ns for line in lines} == {0}
    assert [line.n for line in lines] == list(range(len(lines)))


def test_an_error_in_a_later_life_is_told_before_the_first_runs(tmp_path):
    body = LIVES.replace('name = "later"\nat = "1s"\npuppet = "task"', 'name = "later"\npuppet = "nobody"')
    with pytest.raises(ScenarioError, match="unknown puppet 'nobody'"):
        runner.prepare(load(tmp_path, body))


@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_seeds_of_a_busy_day_hold_all_invariants(hundred):
    scenario = scenario_format.load(Path(__file__).parents[2] / "scenarios" / "busy-day-16.toml")
    for seed in range(hundred * 100, hundred * 100 + 100):
        one = msgspec.structs.replace(scenario, file=msgspec.structs.replace(scenario.file, seed=seed))
        result = runner.run(one, "sim")
        assert result.status == "passed", f"seed {seed}\n{text.verdict(result)}"

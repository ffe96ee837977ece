"""A unit in virtual time: with the leader of many brokers as its main process, and over several lives."""

import msgspec

from brokerctl import trace
from brokerctl.check import replay
from brokerctl.durations import S
from brokerctl.records import UNIT, KillProcess, Populated, UnitMoved
from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.worlds.sim import unit

FLUX = """about = "x"
worlds = ["sim"]

[unit]
Type = "notify"
KillMode = "mixed"

[attrs]
"broker.sd-notify" = 1
"""


def run(tmp_path, body, status="passed"):
    path = tmp_path / "u.toml"
    path.write_text(body)
    scenario, lines = scenario_format.load(path), []
    result = runner.run(scenario, "sim", sink=lines.append)
    assert result.status == status, "\n" + text.story(result) + text.verdict(result)
    return lines, result, runner.prepare(scenario)


def of_unit(lines, kind):
    return [line.what for line in lines if line.rank == UNIT and isinstance(line.what, kind)]


def test_a_unit_of_thousands_of_ranks_costs_no_more_than_a_signal(tmp_path):
    body = FLUX.replace("[unit]", '[instance]\nsize = 4096\ntopology = "kary:16"\n\n[unit]')
    body += '[[step]]\nat = "run + 1s"\ndo = "systemctl stop"\n[expect]\nexit = 0\n[expect.unit]\nresult = "success"\n'
    path = tmp_path / "u.toml"
    path.write_text(body)
    wanted = []

    class Few:
        wants = frozenset({UnitMoved})

        def see(self, line):
            wanted.append(line)

    result = runner.run(scenario_format.load(path), "sim", watch=Few())
    assert result.status == "passed", text.verdict(result)
    assert [line.what.new for line in wanted] == ["start", "running", "stop-sigterm", "dead"]
    assert result.elapsed_ns < 60 * S


def test_a_changed_line_of_a_unit_is_found_by_replay(tmp_path):
    step = '[[step]]\nat = "run + 1s"\ndo = "systemctl stop"\n'
    lines, _result, resolved = run(tmp_path, FLUX + step)
    head = trace.header(resolved.settings, resolved.topology, unit=resolved.unit.settings)
    assert replay.first_difference(head, lines) is None
    at = next(n for n, line in enumerate(lines) if isinstance(line.what, KillProcess))
    changed = msgspec.structs.replace(lines[at], what=KillProcess("main", 9))
    found = replay.first_difference(head, [*lines[:at], changed, *lines[at + 1 :]])
    assert found is not None
    assert found.index == at
    other = msgspec.structs.replace(resolved.unit.settings, kill_signal=2)
    assert replay.first_difference(trace.header(resolved.settings, resolved.topology, unit=other), lines).index == at


def test_a_trace_file_of_a_unit_is_read_back(tmp_path):
    lines, _result, resolved = run(tmp_path, FLUX + '[[step]]\nat = "run"\ndo = "systemctl stop"\n')
    head = trace.header(resolved.settings, resolved.topology, unit=resolved.unit.settings)
    path = tmp_path / "trace"
    with path.open("wb") as file:
        writer = trace.Writer(file, head)
        for line in lines:
            writer(line)
    again, read = trace.read(path)
    assert again == head
    assert list(read) == lines


def test_a_leader_waits_for_its_unit_and_its_followers_for_it(tmp_path):
    body = FLUX.replace("[unit]", "[instance]\nsize = 2\n\n[unit]\nexec-start-pre = ['slow']")
    body += '[puppet.slow]\nruns = "3s"\n[[step]]\nat = "run"\ndo = "systemctl stop"\n[expect]\nexit = 0\n'
    body += '[[expect.spans]]\nfrom = "0s"\nto = "join"\nmin = "3s"\n'
    run(tmp_path, body)


def test_a_leader_whose_unit_does_not_come_up_never_begins(tmp_path):
    body = FLUX.replace("[unit]", "[unit]\nexec-start-pre = ['fails']") + "[puppet.fails]\nexit = 1\n"
    lines, result, _ = run(tmp_path, body + '[expect]\nnever = ["join"]\n[expect.unit]\nrc = [1]\nactive = "failed"\n')
    assert result.exit_code is None
    assert not [line for line in lines if line.rank == 0]


def test_a_second_life_of_the_leader_breaks_no_invariant_of_the_first(tmp_path):
    """The first ends with a failed action, the second with 0; lines are numbered on."""
    body = (
        FLUX
        + """[puppet.rc3]
exit = 3
[[rc3]]
puppet = "rc3"
[[step]]
at = "run + 1s"
do = "sigterm"
[[step]]
at = "run nth 2 + 1s"
do = "systemctl stop"
[expect]
exit = 3
[expect.unit]
restarts = 1
"""
    )
    lines, result, resolved = run(tmp_path, body.replace("[unit]", '[unit]\nRestart = "always"'))
    assert result.stop_ns < S, "the stop of the last life"
    head = trace.header(resolved.settings, resolved.topology, unit=resolved.unit.settings)
    assert replay.first_difference(head, lines) is None


def test_what_survives_a_life_is_a_leftover_of_the_next(tmp_path):
    body = """about = "x"
worlds = ["sim"]
[unit]
KillMode = "none"
main = "main"
[puppet.main]
runs = "forever"
leaves = 1
[[step]]
at = "1s"
do = "systemctl restart"
[[step]]
at = "2s"
do = "kill main KILL"
[expect.unit]
active = "failed"
result = "signal"
rc = [0, 0]
left = 3
"""
    lines, _result, _ = run(tmp_path, body)
    assert [what.others for what in of_unit(lines, Populated)] == [1, 3]


def test_lines_of_a_unit_have_no_rank_in_a_log(tmp_path):
    body = FLUX + '[[step]]\nat = "run"\ndo = "systemctl stop"\n[expect]\nlog = ["systemd: running->stop-sigterm"]\n'
    _lines, result, _ = run(tmp_path, body)
    told = text.story(result)
    assert " systemd: stop-sigterm->dead " in told
    assert "[-2]" not in told


def test_the_wrapper_is_known_by_the_words_of_its_command():
    for words in ("brokerctl stop", "/usr/bin/python3 -I -m brokerctl stop --pid $MAINPID", "/opt/bin/brokerctl stop"):
        assert unit._helper(words) is unit.HELPERS["brokerctl stop"]
    for words in ("brokerctl stopped", "xbrokerctl stop", "python3 -m brokerctl stop --post", "true"):
        assert unit._helper(words) is None

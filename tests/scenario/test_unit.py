"""`[unit]` in a scenario: what is read, what is refused in one line, what its expectations find."""

import pytest

from brokerctl.durations import S
from brokerctl.errors import ScenarioError
from brokerctl.records import UNIT, Systemctl
from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import moments, runner
from brokerctl.scenario.resolve import resolve
from brokerctl.settings import StopSettings
from brokerctl.worlds.contract import Deliver, SignalProcess

HEAD = 'about = "x"\nworlds = ["sim"]\n'
UNIT_TABLE = '[unit]\nmain = "main"\n'
MAIN = '[puppet.main]\nruns = "forever"\n'
WRAPPED = UNIT_TABLE + 'exec-stop = ["brokerctl stop"]\n'
ASKS = '[puppet.ask]\nasks = "main-gone"\n'
STOP = '[[step]]\nat = "0.5s"\ndo = "systemctl stop"\n'


def load(tmp_path, body, head=HEAD):
    path = tmp_path / "u.toml"
    path.write_text(head + body)
    return scenario_format.load(path)


def run(tmp_path, body):
    return runner.run(load(tmp_path, body), "sim")


def failures(result):
    return {failure.name: failure.text for failure in result.failures}


def test_systemds_keys_are_read_as_systemd_reads_them(tmp_path):
    body = """[unit]
Type = "oneshot"
TimeoutStopSec = "1min 30s"
TimeoutAbortSec = 5
SendSIGKILL = false
KillSignal = "SIGINT"
SuccessExitStatus = "42 TEMPFAIL SIGUSR1"
StartLimitBurst = 3
exec-start = ["main", "-main"]
exec-stop = ["-main", "+brokerctl stop"]
"""
    made = resolve(load(tmp_path, body + MAIN)).unit
    unit = made.settings
    assert made.main == "puppet"
    assert (unit.type, unit.timeout_stop_ns, unit.timeout_abort_ns) == ("oneshot", 90 * S, 5 * S)
    assert unit.timeout_start_ns is None, "a oneshot has no limit on its start"
    assert (unit.send_sigkill, unit.kill_signal, unit.start_limit_burst) == (False, 2, 3)
    assert (unit.success_exit_status.codes, unit.success_exit_status.signals) == ((42, 75), (10,))
    assert [line.ignore_failure for line in (*unit.exec_start, *unit.exec_stop)] == [False, True, True, False]
    assert (unit.exec_stop[1].command.text, unit.exec_stop[1].prefixes) == ("brokerctl stop", "+")
    assert "[Unit]\nStartLimitBurst=3\n" in made.text
    assert "Exec" not in made.text


def test_a_unit_without_main_is_the_leaders_broker(tmp_path):
    made = resolve(load(tmp_path, '[unit]\nType = "notify"\n'))
    assert made.unit.main == "broker"
    assert made.has_brokers()
    assert "unit" in made.needs


def test_a_unit_is_read_from_a_file_with_its_drop_ins_and_the_scenario_has_the_last_word(tmp_path):
    (tmp_path / "flux.service").write_text(
        "[Service]\nType=notify\nExecStart=/bin/flux broker\nExecStop=/bin/false\nTimeoutStopSec=90\nKillMode=mixed\n"
    )
    (tmp_path / "flux.service.d").mkdir()
    (tmp_path / "flux.service.d" / "a.conf").write_text("[Service]\nTimeoutStopSec=20\nExecStop=\n")
    (tmp_path / "more.conf").write_text("[Service]\nRestart=always\n")
    body = '[unit]\nfile = "flux.service"\ndrop-ins = ["more.conf"]\nRestartSec = 7\n'
    unit = resolve(load(tmp_path, body)).unit
    made = unit.settings
    assert (made.timeout_stop_ns, made.kill_mode, made.restart, made.restart_ns) == (20 * S, "mixed", "always", 7 * S)
    assert made.exec_stop == ()
    assert unit.main == "broker"


def test_what_the_wrapper_is_told_is_as_in_its_own_file_with_puppets_for_its_actions(tmp_path):
    body = """[stop]
actions-timeout = "3s"
shed-after = "none"
[[stop.actions]]
puppet = "main"
timeout = "2s"
essential = true
"""
    stop = resolve(load(tmp_path, WRAPPED + body + MAIN)).unit.stop
    assert (stop.actions_timeout_ns, stop.shed_after_ns) == (3 * S, None)
    assert [(one.command.puppet, one.timeout_ns, one.essential) for one in stop.actions] == [("main", 2 * S, True)]
    assert resolve(load(tmp_path, WRAPPED + MAIN)).unit.stop == StopSettings()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (UNIT_TABLE + 'TimeoutStopSecs = "2"\n', "unit.TimeoutStopSecs: is not known here; expected a key of systemd"),
        (UNIT_TABLE + 'ExecStop = "/bin/x"\n', "unit.ExecStop: is not known here; expected exec-stop with puppets"),
        (UNIT_TABLE + 'KillMode = "some"\n', "u.toml: unit: KillMode=some: 'some' is not possible"),
        (
            UNIT_TABLE + 'Type = "forking"\n',
            "unit.Type: forking can't be simulated; expected simple, notify or oneshot",
        ),
        (UNIT_TABLE + "KillMode = []\n", "unit.KillMode: is a list; expected text or a number"),
        (UNIT_TABLE + 'exec-stop = ["nobody"]\n', "unit.exec-stop[0]: unknown puppet 'nobody'; known are main, and"),
        (UNIT_TABLE + 'exec-stop = ["brokerctl stopp"]\n', "unit.exec-stop[0]: unknown puppet 'brokerctl stopp'"),
        (UNIT_TABLE + "User = 'a\\'\n", "unit.User: 'a\\\\' is no line; expected printable text"),
        (UNIT_TABLE + 'exec-stop = "main"\n', "u.toml: unit: exec-stop: expected 'array"),
        (UNIT_TABLE + 'stop = ["main"]\n', "u.toml: unit: object contains unknown field 'stop'"),
        (UNIT_TABLE + 'exec-start = ["main"]\n', "unit.main: stands beside exec-start; expected one of them"),
        ("[unit]\nexec-start = []\n", "unit.exec-start: 0 lines; expected one, of a oneshot more"),
        ('[unit]\nexec-start = ["main", "main"]\n', "unit.exec-start: 2 lines; expected one, of a oneshot more"),
        (UNIT_TABLE + 'exec-stop = ["ask"]\n[puppet.ask]\nasks = "queue-idle"\n', "ask asks for queue-idle; expected"),
        ('[unit]\nfile = "no.service"\n', "unit.file: "),
        ('[unit]\ndrop-ins = ["a.conf"]\n', "unit.drop-ins: need a file; expected file = 'NAME.service'"),
        ('[stop]\nshed-after = "2s"\n', "stop: there is no unit; expected [unit] in the file"),
        (UNIT_TABLE + "[stop]\n", "stop: no wrapper reads it; expected 'brokerctl stop' in unit.exec-stop"),
        (WRAPPED + '[stop]\nkind = "flux"\n', "u.toml: stop: object contains unknown field 'kind'"),
        (WRAPPED + '[stop]\nactions-timeout = "none"\n', "stop.actions-timeout: 'none' is not possible here"),
        (WRAPPED + '[stop]\nshed-after = "soon"\n', "stop.shed-after: "),
        (WRAPPED + '[stop]\nkill-ladder = "HUP"\n', "stop.kill-ladder: 'HUP' is no rung"),
        (WRAPPED + '[[stop.actions]]\npuppet = "no"\n', "stop.actions[0].puppet: unknown puppet 'no'"),
        (WRAPPED + '[[stop.actions]]\npuppet = "main"\nranks = "0"\n', "stop.actions[0].ranks: a site action runs"),
        (WRAPPED + '[[stop.actions]]\npuppet = "main"\ntimeout = "x"\n', "stop.actions[0].timeout: "),
        (WRAPPED + '[[stop.actions]]\npuppet = "ask"\n' + ASKS, "stop.actions[0].puppet: ask asks its broker"),
        (STOP, "step[0]: there is no unit; expected [unit] in the file"),
        ('[expect.unit]\nactive = "failed"\n', "expect.unit: there is no unit; expected [unit] in the file"),
        (UNIT_TABLE + '[expect.unit]\nactive = "dead"\n', "invalid enum value 'dead'"),
        (UNIT_TABLE + '[expect.unit]\nstates = ["stopped"]\n', "expect.unit.states: 'stopped' is no SubState"),
        (UNIT_TABLE + '[expect.unit]\nsignals = ["TERM"]\n', "expect.unit.signals: 'TERM' is none; expected such as"),
        (UNIT_TABLE + '[expect.unit]\nhooks = ["stop"]\n', "expect.unit.hooks: 'stop' is none; expected such as"),
        (UNIT_TABLE + '[expect.unit]\nmain = "NOSIG"\n', "expect.unit.main: 'NOSIG' is no signal"),
        (UNIT_TABLE + '[[step]]\nat = "1s"\ndo = "systemctl halt"\n', "step[0].do: 'systemctl halt' can't be done"),
        (UNIT_TABLE + '[[step]]\nat = "1s"\ndo = "systemctl kill --who=x"\n', "step[0].do: '--who=x' is not known"),
        (UNIT_TABLE + '[[step]]\nat = "1s"\ndo = "kill main"\n', "step[0].do: 'kill main' can't be done"),
        (UNIT_TABLE + '[[step]]\nat = "unit halted"\ndo = "systemctl stop"\n', "'unit halted' is no moment of a unit"),
    ],
)
def test_what_can_not_be_is_told_in_one_line(tmp_path, body, said):
    with pytest.raises(ScenarioError) as told:
        runner.prepare(load(tmp_path, body + MAIN))
    message = str(told.value)
    assert said in message
    assert "\n" not in message
    assert message.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("puppet", "said"),
    [
        ('notify = [{ text = "" }]\n', "puppet.main.notify[0].text: '' is no message; expected such as READY=1"),
        ('notify = [{ text = "X=1", every = "1s" }]\n', "puppet.main.notify[0]: every and times belong together"),
        ('kills = ["NOSIG"]\n', "puppet.main.kills[0].signal: 'NOSIG' is no signal"),
        ('leaves-ignore = ["KILL"]\n', "puppet.main.leaves-ignore: KILL can't be ignored"),
        ('asks = "systemctl halt"\n', "puppet.main.asks: 'systemctl halt' can't be asked for"),
    ],
)
def test_what_a_puppet_can_not_do_in_a_unit_is_told_in_one_line(tmp_path, puppet, said):
    with pytest.raises(ScenarioError) as told:
        resolve(load(tmp_path, UNIT_TABLE + MAIN + puppet))
    assert said in str(told.value)


def test_clients_are_numbered_as_the_steps_stand_in_the_file(tmp_path):
    steps = "".join(
        f'[[step]]\nat = "{at}s"\ndo = "{do}"\n'
        for at, do in [
            (2, "systemctl stop"),
            (1, "kill main KILL"),
            (3, "systemctl kill --kill-whom=main --signal=INT"),
        ]
    )
    made = resolve(load(tmp_path, UNIT_TABLE + MAIN + steps))
    assert [step.deed for step in made.steps] == [
        Deliver(UNIT, Systemctl("stop", 1)),
        SignalProcess("main", 9),
        Deliver(UNIT, Systemctl("kill", 2, "main", 2)),
    ]


@pytest.mark.parametrize(
    "moment",
    [
        "unit stop-sigterm",
        "unit exec-stop.0 start + 1s",
        "unit main end",
        "unit exec-stop-post.1 end nth 2",
        "unit main TERM",
    ],
)
def test_a_moment_of_a_unit_is_read_back_as_it_is_written(moment):
    read = moments.parse(moment, 1)
    assert read.rank == UNIT
    assert moments.parse(str(read), 1) == read


WRONG = """[expect.unit]
active = "failed"
sub = "failed"
result = "timeout"
main = "KILL"
status = "Exiting"
states = ["stop"]
signals = ["main KILL"]
hooks = ["exec-stop.0"]
rc = [1, "none"]
takes = "5s"
restarts = 1
left = 1
"""


def test_each_expectation_says_what_was_expected_and_what_came(tmp_path):
    found = failures(run(tmp_path, UNIT_TABLE + MAIN + STOP + WRONG))
    assert found == {
        "expect.unit.active": "expected failed, got inactive",
        "expect.unit.sub": "expected failed, got dead",
        "expect.unit.result": "expected timeout, got success",
        "expect.unit.main": "expected killed KILL, got killed TERM",
        "expect.unit.status": "expected Exiting, got nothing",
        "expect.unit.states": "expected 'stop', got no such state; there were running, stop-sigterm, dead",
        "expect.unit.signals": "expected KILL to main, got TERM",
        "expect.unit.hooks": "expected exec-stop.0 to run, got none",
        "expect.unit.rc": "expected 1, none, got 0, 0",
        "expect.unit.takes": "expected 5s (300ms less to 300ms more), got 0s",
        "expect.unit.restarts": "expected 1, got 0",
        "expect.unit.left": "expected 1, got 0",
    }


def test_a_word_of_a_hooks_environment_is_missed_or_found_where_it_must_not_be(tmp_path):
    body = UNIT_TABLE + 'exec-stop-post = ["post"]\n' + MAIN + "[puppet.post]\n" + STOP + "[expect.unit]\n"
    for word in ("MAINPID", "!EXIT_CODE", "SERVICE_RESULT=timeout", "!EXIT_STATUS=TERM"):
        found = failures(run(tmp_path, body + f'hooks = ["exec-stop-post.0 {word}"]\n'))
        got = "EXIT_CODE=killed EXIT_STATUS=TERM SERVICE_RESULT=success"
        assert found == {"expect.unit.hooks": f"expected {word} for exec-stop-post.0, got {got}"}
    assert not failures(run(tmp_path, body + 'hooks = ["exec-stop-post.0 EXIT_STATUS=TERM !EXIT_STATUS=0"]\n'))


def test_a_limit_on_the_stop_is_missed_where_nothing_stops(tmp_path):
    body = UNIT_TABLE + MAIN + '[expect]\noutcome = "stuck"\n[expect.unit]\nactive = "active"\nwithin = "5s"\n'
    assert failures(run(tmp_path, body)) == {"expect.unit.takes": "expected the end of a stop, got none"}


def test_the_verdict_says_how_the_unit_has_ended(tmp_path):
    verdict = text.verdict(
        run(tmp_path, UNIT_TABLE + "TimeoutStopSec = 1\n" + MAIN + 'on = { TERM = "ignore" }\n' + STOP)
    )
    assert "  unit failed (failed), result timeout, 1.0s after its stop began\n" in verdict


def test_a_world_without_a_service_manager_skips_a_unit(tmp_path):
    scenario = load(tmp_path, UNIT_TABLE + MAIN, head='about = "x"\nworlds = ["live"]\n')
    result = runner.run(scenario, "live")
    assert (result.status, result.reason) == ("skipped", "world live lacks unit")


def test_a_command_that_is_no_puppet_ends_at_once(tmp_path):
    (tmp_path / "x.service").write_text("[Service]\nExecStart=/bin/x\nExecStop=/bin/y\n")
    body = '[unit]\nfile = "x.service"\nmain = "main"\n' + MAIN + STOP
    result = run(tmp_path, body + '[expect.unit]\nactive = "inactive"\nhooks = ["exec-stop.0"]\n')
    assert result.status == "passed", text.verdict(result)

"""`brokerctl compare`: side by side, where two stories part; 0 equal, 1 not, 2 nothing to compare."""

import pytest

from brokerctl import cli
from tests.conformance.pairs import HERE as CONFORMANCE

SCENARIO = """\
about = "one action"
cleanup = [{ puppet = "save" }]

[attrs]
"broker.cleanup-timeout" = "5s"

[puppet.save]
exit = %d

[[step]]
at = "run"
do = "sigterm"
"""
NAME = "05-sigterm-stuck-epilog"


@pytest.fixture
def one(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(SCENARIO % 0)
    return path


@pytest.fixture
def two(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO % 3)
    return path


@pytest.fixture
def compare(capsys, monkeypatch):
    """Runs the verb: its code, and what it wrote to both streams."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words):
        code = cli.main(["compare", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_two_worlds_that_tell_the_same_are_0_and_one_line(compare, one):
    code, out, err = compare(one, "--worlds", "sim,live")
    assert (code, err) == (0, "")
    assert out.startswith("equal: ")
    assert out.endswith(" things that one (sim, flux) and one (live, flux) both tell\n")


def test_two_scenarios_part_where_the_first_thing_differs(compare, one, two):
    code, out, err = compare(one, two)
    assert (code, err) == (1, "")
    head, titles, *rows = out.splitlines()
    assert head == "rank 0, model:"
    assert titles.split() == ["one", "(sim,", "flux)", "two", "(sim,", "flux)"]
    row = next(row for row in rows if row.startswith("≠"))
    assert " broker.info[0]: cleanup.0: save Exited (rc=0)  " in row
    assert row.endswith(" broker.err[0]: cleanup.0: save Exited (rc=3)")


def test_two_policies_are_compared_by_what_can_be_seen_and_not_by_who_notifies(compare, two):
    code, out, _ = compare(two, "--policies", "flux,hardened")
    assert code == 1
    assert out.startswith("rank 0, log:\n")
    assert "exit code 3: the first to fail" in out
    assert "READY=1" not in out


def test_traces_are_compared_and_their_times_are_not(compare, one, two, tmp_path):
    for scenario in (one, two):
        cli.main(["simulate", str(scenario), "--trace", str(tmp_path / f"{scenario.stem}.trace")])
    assert compare(tmp_path / "one.trace", tmp_path / "one.trace")[0] == 0
    assert compare(tmp_path / "one.trace", one)[0] == 0
    assert compare(tmp_path / "one.trace", tmp_path / "two.trace")[0] == 1


def test_a_recording_is_compared_with_a_scenario_by_what_was_recorded(compare):
    recorded = CONFORMANCE / "recorded" / f"{NAME}.json"
    scenario = CONFORMANCE / "scenarios" / f"{NAME}.toml"
    code, out, _ = compare(recorded, scenario)
    assert code == 0
    assert f" things that {NAME} (recorded) and {NAME} (sim, flux) both tell" in out
    code, out, _ = compare(recorded, scenario.with_stem("06-fluxshutdown-stuck-epilog"))
    assert code == 1
    assert "broker.info[0]: signal 15" in out
    assert "\n  … " in out


@pytest.mark.parametrize("name", ["48-restart-pending-job", "49-second-restart-after-stuck-job"])
def test_a_recording_of_a_later_life_is_compared_with_the_last_one_and_all_that_eventlogs_have(compare, name):
    code, out, _ = compare(CONFORMANCE / "recorded" / f"{name}.json", CONFORMANCE / "scenarios" / f"{name}.toml")
    assert code == 0, out


def test_an_attribute_from_the_command_line_counts_on_both_sides(compare):
    recorded = CONFORMANCE / "recorded" / f"{NAME}.json"
    scenario = CONFORMANCE / "scenarios" / f"{NAME}.toml"
    assert compare(recorded, scenario, "-S", "broker.exit-norestart=9")[0] == 0  # it was a signal
    assert compare(recorded, scenario, "-S", "broker.cleanup-timeout=9h")[0] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["one.toml"], "expected two files, or one scenario with --worlds or --policies"),
        (
            ["one.toml", "one.toml", "--worlds", "sim,live"],
            "expected two files, or one scenario with --worlds or --policies",
        ),
        (
            ["one.toml", "--worlds", "sim,moon"],
            "--worlds sim,moon: expected two of sim, live, systemd, flux, such as sim,flux",
        ),
        (["one.toml", "--policies", "flux"], "--policies flux: expected two of flux, hardened, such as flux,hardened"),
        (["none.trace", "one.toml"], "none.trace: cannot read: No such file or directory"),
        (["none.json", "one.toml"], "none.json: cannot read: No such file or directory"),
        (["only-sim.toml", "--worlds", "sim,live"], "only-sim (live, flux): the scenario is for sim"),
    ],
)
def test_what_can_not_be_compared_is_2_and_one_line(compare, one, monkeypatch, words, message):
    monkeypatch.chdir(one.parent)
    (one.parent / "only-sim.toml").write_text(one.read_text().replace("[attrs]", 'worlds = ["sim"]\n[attrs]', 1))
    code, out, err = compare(*words)
    assert (code, out) == (2, "")
    assert err == f"brokerctl compare: {message}\n"

"""What a real Flux can be made to act out, and the reason where it can't; known before anything is started."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from brokerctl import config
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.format import Scenario, ScenarioFile
from brokerctl.scenario.resolve import resolve
from brokerctl.worlds.flux import fit, kept
from tests.conformance.pairs import HERE as CONFORMANCE


@pytest.fixture(autouse=True)
def there_is_a_flux(tmp_path, monkeypatch):
    """A file of that name: nothing here starts it."""
    (tmp_path / "flux").touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))


def resolved_of(text, policy=None):
    file = config.validate(tomllib.loads('about = "x"\n' + text), ScenarioFile, "x")
    return resolve(Scenario(name="x", path=Path("x"), file=file), policy)


def reason(text, policy=None):
    return fit.unfit(resolved_of(text, policy))


PUPPET = "cleanup = [{ puppet = 'p' }]\n[puppet.p]\n"


def test_puppets_as_cleanup_actions_and_signals_can_be():
    assert reason(PUPPET + "[[step]]\nat = 'run'\ndo = 'sigterm'") == ""


def test_nearly_all_recorded_runs_can_be():
    names = sorted((CONFORMANCE / "scenarios").glob("*.toml"))
    fits = [path for path in names if not fit.unfit(resolve(scenario_format.load(path)))]
    assert len(fits) > 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rc1 = [{puppet='p'}, {puppet='p'}]\n[puppet.p]", "a Flux has one rc1, not 2"),
        ("[instance]\nsize = 3\ntopology = 'custom'\nparents = [-1, 0, 1]", ""),  # kary:1
        ("[instance]\nsize = 4\ntopology = 'custom'\nparents = [-1, 0, 0, 2]", "the tree is neither kary nor flat"),
        (
            "cleanup = [{puppet='p', timeout='1s'}]\n[puppet.p]",
            "actions of a Flux have no timeout, no ranks, and none is essential",
        ),
        (PUPPET + "asks = 'queue-idle'", "puppet p asks a broker of ours for queue-idle"),
        (PUPPET + "start = 'not-found'", "puppet p: a shell starts it, and says in words of its own why it can't"),
        ("rc2 = {puppet='p'}\n[puppet.p]\nstart = 'not-found'", ""),  # which a broker starts without a shell
        (
            "rc2 = {puppet='p'}\ncleanup = [{puppet='q'}]\n[puppet.p]\nstart = 'not-executable'\n[puppet.q]",
            "puppet p: cleanup actions are pushed by the rc2, and this one can't be started",
        ),
        (
            PUPPET + "command = 'flux queue idle'\nruns = 'forever'",
            "puppet p: Flux's own `flux queue idle` does not do that",
        ),
        (
            "rc1 = [{puppet='r'}]\n[puppet.r]\n[puppet.p]\n[[job]]\nname = 'j'\npuppet = 'p'",
            "jobs and commands of Flux need its modules; expected `flux modprobe rc1` as rc1, or none",
        ),
        ("[[step]]\nat = 'run'\ndo = 'panic'", "nobody can ask a Flux for panic"),
        (
            "[instance]\nsize = 2\n[[fault]]\nat = 'run'\ndo = 'cut'\nranks = '1'",
            "nothing cuts a link between brokers of a Flux",
        ),
        (
            "[instance]\nsize = 2\n[[fault]]\nat = 'run'\ndo = 'crash'\nranks = '1'",
            "losses are noticed by heartbeats, which are one of Flux's modules",
        ),
        ("[attrs]\n'broker.output-grace' = '1s'", "a Flux has no setting for broker.output-grace"),
        ("[attrs]\n'heartbeat.timeout' = '4s'\n'tbon.torpid_max' = '5.1s'", ""),
        ("[attrs]\n'heartbeat.timeout' = 'none'\n'tbon.torpid_max' = 'none'", ""),
        ("[attrs]\n'heartbeat.timeout' = '3.9s'", "a Flux has no heartbeat.timeout below 4s"),
        ("[attrs]\n'tbon.torpid_max' = '5s'", "a Flux has a tbon.torpid_max of more than 5s"),
    ],
)
def test_the_reason_is_told(text, expected):
    assert reason(text) == expected


def test_another_policy_is_none_of_flux():
    assert reason("", "hardened").startswith("a Flux has no setting for abort_rc1_with_parent, ")
    assert reason("", "hardened").endswith(" more")


def test_a_life_that_begins_with_what_an_earlier_one_has_kept_has_modules_too():
    resolved = resolved_of(PUPPET)
    assert not fit.has_modules(resolved)
    assert fit.has_modules(msgspec.structs.replace(resolved, restored={kept.KEY: ""}))


def test_without_a_flux_nothing_can_be(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert reason("") == "no `flux` on PATH"

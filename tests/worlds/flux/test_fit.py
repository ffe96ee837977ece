"""What a real Flux can be made to act out, and the reason where it can't; known before anything is started."""

import tomllib

import pytest

from brokerctl import config
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.format import Scenario, ScenarioFile
from brokerctl.scenario.resolve import resolve
from brokerctl.worlds.flux import fit
from tests.conformance.pairs import HERE as CONFORMANCE


@pytest.fixture(autouse=True)
def there_is_a_flux(tmp_path, monkeypatch):
    """A file of that name: nothing here starts it."""
    (tmp_path / "flux").touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))


def reason(text, policy=None, **more):
    text = 'about = "x"\n' + text
    file = config.validate(tomllib.loads(text), ScenarioFile, "x")
    from pathlib import Path

    return fit.unfit(resolve(Scenario(name="x", path=Path("x"), file=file, **more), policy))


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
        ("[attrs]\n'broker.output-grace' = '1s'", "a Flux has no setting for output_grace_ns"),
    ],
)
def test_the_reason_is_told(text, expected):
    assert reason(text) == expected


def test_another_policy_is_none_of_flux():
    assert reason("", "hardened").startswith("a Flux has no setting for abort_rc1_with_parent, ")
    assert reason("", "hardened").endswith(" more")


def test_a_later_life_can_not_be():
    assert (
        reason("", restored={fit.NOT_KEPT: ""})
        == "a later life begins with what an earlier one has stored, and that is not kept here"
    )


def test_without_a_flux_nothing_can_be(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert reason("") == "no `flux` on PATH"

"""`[[fault]]`: which ranks, when, and what can't be."""

from random import Random

import pytest

from brokerctl.errors import ScenarioError
from brokerctl.records import Moved
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.scenario.resolve import resolve
from brokerctl.worlds.contract import Fault

HEAD = 'about = "x"\nworlds = ["sim"]\n'


@pytest.fixture
def load(tmp_path):
    def make(text):
        path = tmp_path / "made.toml"
        path.write_text(HEAD + text)
        return scenario_format.load(path)

    return make


@pytest.fixture
def faults(load):
    def make(text, **more):
        return [step.deed for step in resolve(load(text), **more).steps if isinstance(step.deed, Fault)]

    return make


def fault(ranks, do="freeze", at="run + 1s", more=""):
    return f'[[fault]]\nat = "{at}"\ndo = "{do}"\nranks = "{ranks}"\n{more}'


def test_ranks_are_an_idset(faults):
    assert faults("[instance]\nsize = 7\n" + fault("1-2,5")) == [Fault("freeze", (1, 2, 5))]
    assert faults("[instance]\nsize = 7\n" + fault("0", "crash")) == [Fault("crash", (0,))]


def test_a_part_of_the_ranks_is_drawn_from_the_seed_and_never_the_leader(faults):
    text = "seed = {}\n[instance]\nsize = 1000\ntopology = 'kary:16'\n" + fault("1%") + fault("50%", "crash")
    one, half = faults(text.format(7))
    assert one.ranks == tuple(sorted(Random("7/fault/0").sample(range(1, 1000), 9)))
    assert len(half.ranks) == 499
    assert 0 not in half.ranks
    assert any(rank <= 62 for rank in half.ranks), "routers included"
    assert faults(text.format(7)) == [one, half]
    assert faults(text.format(8)) != [one, half]


def test_a_part_of_the_leaves_draws_no_router_and_at_least_one_is_hit(faults):
    (leaves,) = faults("[instance]\nsize = 7\n" + fault("100% of leaves"))
    assert leaves.ranks == (3, 4, 5, 6)
    (one,) = faults("[instance]\nsize = 7\n" + fault("0.1% of ranks"))
    assert len(one.ranks) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (fault("7"), "fault[0].ranks: ranks '7' are out of range; expected less than 7"),
        (fault("0%"), "fault[0].ranks: '0%' is no part of the ranks"),
        (fault("101%"), "fault[0].ranks: '101%' is no part of the ranks"),
        (fault("1% of routers"), "fault[0].ranks: '1% of routers' is no set of ranks"),
        (fault("0-1", "cut"), "fault[0].ranks: the leader has no link to a parent"),
        (fault("1", "slow"), "fault[0].delay: belongs to slow"),
        (fault("1", "cut", more='delay = "1s"\n'), "fault[0].delay: belongs to slow"),
        (fault("1", "slow", more='delay = "none"\n'), "fault[0].delay: 'none' has no end"),
        (fault("1", at="rank 9 run"), "fault[0].at: rank 9 is out of range"),
        (fault("1", at="run - 1s"), "fault[0].at: 'run - 1s' can't be foreseen"),
        (fault("1", "explode"), "fault[0].do: invalid enum value 'explode'"),
        ('[[fault]]\nat = "run"\ndo = "crash"\n', "fault[0]: object missing required field 'ranks'"),
        ('[[step]]\nat = "run"\ndo = "disconnect 7"\n', "step[0].do: rank 7 is out of range"),
        ('[[step]]\nat = "run"\ndo = "disconnect x"\n', "step[0].do: 'disconnect x' can't be done; expected sigterm"),
        ('[puppet.p]\n[[cleanup]]\npuppet = "p"\nranks = "8"\n', "cleanup[0].ranks: ranks '8' are out of range"),
        ('[expect]\nlost = "9"\n', "expect.lost: ranks '9' are out of range"),
    ],
)
def test_what_can_not_be_is_told_in_one_line_before_anything_is_run(load, text, told):
    with pytest.raises(ScenarioError) as caught:
        runner.prepare(load("[instance]\nsize = 7\n" + text))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_of_an_instance_of_one_is_nobody(load):
    with pytest.raises(ScenarioError, match="of an instance of one rank; expected followers"):
        resolve(load(fault("1%")))


def test_a_fault_at_a_state_finds_the_rank_there_and_it_never_leaves(load):
    lines = []
    scenario = load("[instance]\nsize = 3\n" + fault("2", at="rank 2 init") + "[expect]\noutcome = 'stuck'\n")
    runner.run(scenario, "sim", sink=lines.append)
    states = [line.what.new for line in lines if line.rank == 2 and isinstance(line.what, Moved)]
    assert states == ["join", "config-sync", "init", "quorum"], "what it posts on entry is done, and nothing more"


def test_a_fault_whose_moment_never_comes_is_a_failure(load):
    scenario = load(fault("0", "crash", at="cleanup.7 end") + '[[step]]\nat = "run"\ndo = "sigterm"\n')
    result = runner.run(scenario, "sim")
    assert [one.text for one in result.failures] == ["step at 'cleanup.7 end' never came"]


def test_live_attributes_count_in_real_time_alone_and_the_command_line_above_all(load):
    scenario = load(
        '[attrs]\n"broker.cleanup-timeout" = "45s"\n"broker.exit-norestart" = 42\n'
        '[live.attrs]\n"broker.cleanup-timeout" = "2s"\n'
    )
    assert resolve(scenario).settings.cleanup_timeout_ns == 45 * 10**9
    real = resolve(scenario, real_time=True).settings
    assert (real.cleanup_timeout_ns, real.exit_norestart) == (2 * 10**9, 42)
    said = resolve(scenario, sets=["broker.cleanup-timeout=7s"], real_time=True).settings
    assert said.cleanup_timeout_ns == 7 * 10**9


def test_a_bad_live_attribute_is_told_also_where_only_virtual_time_is_meant(load):
    with pytest.raises(ScenarioError, match="live: attrs: unknown attribute 'x'"):
        resolve(load('[live.attrs]\nx = "1"\n'))

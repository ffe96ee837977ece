"""Flux's own bootstrap configuration as an instance (flux-config-bootstrap(5))."""

import pytest

from brokerctl.errors import ScenarioError
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.resolve import resolve


@pytest.fixture
def topology(tmp_path):
    def make(text, instance='bootstrap = "conf/system.toml"'):
        (tmp_path / "conf").mkdir(exist_ok=True)
        (tmp_path / "conf" / "system.toml").write_text(text)
        path = tmp_path / "s.toml"
        path.write_text(f'about = "x"\n[instance]\n{instance}\n')
        return resolve(scenario_format.load(path)).topology

    return make


def test_without_parents_all_are_children_of_the_first_host(topology):
    made = topology(
        '[exec]\nimp = "/x"\n'
        '[bootstrap]\ndefault_port = 8050\nhosts = [{ host = "adm", bind = "b" }, { host = "n[0-2]" }]'
    )
    assert made.hosts == ("adm", "n0", "n1", "n2")
    assert made.parents == (-1, 0, 0, 0)


def test_a_later_entry_adds_the_parent_of_a_host_that_has_its_rank(topology):
    made = topology(
        '[bootstrap]\nhosts = [{ host = "test[0-9]" }, { host = "test[1,5]", parent = "test0" },\n'
        '  { host = "test[2-4]", parent = "test1" }, { host = "test[6-9]", parent = "test5" }]'
    )
    assert made.parents == (-1, 0, 1, 1, 1, 0, 5, 5, 5, 5)


def test_tbon_topo_replaces_the_parents(topology):
    made = topology('[bootstrap]\nhosts = [{ host = "n[0-4]" }]\n[tbon]\ntopo = "kary:2"')
    assert made.parents == (-1, 0, 0, 1, 1)


def test_no_hosts_are_one_broker(topology):
    assert topology("[bootstrap]\n").parents == (-1,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "missing required field 'bootstrap'"),
        ("[bootstrap]\nhosts = [{}]", "bootstrap.hosts[0]: object missing required field 'host'"),
        ('[bootstrap]\nhosts = [{ host = "n[0-" }]', "bootstrap.hosts[0].host: 'n[0-' is no host"),
        ('[bootstrap]\nhosts = [{ host = "a,b", parent = "c" }]', "'c' is the leader's; expected -1"),
        ('[bootstrap]\nhosts = [{ host = "a" }, { host = "b", parent = "c" }]', "'c' can't be the parent of rank 1"),
        ('[bootstrap]\nhosts = [{ host = "a" }, { host = "b", parent = "b" }]', "'b' can't be the parent of rank 1"),
        ('[bootstrap]\nhosts = [{ host = "a" }]\n[tbon]\ntopo = "mincrit"', "tbon.topo: 'mincrit' is no topology"),
        ("[bootstrap", "system.toml: "),
    ],
)
def test_a_file_that_describes_no_instance_is_told_in_one_line_with_both_files(topology, text, told):
    with pytest.raises(ScenarioError) as caught:
        topology(text)
    assert told in str(caught.value)
    assert str(caught.value).partition(": ")[0].endswith("s.toml")
    assert "\n" not in str(caught.value)


def test_nothing_stands_beside_bootstrap_and_the_file_must_be_there(topology):
    with pytest.raises(ScenarioError, match="expected none of them beside it"):
        topology("[bootstrap]\n", 'bootstrap = "conf/system.toml"\nsize = 3')
    with pytest.raises(ScenarioError, match="is no file name"):
        topology("[bootstrap]\n", 'bootstrap = "a\\u0000b"')
    with pytest.raises(ScenarioError, match="cannot read: No such file"):
        topology("[bootstrap]\n", 'bootstrap = "nowhere.toml"')

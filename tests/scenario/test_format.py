"""Reading scenario files: what is wrong is one line with file, key path, and what was expected."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokerctl.errors import BrokerctlError, ConfigError, ScenarioError
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner

HERE = Path(__file__).parents[2]
SCENARIOS = sorted((HERE / "scenarios").glob("*.toml"))

HEAD = 'about = "x"\n'
PUPPET = HEAD + "[puppet.p]\n"
STEP = HEAD + "[[step]]\n"
EXPECT = HEAD + "[expect]\n"


def prepared(path, text):
    path.write_text(text)
    scenario = scenario_format.load(path)
    runner.prepare(scenario)
    return scenario


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "object missing required field 'about'"),
        ('about = ""', "about: expected 'str' of length >= 1"),
        ("about = ", "nvalid value (at end of document)"),
        (HEAD + "colour = 1", "object contains unknown field 'colour'"),
        (HEAD + "[puppet.p]\nrun = '1s'", "puppet: object contains unknown field 'run'"),
        (HEAD + '"a\\nb" = 1', "object contains unknown field 'a\\nb'"),
        (HEAD + '[puppet."a b"]', "puppet: 'a b' is no name; expected letters, digits, '-', '_' and '.'"),
        (HEAD + "worlds = ['moon']", "worlds[0]: invalid enum value 'moon'"),
        (HEAD + "policy = 'soft'", "policy: invalid enum value 'soft'"),
        (HEAD + "horizon = 'none'", "horizon: 'none' has no end; expected a finite duration"),
        (HEAD + "seed = 'one'", "seed: expected 'int', got 'str'"),
        pytest.param(HEAD + "seed = " + "9" * 5000, "a number has too many digits", id="many-digits"),
        pytest.param(HEAD + "seed = " + "[" * 20_000, "maximum recursion depth exceeded", id="deep"),
        pytest.param(PUPPET + f"runs.'0-{'9' * 5000}' = '1s'", "are out of range; expected", id="many-ranks"),
        pytest.param(HEAD + f"instance.hosts = 'a[0-{'9' * 5000}]'", "has more than 1 hosts", id="many-hosts"),
        (HEAD + "[instance]\nsize = 0", "instance.size: expected 'int' >= 1"),
        (HEAD + "[instance]\ntopology = 'star'", "instance.topology: 'star' is no topology; expected kary:K, flat or"),
        (HEAD + "[instance]\ntopology = 'custom'\nsize = 2", "instance.parents: 0 parents; expected 2"),
        (HEAD + "[instance]\ntopology = 'custom'\nsize = 3\nparents = [-1, 2, 1]", "instance.parents: "),
        (HEAD + "[instance]\ntopology = 'custom'\nsize = 2\nparents = [-1, 7]", "7 can't be the parent of rank 1"),
        (HEAD + "[instance]\ntopology = 'custom'\nsize = 2\nparents = [1, 0]", "1 is the leader's; expected -1"),
        (HEAD + "[instance]\nparents = [-1]", "only a custom topology has them"),
        (HEAD + "[instance]\nsize = 3\nhosts = 'a[0-1]'", "instance.hosts: 'a[0-1]' has 2 hosts; expected 3"),
        (HEAD + "[instance]\nsize = 3\nhosts = 'a[0-99999999]'", "has more than 3 hosts"),
        (HEAD + "[instance]\nsize = 3\nhosts = '@all'", "instance.hosts: '@all' is no host; expected such as"),
        (HEAD + "[instance]\nsize = 3\nhosts = 'a[0-'", "is no host"),
        (HEAD + "[attrs]\n'broker.cleanup-timeuot' = '1s'", "attrs: unknown attribute 'broker.cleanup-timeuot'; known"),
        (HEAD + "[attrs]\n'broker.cleanup-timeout' = 'soon'", "attrs: broker.cleanup-timeout: 'soon' is no duration"),
        (PUPPET + "runs = 2", "expected 'str | object', got 'int'"),
        (PUPPET + "runs = 'soon'", "puppet.p.runs: 'soon' is no duration"),
        (PUPPET + "runs = '3s..1s'", "puppet.p.runs: '3s..1s' begins after its end"),
        (PUPPET + "runs = '1s..none'", "puppet.p.runs: '1s..none' has no end"),
        (PUPPET + "runs = { 1 = '1s' }", "puppet.p.runs: ranks '1' are out of range; expected less than 1"),
        (PUPPET + "runs = { '0-9999999999' = '1s' }", "puppet.p.runs: ranks '0-9999999999' are out of range"),
        (PUPPET + "runs = { x = '1s' }", "puppet.p.runs: 'x' is no set of ranks; expected such as 0-2,5"),
        (PUPPET + "runs = { 0 = '1s', '0-0' = '2s' }", "puppet.p.runs: rank 0 stands in two keys"),
        (PUPPET + "exit = 256", "puppet.p.exit: 256 is no exit code; expected 0 to 255"),
        (PUPPET + "exit = 'SIGWHAT'", "puppet.p.exit: 'SIGWHAT' is no signal"),
        (PUPPET + "exit = 'CONT'", "puppet.p.exit: no process dies of CONT"),
        (PUPPET + "on = { KILL = 'ignore' }", "puppet.p.on.KILL: no process can catch it"),
        (PUPPET + "on = { HUP = 'ignore', SIGHUP = 'ignore' }", "puppet.p.on.SIGHUP: the signal stands here twice"),
        (PUPPET + "on = { HUP = 'sing' }", "invalid enum value 'sing'"),
        (PUPPET + "on = { HUP = { after = 'none' } }", "puppet.p.on.HUP.after: 'none' has no end"),
        (PUPPET + "leaves = -1", "expected 'int' >= 0"),
        (PUPPET + 'prints = ["a\\u0007"]', "puppet.p.prints: 'a\\x07' is no line; expected printable text"),
        (PUPPET + "command = ' '", "puppet.p.command: ' ' can't be logged"),
        (HEAD + "[[cleanup]]\npuppet = 'ghost'", "cleanup[0].puppet: unknown puppet 'ghost'; known are none"),
        (PUPPET + "[[rc1]]\npuppet = 'p'\ntimeout = 'x'", "rc1[0].timeout: 'x' is no duration"),
        (PUPPET + "[rc2]\npuppet = 'q'", "rc2[0].puppet: unknown puppet 'q'; known are p"),
        (STEP + "at = 'walk'\ndo = 'sigterm'", "step[0].at: 'walk' is no moment; expected a time"),
        (STEP + "at = 'run - 1s'\ndo = 'sigterm'", "step[0].at: 'run - 1s' can't be foreseen"),
        (STEP + "at = 'rank 1 run'\ndo = 'sigterm'", "step[0].at: rank 1 is out of range; expected less than 1"),
        (STEP + "at = 'run'\ndo = 'sigterm'\nrank = 1", "step[0].rank: 1 is out of range; expected less than 1"),
        (STEP + "at = 'run'\ndo = 'explode'", "step[0].do: 'explode' can't be done; expected sigterm, signal NAME"),
        (STEP + "at = 'run'\ndo = 'signal KILL'", "step[0].do: no broker handles KILL; expected one of HUP, INT"),
        (STEP + "at = 'run'\ndo = 'release ghost'", "step[0].do: unknown puppet 'ghost'"),
        (STEP + "at = 'run'", "object missing required field 'do'"),
        (EXPECT + "exit = 256", "expect.exit: expected 'int' <= 255"),
        (EXPECT + "exits = { 1 = 0 }", "expect.exits: '1' is no rank; expected a number less than 1"),
        (EXPECT + "within = 'none'", "expect.within: 'none' has no end"),
        (EXPECT + "transitions.0 = ['stop run']", "expect.transitions.0: 'stop run' is no transition; expected EVENT"),
        (EXPECT + "transitions.0 = ['shutdown run walk']", "'shutdown run walk' is no transition"),
        (EXPECT + "actions = { cleanup = 0 }", "expect.actions: 'cleanup' is no action; expected such as cleanup.0"),
        (EXPECT + "never = ['run + 1s']", "expect.never: 'run + 1s' is a time; expected an event without offset"),
        (EXPECT + "order = ['run', 'jump']", "expect.order[1]: 'jump' is no moment"),
        (EXPECT + "spans = [{ from = 'run', to = 'exit', max = 'x' }]", "expect.spans[0].max: 'x' is no duration"),
        (EXPECT + "violates = ['gravity']", "expect.violates: no invariant 'gravity'; known are "),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_file_and_key(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    with pytest.raises(ScenarioError) as caught:
        prepared(path, text)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_assignment_on_the_command_line_is_not_the_files_fault(tmp_path):
    scenario = prepared(tmp_path / "good.toml", HEAD)
    with pytest.raises(ConfigError, match=r"^-S: unknown attribute 'x'"):
        runner.prepare(scenario, sets=["x=1"])


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ScenarioError, match="cannot read: No such file or directory"):
        scenario_format.load(tmp_path / "none.toml")


def read(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        scenario = scenario_format.load(path)
        runner.prepare(scenario)
    except BrokerctlError as error:
        told = str(error)
    else:
        told = ""
    assert "\n" not in told


FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@FUZZ
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_scenario_or_an_error_in_one_line(tmp_path, data):
    read(tmp_path / "any.toml", data)


TEXTS = st.one_of(
    st.sampled_from(["run", "cleanup.0 start", "1s", "forever", "p", "sigterm", "0", "vm", "HUP", "custom", "kary:0"]),
    st.sampled_from(["1%", "1% of leaves", "all", "freeze", "restart", "0-99", "disconnect 1", "rank 1 run", "."]),
    st.text(max_size=8),
)
SCALARS = st.one_of(st.integers(-9, 300), st.integers(), st.booleans(), st.floats(), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
BASES = [tomllib.loads(path.read_text()) for path in SCENARIOS]


def paths(table, prefix=()):
    """Every key path of a table, lists included."""
    items = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for key, value in items:
        yield (*prefix, key)
        yield from paths(value, (*prefix, key))


@FUZZ
@given(data=st.data())
def test_any_value_anywhere_in_a_good_scenario_gives_a_scenario_or_an_error(tmp_path, data):
    table = json.loads(json.dumps(data.draw(st.sampled_from(BASES))))
    *way, last = data.draw(st.sampled_from(list(paths(table))))
    inner = table
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(VALUES)
    read(tmp_path / "mutated.toml", toml(table).encode(errors="replace"))


def toml(table) -> str:
    return "".join(f"{json.dumps(key, ensure_ascii=False)} = {inline(value)}\n" for key, value in table.items())


def inline(value) -> str:
    if isinstance(value, dict):
        items = (f"{json.dumps(key, ensure_ascii=False)} = {inline(one)}" for key, one in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def test_the_schema_names_every_table_and_forbids_unknown_keys():
    schema = scenario_format.schema()
    definitions = schema["$defs"]
    assert set(definitions) >= {"ScenarioFile", "PuppetEntry", "StepEntry", "Expect", "Instance", "SpanEntry"}
    assert set(definitions) >= {"FaultEntry", "Live"}
    assert all(one["additionalProperties"] is False for one in definitions.values())
    assert "leaves-run" in definitions["PuppetEntry"]["properties"]
    assert "from" in definitions["SpanEntry"]["properties"]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_each_scenario_begins_with_what_it_is_about(path):
    assert path.read_text().startswith('about = "')
    assert scenario_format.load(path).name == path.stem

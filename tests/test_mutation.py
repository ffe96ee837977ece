"""`make mutants` counts what mutmut has written, and is satisfied only where every subject reached the goal."""

from __future__ import annotations

import json
import tomllib
from fnmatch import fnmatch

import pytest

from tests import mutation
from tests.mutation import Score

BOUNDS = "brokerctl/model/bounds.py"


def scored(killed, survivors, untried=0, path=BOUNDS):
    return Score(path, killed, tuple(f"m{number}" for number in range(survivors)), untried)


def test_killed_is_what_a_test_failed_of_or_what_ran_for_ever_and_what_no_test_reaches_survived(tmp_path):
    meta = tmp_path / "mutants" / f"{BOUNDS}.meta"
    meta.parent.mkdir(parents=True)
    codes = {"failed": 1, "for ever": -24, "passed": 0, "no test": 33, "not tried": None}
    meta.write_text(json.dumps({"exit_code_by_key": codes}))
    assert mutation.score(tmp_path, meta) == Score(BOUNDS, 2, ("passed", "no test"), 1)
    assert list(mutation.scores(tmp_path, "bounds")) == [mutation.score(tmp_path, meta)]


@pytest.mark.parametrize(
    ("rows", "last"),
    [
        ([scored(85, 15)], "85% or more of each"),
        ([scored(84, 16)], "below 85%, or not all tried: brokerctl/model/bounds"),
        ([scored(99, 0, untried=1)], "below 85%, or not all tried: brokerctl/model/bounds"),
        ([scored(60, 40), scored(100, 0)], "below 85%, or not all tried: brokerctl/model/bounds"),
        ([scored(80, 20), scored(100, 0)], "85% or more of each"),
    ],
)
def test_a_subject_below_the_goal_or_not_tried_to_its_end_is_named(capsys, rows, last):
    good = mutation.report({"bounds": rows})
    assert good == ("below" not in last)
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_an_unknown_subject_is_refused_and_nothing_is_tried(capsys):
    with pytest.raises(SystemExit) as caught:
        mutation.main(["bounds", "bound"])
    assert caught.value.code == 2
    assert "bound: unknown subject; expected one of lifecycle" in capsys.readouterr().err


@pytest.mark.parametrize("subject", mutation.SUBJECTS)
def test_the_files_of_a_subject_are_among_those_that_are_mutated(subject):
    settings = tomllib.loads((mutation.ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    place = mutation.ROOT / mutation.MODEL
    files = [*place.glob(f"{subject}.py"), *(place / subject).glob("*.py")]
    assert files
    for path in files:
        name = str(path.relative_to(mutation.ROOT))
        assert any(fnmatch(name, pattern) for pattern in settings["only_mutate"])

"""`make mutants`: mutation testing of the model's core, with mutmut, in a copy of the project.

Each mutant is one small change of the code; a test must fail of it. `python -m tests.mutation [--minutes N] [--show]
[SUBJECT …]` prints how many of each subject's mutants the tests kill, `--show` also what the survivors changed. Exit 1:
a subject is below the goal, or the time was over before all of its mutants were tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
MODEL = "brokerctl/model"
SUBJECTS = ("lifecycle", "actions", "ladder", "bounds", "puppet", "stopper")
GOAL = 0.85
# pytest's codes for a failed test and an internal error; the others are how mutmut says that a mutant ran for ever.
KILLED = frozenset({1, 3, 24, 36, 152, 255, -24})
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")


class Score(NamedTuple):
    """The mutants of one file, by name."""

    path: str
    killed: int
    survivors: tuple[str, ...]
    untried: int

    @property
    def share(self) -> float:
        """How many of those that were tried the tests killed."""
        tried = self.killed + len(self.survivors)
        return self.killed / tried if tried else 1.0


def together(scores: list[Score], path: str) -> Score:
    """Several files as one."""
    return Score(
        path,
        sum(score.killed for score in scores),
        tuple(name for score in scores for name in score.survivors),
        sum(score.untried for score in scores),
    )


def score(copy: Path, meta: Path) -> Score:
    """What mutmut wrote of one file."""
    codes: dict[str, int | None] = json.loads(meta.read_text())["exit_code_by_key"]
    return Score(
        str(meta.relative_to(copy / "mutants")).removesuffix(".meta"),
        sum(code in KILLED for code in codes.values()),
        tuple(name for name, code in codes.items() if code is not None and code not in KILLED),
        sum(code is None for code in codes.values()),
    )


def scores(copy: Path, subject: str) -> Iterator[Score]:
    """Those of a subject's files."""
    folder = copy / "mutants" / MODEL
    metas = [folder / f"{subject}.py.meta", *sorted((folder / subject).glob("*.meta"))]
    for meta in metas:
        if meta.exists() and (found := score(copy, meta)).killed + len(found.survivors) + found.untried:
            yield found


def mutmut(copy: Path, *words: str, limit_s: float | None = None) -> str:
    """Its output; it is ended with all its workers when the time is over."""
    with subprocess.Popen(
        [sys.executable, "-m", "mutmut", *words],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "mutants")}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            print("the time is over")
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return said


def main(argv: list[str]) -> int:
    """Try the mutants of the subjects; 1 where too many survive."""
    parser = argparse.ArgumentParser(prog="make mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30, help="at most so long (default: 30)")
    parser.add_argument("--show", action="store_true", help="what the survivors changed")
    parser.add_argument("subject", nargs="*", metavar="SUBJECT", help=f"of: {', '.join(SUBJECTS)} (default: all)")
    options = parser.parse_args(argv)
    subjects = options.subject or SUBJECTS
    if unknown := set(subjects) - set(SUBJECTS):
        parser.error(f"{min(unknown)}: unknown subject; expected one of {', '.join(SUBJECTS)}")
    with tempfile.TemporaryDirectory(prefix="brokerctl-mutants-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=IGNORED)
        (copy / "mutants").mkdir()  # Python remembers of a directory on its path that it isn't there
        words = [f"brokerctl.model.{subject}.*" for subject in subjects]
        said = mutmut(copy, "run", *words, limit_s=60 * options.minutes)
        rows = {subject: list(scores(copy, subject)) for subject in subjects}
        if not any(row.killed for found in rows.values() for row in found):
            print(said[-4000:], file=sys.stderr)
            return 1
        bad = report(rows)
        if options.show:
            for row in (row for found in rows.values() for row in found):
                for name in row.survivors:
                    print(mutmut(copy, "show", name))
    return 1 if bad else 0


def report(rows: dict[str, list[Score]]) -> bool:
    """Print the table; whether a subject is below the goal or not all of it was tried."""
    print(f"{'killed':>7} {'of':>5} {'share':>6}")
    for subject, found in rows.items():
        total = together(found, f"{MODEL}/{subject}")
        for row in found if len(found) == 1 else [*found, total]:
            untried = f"  ({row.untried} not tried)" if row.untried else ""
            print(f"{row.killed:>7} {row.killed + len(row.survivors):>5} {row.share:>6.1%}  {row.path}{untried}")
    totals = [together(found, subject) for subject, found in rows.items()]
    bad = [total.path for total in totals if total.share < GOAL or total.untried]
    print(
        f"below {GOAL:.0%}, or not all tried: {', '.join(bad)}"
        if bad
        else f"each of {len(rows)} subjects: {GOAL:.0%} or more"
    )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

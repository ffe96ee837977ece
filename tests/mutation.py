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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
MODEL = "brokerctl/model"
SUBJECTS = ("lifecycle", "actions", "ladder", "bounds", "puppet", "stopper")
GOAL = 0.85
# pytest's codes for a failed test and an internal error; the others are how mutmut says that a mutant ran for ever.
KILLED = frozenset({1, 3, 24, 36, 152, 255, -24})
# Lines of what mutmut says where it fails: a test that fails without any mutant is told at its end.
SAID_MAX = 40
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
        return self.killed / tried if tried else 0.0


def together(scores: list[Score], path: str) -> Score:
    """Several files as one."""
    return Score(
        path,
        sum(score.killed for score in scores),
        tuple(name for score in scores for name in score.survivors),
        sum(score.untried for score in scores),
    )


def score(copy: Path, meta: Path) -> Score:
    """What mutmut wrote of one file; a mutant that no test reaches has survived."""
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


def mutmut(copy: Path, *words: str, limit_s: float | None = None) -> tuple[int, str]:
    """Its exit code and output; it is ended with all its workers when the time is over."""
    with subprocess.Popen(
        [sys.executable, "-m", "mutmut", *words],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "mutants"), "TMPDIR": str(copy.parent)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return 0, ""  # what was not tried is told in the table
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


def main(argv: list[str]) -> int:
    """Try the mutants of the subjects; 1 where too many survive."""
    parser = argparse.ArgumentParser(prog="make mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30, help="at most so long (default: 30)")
    parser.add_argument("--show", action="store_true", help="what the survivors changed")
    parser.add_argument("subject", nargs="*", metavar="SUBJECT", help=f"of: {', '.join(SUBJECTS)} (default: all)")
    options = parser.parse_args(argv)
    if unknown := set(options.subject) - set(SUBJECTS):
        parser.error(f"{min(unknown)}: unknown subject; expected one of {', '.join(SUBJECTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left
    with tempfile.TemporaryDirectory(prefix="brokerctl-mutants-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=IGNORED)
        (copy / "mutants").mkdir()  # Python remembers of a directory on its path that it isn't there
        return tried(copy, options.subject or SUBJECTS, options.minutes, show=options.show)


def tried(copy: Path, subjects: Sequence[str], minutes: float, *, show: bool) -> int:
    """Try them in the copy and report; the exit code."""
    words = [f"brokerctl.model.{subject}.*" for subject in subjects]
    code, said = mutmut(copy, "run", *words, limit_s=60 * minutes)
    if code:
        print(*said.splitlines()[-SAID_MAX:], sep="\n", file=sys.stderr)
        return 1
    rows = {subject: list(scores(copy, subject)) for subject in subjects}
    good = report(rows)
    if show:
        for name in (name for found in rows.values() for row in found for name in row.survivors):
            print(mutmut(copy, "show", name)[1])
    return 0 if good else 1


def report(rows: dict[str, list[Score]]) -> bool:
    """Print the table; whether all of each subject was tried, and the goal reached."""
    print(f"{'killed':>7} {'of':>5} {'share':>6}")
    totals = []
    for subject, found in rows.items():
        total = together(found, f"{MODEL}/{subject}")
        for row in found if len(found) == 1 else [*found, total]:
            untried = f"  ({row.untried} not tried)" if row.untried else ""
            print(f"{row.killed:>7} {row.killed + len(row.survivors):>5} {row.share:>6.1%}  {row.path}{untried}")
        totals.append(total)
    bad = [total.path for total in totals if total.share < GOAL or total.untried]
    print(f"below {GOAL:.0%}, or not all tried: {', '.join(bad)}" if bad else f"{GOAL:.0%} or more of each")
    return not bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.generated`: renew the parts of the documentation that a command prints; `--check`: are they stale?

A part stands between `<!-- generated: brokerctl COMMAND … -->` and `<!-- end -->`, as a fenced block whose language is
kept. `--check` writes nothing and exits 1 where a page is stale.
"""

from __future__ import annotations

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

from brokerctl import cli

ROOT = Path(__file__).parent.parent
PART = re.compile(
    r"(?P<begin><!-- generated: brokerctl (?P<command>[^>]*) -->\n```(?P<language>\w*)\n)"
    r".*?"
    r"(?P<end>```\n<!-- end -->\n)",
    re.DOTALL,
)


def printed(command: str) -> str:
    """What `brokerctl COMMAND` prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = cli.main(command.split())
    if code:
        raise SystemExit(f"brokerctl {command} exits with {code}")
    return out.getvalue()


def renewed(text: str) -> str:
    """The text of a page with each generated part as it should be now."""
    return PART.sub(lambda part: part["begin"] + printed(part["command"]) + part["end"], text)


def main(argv: list[str], root: Path = ROOT) -> int:
    """Renew or check the README and every page of the documentation; 1 if `--check` finds a stale one."""
    if argv not in ([], ["--check"]):
        print("usage: python -m tests.generated [--check]", file=sys.stderr)
        return 2
    stale = False
    for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        text = path.read_text(encoding="utf-8")
        fresh = renewed(text)
        if fresh == text:
            continue
        name = path.relative_to(root)
        if argv:
            stale = True
            print(f"{name}: stale; make docs renews it", file=sys.stderr)
        else:
            path.write_text(fresh, encoding="utf-8")
            print(f"{name}: renewed")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.generated`: renew the parts of the documentation that a command prints; `--check`: are they stale?

A part stands between `<!-- generated: brokerctl COMMAND … -->` and `<!-- end -->`, as a fenced block whose language is
kept, and so is a first line that shows the command (`$ brokerctl …`). `<!-- generated: attributes -->` is the table of
a broker's attributes, `<!-- generated: moments -->` the grammar of moments, `<!-- generated: rules -->` those of
`brokerctl lint`, `<!-- generated: facts -->` what systemd does and which tests hold it. `--check` writes nothing and
exits 1 where a page is stale.
"""

from __future__ import annotations

import io
import re
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from signal import Signals

from brokerctl import cli, durations
from brokerctl.config import ATTRIBUTES, FLUX, HARDENED
from brokerctl.lint import output
from brokerctl.lint.rule import rules
from brokerctl.scenario import moments
from brokerctl.settings import Settings
from tests import facts

ROOT = Path(__file__).parent.parent
NAMED = re.compile(
    r"(?P<begin><!-- generated: (?P<name>attributes|moments|rules|facts) -->\n).*?(?P<end><!-- end -->\n)", re.DOTALL
)
PART = re.compile(
    r"(?P<begin><!-- generated: brokerctl (?P<command>[^>]*) -->\n```(?P<language>\w*)\n(?:\$ [^\n]*\n)?)"
    r".*?"
    r"(?P<end>```\n<!-- end -->\n)",
    re.DOTALL,
)


def printed(command: str) -> str:
    """What `brokerctl COMMAND` prints."""
    out = io.StringIO()
    with chdir(ROOT), redirect_stdout(out):
        code = cli.main(command.split())
    if code:
        raise SystemExit(f"brokerctl {command} exits with {code}")
    return out.getvalue()


def attributes() -> str:
    """The table of a broker's attributes, with the default of each policy."""
    rows = ["| attribute | `flux` | `hardened` | meaning |", "|---|---|---|---|"]
    for name, attribute in ATTRIBUTES.items():
        defaults = " | ".join(shown(attribute.field, settings) for settings in (FLUX, HARDENED))
        rows.append(f"| `{name}` | {defaults} | {attribute.about} |")
    return "\n".join(rows) + "\n"


def grammar() -> str:
    """The grammar of moments, as the module that reads them tells it: the indented lines."""
    rules = [line[4:] for line in (moments.__doc__ or "").splitlines() if line.startswith("    ")]
    return "\n".join(["```ebnf", *rules, "```"]) + "\n"


def lint_rules() -> str:
    """The table of the rules of `brokerctl lint`."""
    return output.table(rules().values())


def shown(field: str, settings: Settings) -> str:
    """A default as `-S` takes it; nothing where there is none."""
    value = getattr(settings, field)
    if field.endswith("_ns"):
        return f"`{durations.as_text(value)}`"
    if field == "ladder":
        rungs = (f"{Signals(rung.signum).name[3:]}:{durations.as_text(rung.wait_ns)}" for rung in settings.ladder)
        return f"`{','.join(rungs)}`"
    return "" if value is None else f"`{int(value)}`"


def renewed(text: str) -> str:
    """The text of a page with each generated part as it should be now."""
    text = PART.sub(lambda part: part["begin"] + printed(part["command"]) + part["end"], text)
    named = {"attributes": attributes, "moments": grammar, "rules": lint_rules, "facts": facts.table}
    return NAMED.sub(lambda part: part["begin"] + named[part["name"]]() + part["end"], text)


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

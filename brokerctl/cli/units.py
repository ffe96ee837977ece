"""`brokerctl units`: the unit files that come with brokerctl, with this interpreter filled in: shown, or installed.

They are files of `unitfiles/`, where `@PYTHON@` stands for the absolute path of the interpreter.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import brokerctl
from brokerctl.cli.options import Parser
from brokerctl.cli.units_installed import install, is_unit, uninstall
from brokerctl.errors import UsageError

PLACEHOLDER = "@PYTHON@"
EXAMPLES = "examples/"
# What neither systemd nor a shell reads as anything but itself: no quoting in any place where the path may stand.
PLAIN = re.compile(r"(/[A-Za-z0-9._+-]+)+")
EPILOG = """\
Without NAME all unit files; executables and examples only where they are named. What is installed carries a mark, by
which a later --install or --uninstall knows what brokerctl wrote and nobody has changed since; nothing else is
overwritten or removed, unless --force says so, and then what was there is kept beside it; --uninstall brings it back.

  brokerctl units --install /etc/systemd/system flux.service.d/brokerctl.conf
  systemctl daemon-reload      # not while a stop is under way: it takes back what was added to the stop's deadline
  brokerctl units --install /usr/local/libexec/brokerctl flux-run-prolog flux-run-epilog flux-run-housekeeping

exit code: 0; 2 if something was refused, and then nothing has been changed.
"""


def main(argv: Sequence[str]) -> int:
    """Show, install or remove unit files; 0."""
    parser = Parser("units", "Show or install the unit files that come with brokerctl.", EPILOG)
    parser.add_argument("names", metavar="NAME", nargs="*", help="as --list has them")
    parser.add_argument("--list", action="store_true", help="the names of all there are")
    parser.add_argument("--install", metavar="DIR", help="write them there, all checked before the first is written")
    parser.add_argument("--uninstall", metavar="DIR", help="remove them from there, bring back what was there before")
    parser.add_argument("--force", action="store_true", help="also over or away what brokerctl did not write")
    options = parser.parse_args(argv)
    asked = [name for name in ("list", "install", "uninstall") if getattr(options, name)]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]}; expected one of them")
    if options.force and asked[:1] not in (["install"], ["uninstall"]):
        raise UsageError("--force: belongs to --install or --uninstall")
    sources = files()
    if options.list:
        for name, text in sources.items():
            print(f"{name:<{max(map(len, sources))}}  {about(text)}")
        return 0
    names = _chosen(options.names, sources)
    if options.uninstall:
        return uninstall(Path(options.uninstall), map(_target, names), force=options.force)
    texts = {name: render(sources[name], sys.executable) for name in names}
    if options.install:
        targets = {_target(name): text for name, text in texts.items()}
        return install(Path(options.install), targets, sys.executable, force=options.force)
    print("\n".join(f"# {name}\n{text}" for name, text in texts.items()), end="")
    return 0


def folder() -> Path:
    """Where the sources are: in the installed package, or beside it in a checkout."""
    package = Path(brokerctl.__file__).parent
    for place in (package / "unitfiles", package.parent / "unitfiles"):
        if place.is_dir():
            return place
    raise UsageError("this installation has no unit files; expected them in the package's directory unitfiles")


def files() -> dict[str, str]:
    """All sources by name, which is their path below `folder`."""
    top = folder()
    paths = sorted(path for path in top.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(top)): path.read_text(encoding="utf-8") for path in paths}


def render(text: str, python: str) -> str:
    """The text with the interpreter filled in; UsageError for a path that a unit file could misread."""
    if not PLAIN.fullmatch(python):
        raise UsageError(
            f"the interpreter is {python!r}; expected an absolute path of letters, digits, '.', '_', '+' and '-'"
        )
    return text.replace(PLACEHOLDER, python)


def _target(name: str) -> str:
    """The path of a file below the directory that it is installed in."""
    return name.removeprefix(EXAMPLES)


def _chosen(names: Sequence[str], sources: dict[str, str]) -> list[str]:
    for name in names:
        if name not in sources:
            raise UsageError(f"there is no {name!r}; expected one of {', '.join(sources)}")
    return list(dict.fromkeys(names)) or [name for name in sources if is_unit(name)]


def about(text: str) -> str:
    """What a file is: the first line that says something, a comment or a docstring."""
    lines = (line.strip('#" ') for line in text.splitlines() if not line.startswith("#!"))
    return next(filter(None, lines), "")

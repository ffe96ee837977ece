"""Every fenced block of the README and of the documentation is run, read, or named here with the reason why not.

What a user types is run by tests/test_readme.py; what root types is run here, in a systemd of the page's own.
"""

from __future__ import annotations

import json
import re
import time
import tomllib

import pytest
import yaml

from brokerctl import config
from brokerctl.unit import syntax
from brokerctl.worlds.systemd.private import PrivateSystemd, unsupported
from tests import console
from tests.console import ROOT, Example, Stage

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
FOR_ROOT = [name for name, text in PAGES.items() if console.page(text).as_root]

# Commands and outputs that no test carries out, and why. An output is named by its beginning.
NOT_RUN = {
    "make demo": "fetches packages; tests/test_readme.py runs its recipe",
    "make test": "runs this",
    "pip install brokerctl": "fetches packages; tests/test_wheel.py installs the wheel",
    "job-manager.err[0]:": "a real Flux hands the helper's line on; tests/perilog/test_helper.py has that",
    "running:": "the report of a stop of a real Flux; tests/docs/test_told.py compares it",
    "stopped as asked": "endings of five lives of a real Flux; tests/docs/test_told.py compares them",
}

FLUX = f"install -m 644 {ROOT}/tests/lint/units/flux.service /etc/systemd/system/flux.service; systemctl daemon-reload"
INSTALL = "brokerctl units --install /etc/systemd/system flux.service.d/brokerctl.conf >/dev/null 2>&1"
# The stuck stop of the wrapper's page, with limits of half a second where the page has the default ones.
DEMO = """\
mkdir /etc/brokerctl
cat >/etc/brokerctl/stop.toml <<'.'
holders-after = "0.5s"
kill-ladder = "HUP:0.3s,TERM:0.3s,KILL:5s"
.
cat >/etc/brokerctl/demo.toml <<'.'
[attrs]
"broker.cleanup-timeout" = "0.5s"
[[cleanup]]
command = "trap '' HUP TERM; while :; do sleep 3600; done"
text = "tidy up"
[[rc3]]
command = "sleep 0.5"
text = "save"
.
cat >/etc/systemd/system/demo.service <<.
[Service]
Type=exec
NotifyAccess=exec
RuntimeDirectory=demo
ExecStart=$(command -v python) -I -m brokerctl run --policy flux --config /etc/brokerctl/demo.toml --rundir /run/demo
ExecStop=$(command -v python) -I -m brokerctl stop
KillMode=mixed
.
systemctl start demo
for _ in {1..200}; do brokerctl status --rundir /run/demo 2>&1 | grep -q ': run for' && break; sleep 0.05; done
"""
SCRIPTS = """\
mkdir -p /usr/libexec/flux/epilog.d /etc/flux/system/epilog.d
cd /etc/flux/system/epilog.d
printf '#!/bin/sh\\nsleep 0.2\\n' >/usr/libexec/flux/epilog.d/01-clean
printf '#!/bin/sh\\necho "umounting /l/ssd for job $FLUX_JOB_ID"; sleep 300\\n' >10-umount
touch 20-report
chmod 755 10-umount /usr/libexec/flux/epilog.d/01-clean
cd - >/dev/null
"""
HELPER = "FLUX_JOB_ID={} FLUX_JOB_USERID=1000 /usr/local/libexec/brokerctl/flux-run-epilog 2>helper"
STUCK = f"""\
{HELPER.format("ƒ39firM4HrF")} &
for _ in {{1..200}}; do systemctl status 'flux-epilog@*' | grep -q 'sleep 300' && break; sleep 0.05; done
journalctl --sync
"""
FAILS = f"""\
printf '#!/bin/sh\\necho "umount: /l/ssd: target is busy"; exit 32\\n' >/etc/flux/system/epilog.d/10-umount
{HELPER.format("ƒ39gMNyD1Fd")}
journalctl --sync
"""
APP = """\
install -D bin/brokerctl /opt/brokerctl/bin/brokerctl
sed -i '2i export PYTHONPATH='"$PYTHONPATH" /opt/brokerctl/bin/brokerctl
printf '#!/bin/sh\\nexec sleep 300\\n' >/usr/bin/app
chmod 755 /usr/bin/app
"""

STAGES = {
    "README.md": Stage(FLUX),
    "docs/flux.md": Stage(f"{FLUX}; {INSTALL}; systemctl daemon-reload"),
    "docs/heartbeat.md": Stage(),
    "docs/perilog.md": Stage(
        SCRIPTS,
        before={
            "systemctl status 'flux-epilog@*'": STUCK,
            "journalctl -u flux-epilog@f39gMNyD1Fd.service": FAILS,
        },
        codes={"systemctl status 'flux-epilog@*'": 3},  # a unit that is not active yet
    ),
    "docs/running.md": Stage(APP),
    "docs/units.md": Stage(FLUX),
    "docs/wrapper.md": Stage(DEMO),
}


@pytest.fixture
def manager(tmp_path):
    """A systemd for one page: what is installed in it is gone with it."""
    if reason := unsupported():
        pytest.skip(f"no private systemd: {reason}")
    with PrivateSystemd([tmp_path]) as booted:
        yield booted


@pytest.mark.parametrize("name", FOR_ROOT)
def test_what_root_types_prints_what_the_page_shows(name, manager, tmp_path):
    found, stage = console.page(PAGES[name]), STAGES[name]
    results = console.carry_out_as_root(found, tmp_path, manager, stage)
    for example, (code, output) in zip(found.as_root, results, strict=True):
        alike = console.alike_in_any_order if "journalctl" in example.command else console.alike
        assert alike(example.output, output), f"# {example.command}\n{output}"
        expected = stage.codes.get(example.command, 0)
        assert code == expected or example.code_is_told, f"# {example.command}\nexits with {code}"


def test_a_stage_belongs_to_a_page_and_its_commands_are_there():
    assert set(STAGES) == set(FOR_ROOT)
    for name, stage in STAGES.items():
        typed = {example.command for example in console.page(PAGES[name]).as_root}
        assert {*stage.before, *stage.codes} <= typed, name


# ---- every block


def _command(line: str) -> str:
    return re.split(r" {2,}#", line)[0].strip()


def _session(block: console.Block) -> list[str]:
    return [] if block.body[0] in "$#" else [f"begins with no prompt: {block.body.splitlines()[0]}"]


def _unheld(block: console.Block) -> list[str]:
    lines = block.body.splitlines()
    if block.language == "text":
        return [] if lines[0].startswith(tuple(NOT_RUN)) else lines[:1]
    return [line for line in map(_command, lines) if line not in NOT_RUN]


def _toml(block: console.Block) -> None:
    tomllib.loads(block.body)


def _json(block: console.Block) -> None:
    for line in block.body.splitlines():
        json.loads(line)


def _yaml(block: console.Block) -> list[str]:
    is_held = block.name in RECIPES or yaml.safe_load(block.body)["kind"] == "Deployment"  # tests/heartbeat
    return [] if is_held else [f"no recipe: {block.name}"]


def _unit(block: console.Block) -> list[str]:
    return [problem.text for problem in syntax.parse(block.body.encode(), block.name).problems]


def _python(block: console.Block) -> None:
    compile(block.body, block.name, "exec")


def _generated(block: console.Block) -> list[str]:
    fenced = re.escape(f"```{block.language}\n{block.body}```")
    part = re.compile(rf"<!-- generated: [^\n]*-->\n{fenced}")
    return [] if any(part.search(text) for text in PAGES.values()) else [f"a {block.language} that is not generated"]


# What is done with a block of that language; the answer is what would need a test, and has none.
HELD = {
    "console": _session, "sh": _unheld, "text": _unheld, "toml": _toml, "json": _json, "yaml": _yaml, "ini": _unit,
    "python": _python, "mermaid": _generated, "ebnf": _generated,
}  # fmt: skip


def unheld(block: console.Block) -> list[str]:
    """What of a block has no test and no reason."""
    if block.language not in HELD:
        return [f"no test knows what {block.language or 'a block without a language'} is"]
    return HELD[block.language](block) or []


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_held_by_a_test_or_says_why_not(name):
    assert [missing for block in console.blocks(PAGES[name]) for missing in unheld(block)] == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (console.Block("sh", "", "make demo\nrm -r x\n"), "rm -r x"),
        (console.Block("text", "", "some output\nmore\n"), "some output"),
        (console.Block("", "", "$ ls\n"), "no test knows what a block without a language is"),
        (console.Block("console", "", "ls\n"), "begins with no prompt: ls"),
        (console.Block("yaml", "other.yml", "kind: Job\n"), "no recipe: other.yml"),
        (console.Block("mermaid", "", "graph LR\n"), "a mermaid that is not generated"),
    ],
)
def test_a_block_that_no_test_holds_is_found(block, problem):
    assert unheld(block) == [problem]


def test_what_is_not_run_stands_on_a_page():
    text = "\n".join(PAGES.values())
    assert [command for command in NOT_RUN if f"\n{command}" not in text and f"run: {command}\n" not in text] == []


def test_every_file_that_a_page_shows_is_used_by_its_commands():
    for name, text in PAGES.items():
        found = console.page(text)
        typed = " ".join(example.command for example in (*found.examples, *found.as_root))
        unused = {file for file in found.files if file not in typed and file.split("/")[0] not in typed.split()}
        assert unused <= set(RECIPES), name


# ---- recipes of continuous integration


def _github(text: str) -> list[str]:
    return [step["run"] for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"] if "run" in step]


def _gitlab(text: str) -> list[str]:
    return [line for job in yaml.safe_load(text).values() for line in job["script"]]


RECIPES = {"github.yml": _github, "gitlab.yml": _gitlab}


def test_what_the_recipes_run_works_and_writes_the_report_that_they_upload(tmp_path):
    found = console.page(PAGES["docs/ci.md"])
    runs = [[line for line in lines(found.files[name]) if line not in NOT_RUN] for name, lines in RECIPES.items()]
    assert runs[0] == runs[1]
    for name in RECIPES:
        assert len(re.findall(r"(?:path|junit): stop\.xml\b", found.files[name])) == 1
    examples = [Example(command, "", code_is_told=False) for command in runs[0]]
    assert [code for code, _ in console.carry_out(found._replace(examples=examples), tmp_path)] == [0]
    assert (tmp_path / "stop.xml").read_text().count("<testcase ") == 2


# ---- fragments


def test_the_workers_of_a_configuration_are_read(tmp_path):
    text = next(block.body for block in console.blocks(PAGES["docs/heartbeat.md"]) if block.language == "toml")
    (tmp_path / "app.toml").write_text(text)
    workers = config.resolve("hardened", tmp_path / "app.toml").workers
    assert [worker.name for worker in workers] == ["indexer", "mailer"]


def test_the_example_of_a_tender_runs(tmp_path, monkeypatch):
    def turned(_):
        raise InterruptedError

    monkeypatch.setattr(time, "sleep", turned)
    text = next(block.body for block in console.blocks(PAGES["docs/heartbeat.md"]) if "Tender" in block.body)
    with pytest.raises(InterruptedError):
        exec(text.replace("/run/workers", str(tmp_path)), {})  # noqa: S102 - our own page

"""Names of instances and environment files, as the real systemd takes them (SYSTEMD.md 102–116)."""

import os

import pytest

from tests.kernel.conftest import wait_for

JOB = "f39firM4HrF"
# What a unit's process got, one value a line.
TELL = '#!/bin/sh\nprintf \'%s\\n\' "$1" "$2" "${A-none}" "${B-none}" >>$0.log\n'


class Template:
    """`job@.service`, whose process tells %i, %I and the variables A and B; `path` is its environment file's."""

    def __init__(self, manager, place):
        self.manager, self.place = manager, place
        self.script = place / "tell"
        self.script.write_text(TELL)
        self.script.chmod(0o755)

    def write(self, lines="", name="job@.service", exec_start=""):
        exec_start = exec_start or f"ExecStart={self.script} %i %I"
        self.manager.unit(name, f"[Service]\nType=oneshot\n{exec_start}\n{lines}\n")

    def start(self, unit=f"job@{JOB}.service"):
        return self.manager.systemctl("start", "--", unit, check=False).returncode

    def told(self):
        """What the last process got."""
        path = self.place / "tell.log"
        return path.read_text().split("\n")[-5:-1] if path.exists() else []

    def escaped(self, name):
        return self.manager.run(["systemd-escape", "--template=job@.service", "--", name]).stdout.strip()

    def environment(self, data, lines=""):
        """Start the unit with this environment file; its code."""
        (self.place / "env").write_bytes(data)
        self.write(f"EnvironmentFile={self.place}/env\n{lines}")
        return self.start()


@pytest.fixture
def template(private_systemd, tmp_path):
    return Template(private_systemd, tmp_path)


@pytest.mark.fact(102)
def test_a_job_id_in_its_plain_form_is_its_own_name_and_in_the_other_it_is_escaped(template):
    template.write()
    assert template.start() == 0
    assert template.told()[:2] == [JOB, JOB]
    done = template.manager.systemctl("start", "--", f"job@ƒ{JOB[1:]}.service")
    assert "escaped as" in done.stderr
    assert template.told()[:2] == [rf"\xc6\x92{JOB[1:]}", f"ƒ{JOB[1:]}"]


@pytest.mark.fact(103)
def test_a_dash_in_a_name_becomes_a_slash_and_an_optional_environment_file_is_missed_in_silence(template):
    (template.place / "a-b").write_text("A=x\n")
    template.write(f"EnvironmentFile=-{template.place}/%I")
    assert template.start("job@a-b.service") == 0
    assert template.told() == ["a-b", "a/b", "none", "none"]


@pytest.mark.fact(104, 105)
def test_an_escaped_name_arrives_as_it_was_and_cannot_be_another_unit(template):
    template.write()
    for name in ("a-b", "--", "x.service", "x y"):
        assert template.start(template.escaped(name)) == 0
        assert template.told()[1] == name
    assert template.start(f"job@{JOB}") == 0, "without a suffix it is a service"
    assert template.start("job@x.target") == 5, "with one it is another unit"


@pytest.mark.fact(106)
def test_a_pattern_starts_nothing_and_stops_all(template):
    template.write("RemainAfterExit=yes")
    assert template.start("job@*.service") == 0
    assert template.told() == []
    for name in ("1", "2"):
        assert template.start(f"job@{name}.service") == 0
    template.manager.systemctl("stop", "job@*.service")
    states = [template.manager.show(f"job@{name}.service", "ActiveState")["ActiveState"] for name in ("1", "2")]
    assert states == ["inactive", "inactive"]


@pytest.mark.fact(107)
def test_the_name_of_an_environment_file_is_a_pattern(template):
    (template.place / "victim").write_text("A=secret\n")
    template.write(f"EnvironmentFile={template.place}/%I")
    assert template.start(template.escaped("vic*")) == 0
    assert template.told() == [r"vic\x2a", "vic*", "secret", "none"]


@pytest.mark.fact(108)
def test_a_name_within_a_shells_words_is_code(template):
    template.write(exec_start="ExecStart=/bin/sh -c 'echo \"%I\"'")
    unit = template.escaped('x";echo "PWNED')
    assert template.start(unit) == 0
    assert "PWNED" in template.manager.journal(unit)


@pytest.mark.fact(109)
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"A=x\nB=added\n", ["x", "added"]),  # one value with a newline, as printenv prints it
        (b"A=  x \t\n", ["x", "none"]),
        (b"A='x'\n", ["x", "none"]),
        (b'A="x\nB=y\n', ["x", "B=y", "", "none"]),  # the rest of the file is A's
        (b"A=a\\b\n", ["ab", "none"]),
        (b"A=x\\\nB=y\n", ["xB=y", "none"]),
        (b"A=a\"b'c$d`e#f;g=h%i*j\n", ["a\"b'c$d`e#f;g=h%i*j", "none"]),
    ],
)
def test_what_printenv_prints_is_not_what_arrives(template, data, found):
    assert template.environment(data) == 0
    text = (template.place / "tell.log").read_text().removeprefix(f"{JOB}\n{JOB}\n")
    assert text.rstrip("\n").split("\n") == found


@pytest.mark.fact(110)
def test_a_quoted_value_arrives_as_it_is_if_four_characters_are_escaped(template):
    value = "\\ \" $ ` ' # é 🜁 \t$HOME"
    quoted = "".join(f"\\{char}" if char in '\\"$`' else char for char in value)
    assert template.environment(f'A="{quoted}"\nB="y"\n'.encode()) == 0
    assert template.told()[2:] == [value, "y"]


@pytest.mark.fact(111)
@pytest.mark.parametrize("value", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", "\ufffe".encode()])
def test_one_value_that_is_no_utf_8_spoils_the_file(template, value):
    assert template.environment(b'B="y"\nA="' + value + b'"\n') == 1
    assert template.manager.show(f"job@{JOB}.service", "Result")["Result"] == "resources"
    assert template.told() == []
    template.write(f"EnvironmentFile=-{template.place}/env")
    template.manager.systemctl("daemon-reload")
    assert template.start() == 0
    assert template.told()[2:] == ["none", "none"], "in silence, where it is optional"


@pytest.mark.fact(112)
@pytest.mark.parametrize(("length", "code", "status"), [(131_071, 0, "0"), (131_072, 1, "203")])
def test_a_variable_may_be_as_long_as_an_argument(template, length, code, status):
    assert template.environment(b"C=" + b"x" * (length - 2) + b"\n") == code
    assert template.manager.show(f"job@{JOB}.service", "ExecMainStatus")["ExecMainStatus"] == status


@pytest.mark.fact(113)
def test_invalid_names_are_left_out_one_by_one_the_last_of_two_wins_and_the_file_beats_systemd(template):
    data = b"BASH_FUNC_x%%=1\n1A=1\nA-B=1\nexport B=1\nA=first\nA =last\nPATH=/nowhere\n"
    assert template.environment(data, f"ExecStartPost=/bin/sh -c '/usr/bin/env >{template.place}/all'") == 0
    assert template.told()[2:] == ["last", "none"]
    names = dict(line.split("=", 1) for line in (template.place / "all").read_text().splitlines())
    assert names["PATH"] == "/nowhere"
    assert not names.keys() & {"BASH_FUNC_x%%", "1A", "A-B", "export B"}


@pytest.mark.fact(114)
def test_the_file_is_read_by_root_anew_for_each_line_and_links_are_followed(template):
    (template.place / "target").write_text("A=x\n")
    (template.place / "target").chmod(0)
    (template.place / "env").symlink_to(template.place / "target")
    lines = f"ExecStartPost={template.script} %i %I\nExecStartPost=/bin/rm {template.place}/target"
    template.write(f"EnvironmentFile={template.place}/env\nExecStopPost={template.script} %i %I\n{lines}")
    assert template.start() == 1, "the last hook has no file any more"
    log = (template.place / "tell.log").read_text().split("\n")
    assert log[2::4] == ["x", "x"]


@pytest.mark.fact(115)
def test_a_fifo_in_its_place_holds_systemd_itself(template):
    os.mkfifo(template.place / "env")
    template.write(f"EnvironmentFile={template.place}/env")
    client = template.manager.popen(["systemctl", "start", f"job@{JOB}.service"])
    writer = wait_for(lambda: opened(template.place / "env"), "reader of the FIFO")
    asks = template.manager.popen(["systemctl", "is-system-running"])
    with pytest.raises(TimeoutError):
        waited(asks, 0.5)
    os.write(writer, b"A=x\n")
    os.close(writer)
    assert waited(client, 20) == 0
    waited(asks, 20)
    assert template.told()[2] == "x"


def opened(fifo):
    """Its writing end, once somebody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def waited(process, seconds):
    try:
        process.wait(seconds)
    except Exception as error:
        raise TimeoutError from error
    return process.returncode


@pytest.mark.fact(116)
def test_of_two_who_write_one_file_and_start_one_instance_one_runs_with_the_others_environment(template):
    env, go = template.place / "env", template.place / "go"
    hold = f"ExecStartPre=/bin/sh -c 'while ! test -e {go}; do sleep 0.02; done'"
    env.write_text("A=first\n")
    template.write(f"EnvironmentFile={env}\n{hold}\nExecStopPost=/bin/rm {env}")
    first = template.manager.popen(["systemctl", "start", f"job@{JOB}.service"])
    wait_for(lambda: "start-pre" in template.manager.show(f"job@{JOB}.service", "SubState")["SubState"], "first run")
    env.write_text("A=second\n")
    template.manager.systemctl("start", "--no-block", f"job@{JOB}.service")
    go.touch()
    assert waited(first, 20) == 0
    assert (template.place / "tell.log").read_text().split("\n")[2::4] == ["second"]
    assert not env.exists()

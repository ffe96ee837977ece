"""stop.toml: what it may say, and that nobody but root can have said it."""

from __future__ import annotations

import os

import pytest

from brokerctl import stoptable
from brokerctl.durations import MINUTE, S
from brokerctl.errors import ConfigError
from brokerctl.records import Command
from brokerctl.settings import Action, Rung, StopSettings
from brokerctl.stop.settings import Configuration, load

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def write(tmp_path):
    def make(text="", mode=0o644):
        path = tmp_path / "stop.toml"
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return make


def test_an_empty_file_is_the_defaults(write):
    assert load(write()) == Configuration()


def test_all_keys_are_read(write):
    got = load(
        write("""
actions-timeout = "20s"
cleanup-timeout = "45s"
shed-after = "none"
shed-in-cleanup-after = "30s"
finalize-patience = "10m"
stall-warn = "1m"
timeout-stop = "15m"
kill-ladder = "TERM:3s,KILL:3s"
kind = "flux"
flux = "/usr/bin/flux"

[environment]
FLUX_URI = "local:///run/flux/local"

[[actions]]
command = "drain all"
timeout = "5s"

[[actions]]
command = ["/usr/bin/logger", "stop"]
essential = true
""")
    )
    settings = got.settings
    assert settings.actions_timeout_ns == 20 * S
    assert (settings.cleanup_timeout_ns, settings.shed_after_ns) == (45 * S, None)
    assert settings.finalize_patience_ns == 10 * MINUTE
    assert settings.ladder == (Rung(15, 3 * S), Rung(9, 3 * S))
    assert settings.actions[0].command.argv == ("/bin/sh", "-c", "drain all")
    assert settings.actions[1].command.argv == ("/usr/bin/logger", "stop")
    assert (got.kind, got.flux, got.environment) == (
        "flux",
        "/usr/bin/flux",
        {"FLUX_URI": "local:///run/flux/local"},
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1", "unknown field"),
        ('shed-after = "soon"', "shed-after: 'soon' is no duration"),
        ('actions-timeout = "none"', "actions-timeout: 'none' is not possible here"),
        ('finalize-patience = "0"', "finalize-patience: 0 is no time"),
        ('kill-ladder = "FOO:1s"', "kill-ladder: 'FOO' is no signal"),
        ('flux = "flux"', "is no absolute path"),
        ('kind = "slurm"', "kind: "),
        ('[[actions]]\ncommand = "x"\nranks = "all"', "expected no ranks"),
        ('[[actions]]\ncommand = ""', "actions[0].command: is empty"),
        ('[environment]\n"A=B" = "x"', "environment: 'A=B': is no variable"),
        ('[environment]\n"" = "x"', "environment: '': is no variable"),
        ('[environment]\nA = "\\u0000"', "environment: 'A': is no variable"),
        ("actions = [", "expected"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_what_was_expected(write, text, why):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(path)
    assert why in str(caught.value) or why == "expected"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_refused(write, mode):
    with pytest.raises(ConfigError, match=r"has mode 0.*; expected that only root may write it"):
        load(write(mode=mode))


def test_a_directory_that_others_may_write_is_refused_unless_it_is_sticky(write, tmp_path):
    path = write()
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"has mode 0.*; expected that only root may write it"):
        load(path)
    tmp_path.chmod(0o1777)
    load(path)
    tmp_path.chmod(0o700)


@root
def test_a_file_of_another_user_is_refused(write):
    path = write()
    os.chown(path, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to uid 65534"):
        load(path)


def test_no_link_is_followed(write, tmp_path):
    path = write()
    (tmp_path / "link.toml").symlink_to(path)
    (tmp_path / "folder").symlink_to(tmp_path)
    for name in ("link.toml", "folder/stop.toml"):
        with pytest.raises(ConfigError, match="without following links"):
            load(f"{tmp_path}/{name}")


@pytest.mark.parametrize("path", ["stop.toml", "/etc/../etc/stop.toml", "/"])
def test_only_an_absolute_path_is_a_path(path):
    with pytest.raises(ConfigError):
        load(path)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "stop.toml", 0o600)
    with pytest.raises(ConfigError, match="no regular file"):
        load(f"{tmp_path}/stop.toml")


def test_settings_that_are_written_as_a_file_are_read_back(write):
    ladder = (Rung(1, S // 3), Rung(9, None))
    made = StopSettings(
        actions=(
            Action(Command('say "so"\\n', ("/bin/say", "a b", "ü\t")), essential=True),
            Action(Command("two", ("/bin/two",)), timeout_ns=1_500_000_001),
        ),
        shed_after_ns=None, cleanup_timeout_ns=MINUTE, stall_warn_ns=1, ladder=ladder,
    )  # fmt: skip
    path = write(stoptable.text(made, [action.command.argv for action in made.actions]))
    assert load(path).settings == made

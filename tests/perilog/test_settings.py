import os

import pytest

from brokerctl.durations import MINUTE
from brokerctl.errors import ConfigError
from brokerctl.perilog.settings import load

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only a file of root's is read")


def written(tmp_path, text, mode=0o644):
    path = tmp_path / "perilog.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


def test_without_a_file_only_a_prolog_has_a_limit_and_only_housekeeping_drains(tmp_path):
    prolog, epilog, housekeeping = (load(kind, str(tmp_path / "none")) for kind in ("prolog", "epilog", "housekeeping"))
    assert (prolog.timeout_ns, epilog.timeout_ns, housekeeping.timeout_ns) == (25 * MINUTE, None, None)
    assert (prolog.on_failure, epilog.on_failure) == ((), ())
    assert housekeeping.on_failure[0][:3] == ("flux", "resource", "drain")
    assert epilog.site_scripts == "/etc/flux/system/epilog.d"


@needs_root
def test_each_kind_has_its_own_table(tmp_path):
    path = written(
        tmp_path,
        """
        [epilog]
        timeout = "1.5m"
        environment = ["SITE_CLUSTER"]
        exit-on-first-error = true
        on-failure = [["flux", "resource", "drain", "{host}", "{how}"], ["logger", "x"]]
        package-scripts = "/a"
        site-scripts = "/b"
        legacy-script = "/c"
        [prolog]
        timeout = "none"
        """,
    )
    epilog = load("epilog", path)
    assert epilog.timeout_ns == 90_000_000_000
    assert epilog.environment == ("SITE_CLUSTER",)
    assert epilog.exit_on_first_error
    assert epilog.on_failure == (("flux", "resource", "drain", "{host}", "{how}"), ("logger", "x"))
    assert (epilog.package_scripts, epilog.site_scripts, epilog.legacy_script) == ("/a", "/b", "/c")
    assert load("prolog", path).timeout_ns is None


@needs_root
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[epilogue]\n", "[epilogue]: unknown; expected one of prolog, epilog, housekeeping"),
        ("[epilog]\nlimit = true\n", "epilog.limit: unknown; expected one of timeout, "),
        ("[epilog]\ntimeout = true\n", "epilog.timeout: expected a duration"),
        ('[epilog]\ntimeout = "0"\n', "epilog.timeout: '0' would end every run at once; expected more, or "),
        ('[epilog]\ntimeout = "soon"\n', "epilog.timeout: 'soon' is no duration"),
        ('[prolog]\nenvironment = ["LD_PRELOAD"]\n', "prolog.environment: 'LD_PRELOAD' decides what is run as root"),
        ('[epilog]\nenvironment = ["A B"]\n', "epilog.environment: 'A B' is no name of a variable"),
        ("[epilog]\nenvironment = [true]\n", "epilog.environment: expected an array of names"),
        ('[epilog]\non-failure = ["flux"]\n', "epilog.on-failure: expected commands like"),
        ("[epilog]\non-failure = [[]]\n", "epilog.on-failure: expected commands like"),
        ('[epilog]\non-failure = [["a", true]]\n', "epilog.on-failure: expected commands like"),
        ('[epilog]\nsite-scripts = "here"\n', "epilog.site-scripts: 'here' is no absolute path"),
        ("[epilog]\ntimeout = 5\n", "line 2: expected a string"),
        (b"[epilog]\n# \xff\n", "is not UTF-8"),
        (b"#" * 70_000, "is longer than 65536 bytes"),
    ],
)
def test_a_mistake_is_one_line_also_in_the_table_of_another_kind(tmp_path, text, why):
    with pytest.raises(ConfigError) as told:
        load("epilog", written(tmp_path, text))
    assert why in str(told.value)
    assert "\n" not in str(told.value)


@needs_root
@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_file_that_others_can_write_is_not_read(tmp_path, mode):
    with pytest.raises(ConfigError, match=f"has mode {mode:04o}; expected a file that only root can write"):
        load("epilog", written(tmp_path, "", mode))


@needs_root
def test_a_file_that_is_not_roots_is_not_read(tmp_path):
    path = written(tmp_path, "")
    os.chown(path, 65534, 0)
    with pytest.raises(ConfigError, match="belongs to uid 65534"):
        load("epilog", path)


@needs_root
def test_a_fifo_at_its_place_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ConfigError, match="is no regular file"):
        load("epilog", str(tmp_path / "fifo"))

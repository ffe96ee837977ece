import os
import stat

import pytest

from brokerctl.kernel.trust import untrusted


def made(mode, uid=0):
    return os.stat_result((mode, 1, 1, 1, uid, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFDIR])
def test_what_only_its_owner_may_write_is_trusted_where_the_owner_is(kind):
    assert untrusted(made(kind | 0o755)) == ""
    assert untrusted(made(kind | 0o755, uid=1000)) == "belongs to uid 1000"
    assert untrusted(made(kind | 0o755, uid=1000), (0, 1000)) == ""


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o720])
def test_what_its_group_or_everybody_may_write_is_not(mode):
    assert untrusted(made(stat.S_IFREG | mode)) == f"has mode {mode:04o}"
    assert untrusted(made(stat.S_IFDIR | mode)) == f"has mode {mode:04o}"


def test_a_sticky_directory_is_only_where_that_is_enough():
    assert untrusted(made(stat.S_IFDIR | 0o1777)) == "has mode 1777"
    assert untrusted(made(stat.S_IFDIR | 0o1777), sticky=True) == ""
    assert untrusted(made(stat.S_IFREG | 0o1777), sticky=True) == "has mode 1777"

import stat

import pytest

from brokerctl.errors import KernelError
from brokerctl.worlds.live.store import Store


def test_what_one_life_stored_the_next_one_finds(tmp_path):
    path = tmp_path / "store.json"
    store = Store(path)
    assert store.values == {}
    assert store.put("a", "1") == ""
    assert store.put("b", "ƒ\n") == ""
    assert store.put("a", "2") == ""
    assert Store(path).values == {"a": "2", "b": "ƒ\n"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["store.json"]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a": 1}', b"\xff"])
def test_a_file_that_no_broker_wrote_is_refused_in_one_line(tmp_path, data):
    path = tmp_path / "store.json"
    path.write_bytes(data)
    with pytest.raises(KernelError, match="not what a broker stored"):
        Store(path)


def test_what_cannot_be_stored_is_told_and_the_old_file_stays(tmp_path):
    store = Store(tmp_path / "store.json")
    store.put("a", "1")
    (tmp_path / ".store.json.draft").symlink_to(tmp_path / "elsewhere")  # links are not followed
    assert store.put("a", "2")
    assert Store(tmp_path / "store.json").values == {"a": "1"}

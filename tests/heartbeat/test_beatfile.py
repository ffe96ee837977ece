import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.heartbeat import Heartbeat, S
from brokerctl.kernel import proc
from brokerctl.monitors import beatfile
from brokerctl.monitors.beatfile import Beat, judge, parse, read

BEAT = Beat(42, 1000, "g", "boot", 100 * S, 10 * S, "ready", "")
LIVES = proc.Stat("worker", "S", 1, 42, 42, 1000)


def text(beat):
    return "brokerctl-heartbeat 1\n" + "".join(f"{name}={value}\n" for name, value in beat._asdict().items())


@pytest.mark.parametrize(
    ("change", "process", "now_ns", "max_age_ns", "verdict"),
    [
        ({}, LIVES, 110 * S, None, "alive"),
        ({}, LIVES, 110 * S + 1, None, "late"),
        ({}, LIVES, 104 * S, 3 * S, "late"),
        ({}, LIVES, 115 * S, 20 * S, "alive"),
        ({"state": "working", "limit_ns": 300 * S}, LIVES, 300 * S, 3 * S, "alive"),
        ({"state": "working", "limit_ns": 300 * S}, LIVES, 401 * S, 3 * S, "late"),
        ({"state": "starting"}, LIVES, 900 * S, None, "alive"),
        ({"state": "starting"}, LIVES, 900 * S, 3 * S, "late"),
        ({"state": "stopping"}, LIVES, 900 * S, 3 * S, "stopping"),
        ({}, None, 101 * S, None, "gone"),
        ({}, LIVES._replace(state="Z"), 101 * S, None, "gone"),
        ({"state": "stopping"}, None, 101 * S, None, "gone"),
        ({}, LIVES._replace(start_ticks=1001), 101 * S, None, "another process"),
        ({"boot": "earlier"}, LIVES, 101 * S, None, "an earlier boot"),
        ({"beat_ns": 200 * S}, LIVES, 101 * S, None, "garbage"),
    ],
)
def test_a_beat_means_what_its_process_and_the_time_say(change, process, now_ns, max_age_ns, verdict):
    assert judge(BEAT._replace(**change), now_ns, "boot", lambda _pid: process, max_age_ns)[0] == verdict


def test_where_pids_mean_nothing_only_the_beat_counts():
    assert judge(BEAT, 105 * S, "boot", None)[0] == "alive"
    assert judge(BEAT, 115 * S, "boot", None)[0] == "late"


def test_what_was_written_is_read(tmp_path):
    with Heartbeat(tmp_path / "w", guid="me") as heart:
        assert not read(tmp_path / "w").ready
        heart.ready()
        heart.status("indexing")
        found = read(tmp_path / "w")
        assert (found.verdict, found.ready, found.text) == ("alive", True, "indexing")
        assert found.beat is not None
        assert (found.beat.pid, found.beat.guid) == (os.getpid(), "me")
        heart.stopping("enough")
        found = read(tmp_path / "w")
        assert (found.verdict, found.ready, found.text) == ("stopping", False, "Stopping: enough")


def test_more_time_that_was_asked_for_is_not_late(tmp_path):
    heart = Heartbeat(tmp_path / "w", limit_ns=1)
    heart.ready()
    assert read(tmp_path / "w").verdict == "late"
    heart.extend(60 * S)
    assert read(tmp_path / "w").verdict == "alive"
    heart.close()


def test_a_forged_file_is_found_out_by_the_start_of_the_process(tmp_path):
    """A pid that lives, with any start but its own."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        found = proc.stat(other.pid)
        beat = BEAT._replace(pid=other.pid, boot=beatfile.boot_id(), beat_ns=time.monotonic_ns())
        (tmp_path / "w").write_text(text(beat._replace(start_ticks=found.start_ticks - 1)))
        assert read(tmp_path / "w").verdict == "another process"
        (tmp_path / "w").write_text(text(beat._replace(start_ticks=found.start_ticks)))
        assert read(tmp_path / "w").verdict == "alive"
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _good: "",
        lambda good: good.replace("heartbeat 1", "heartbeat 2"),
        lambda good: good.replace("pid=42", "pid=-42"),
        lambda good: good.replace("pid=42", "pid=0"),
        lambda good: good.replace("pid=42", "pid=" + "9" * 5000),
        lambda good: good.replace("pid=42", "pid=٤٢"),
        lambda good: good.replace("state=ready", "state=Ready"),
        lambda good: good.replace("boot=boot\n", ""),
        lambda good: good.replace("limit_ns", "limit"),
    ],
)
def test_what_is_no_heartbeat_file_is_garbage(tmp_path, spoil):
    (tmp_path / "w").write_text(spoil(text(BEAT)))
    assert read(tmp_path / "w").verdict == "garbage"


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail(data):
    parse(data)
    parse(b"brokerctl-heartbeat 1\n" + data)


@given(st.data())
def test_no_change_of_one_byte_makes_the_reader_fail(data):
    good = bytearray(text(BEAT).encode())
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    found = parse(bytes(good))
    if found is not None:
        judge(found, 101 * S, "boot", lambda _pid: LIVES)


def test_what_a_hostile_file_says_is_printable(tmp_path):
    (tmp_path / "w").write_text(text(BEAT._replace(status="\x1b[2Jpwned", state="stopping", boot=beatfile.boot_id())))
    assert "\x1b" not in read(tmp_path / "w").text
    renamed = LIVES._replace(comm="\x1b[2Jpwned", start_ticks=1)  # prctl(2), PR_SET_NAME
    assert judge(BEAT, 101 * S, "boot", lambda _pid: renamed)[1].startswith("pid 42 is ?[2Jpwned now")


def test_links_fifos_and_directories_are_no_heartbeat_files(tmp_path):
    Heartbeat(tmp_path / "w").close()
    (tmp_path / "link").symlink_to("w")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("link", "fifo", "folder"):
        assert read(tmp_path / name).verdict == "garbage", name
    (tmp_path / "long").write_bytes(b"x" * 10000)
    assert read(tmp_path / "long").verdict == "garbage"
    assert read(tmp_path / "nothing").verdict == "missing"


def test_a_reader_never_sees_half_a_file(tmp_path):
    code = (
        "import sys, time; from brokerctl.heartbeat import Heartbeat\n"
        "heart = Heartbeat(sys.argv[1], limit_ns=1); heart.ready()\n"
        "end = time.monotonic() + 30\n"
        "while time.monotonic() < end: heart.beat()\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, tmp_path / "w"])
    try:
        end = time.monotonic() + 20
        while not (tmp_path / "w").exists() and time.monotonic() < end:
            time.sleep(0.01)
        end = time.monotonic() + 1
        verdicts = set()
        while time.monotonic() < end:
            verdicts.add(read(tmp_path / "w").verdict)
        assert verdicts <= {"alive", "late"}
        assert verdicts
    finally:
        writer.kill()
        writer.wait()

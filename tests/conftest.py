"""Rules for all tests: none leaves a process or a temporary file behind, and on CI none is skipped quietly."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from tests.private_systemd import booted_systemd, private_systemd  # noqa: F401 - fixtures

REQUIRED = os.environ.get("BROKERCTL_TEST_REQUIRE") == "all"
MARK = "BROKERCTL_TEST_MARK"
GONE_WITHIN_S = 5.0  # a killed process needs a moment to be reaped by its parent


def marked_processes(mark: str) -> list[str]:
    """Processes that descend from this test, however they were detached: their environment says so."""
    found = []
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{entry.name}: {words or (entry / 'comm').read_text()}")
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory, monkeypatch):
    """Fails a test that leaves a process, or a file in the directory for temporary files, behind."""
    mark = uuid.uuid4().hex
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"processes left behind: {left}"
    files = sorted(str(path.relative_to(scratch)) for path in scratch.rglob("*"))
    assert not files, f"temporary files left behind: {files}"


def pytest_runtest_setup(item):
    """A test that drives a real Flux is skipped where there is none; no package of the CI's system brings one."""
    if item.get_closest_marker("needs_flux") and shutil.which("flux") is None:
        pytest.skip("needs a real Flux: no `flux` on PATH")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """With BROKERCTL_TEST_REQUIRE=all a skip is a failure: CI has all that the tests need, but for a Flux."""
    report = yield
    allowed = hasattr(report, "wasxfail") or item.get_closest_marker("needs_flux")
    if REQUIRED and report.skipped and not allowed:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but BROKERCTL_TEST_REQUIRE=all: {report.longrepr}"
    return report

"""Results as JUnit XML, as CI systems read it: one test case for each scenario and world."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from brokerctl.durations import S
from brokerctl.report import text
from brokerctl.report.result import Result

# What XML 1.0 can't hold, not even as a reference; a terminal's escapes are among it.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report(results: Sequence[Result]) -> str:
    """The whole document."""
    counts = {
        "tests": str(len(results)),
        "failures": str(sum(result.status == "failed" for result in results)),
        "errors": "0",
        "skipped": str(sum(result.status == "skipped" for result in results)),
        "time": f"{sum(result.elapsed_ns for result in results) / S:.3f}",
    }
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "brokerctl", **counts})
    for result in results:
        _case(suite, result)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _case(suite: ET.Element, result: Result) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": f"brokerctl.{result.world}.{result.policy}",
            "name": _clean(result.name),
            "file": _clean(result.path),
            "time": f"{result.elapsed_ns / S:.3f}",
        },
    )
    if result.status == "skipped":
        ET.SubElement(case, "skipped", {"message": _clean(result.reason)})
    if result.status == "failed":
        message = "; ".join(f"{one.name}: {one.text}" for one in result.failures)
        failure = ET.SubElement(case, "failure", {"message": _clean(message), "type": "expectation"})
        failure.text = _clean(text.verdict(result))
        ET.SubElement(case, "system-out").text = _clean(text.story(result))


def _clean(what: str) -> str:
    return _FORBIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), what)

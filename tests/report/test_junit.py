"""JUnit XML, read back by a parser, and checked against what CI systems expect of it."""

from xml.etree import ElementTree as ET

from brokerctl.report import junit


def test_the_document_is_xml_whatever_a_process_printed(results):
    root = ET.fromstring(junit.report(results).encode())  # noqa: S314 - our own output
    story = root.findtext(".//system-out")
    assert "bell \\x07 colour" in story
    assert "ƒ39firM4HrF" in story


def test_counts_agree_with_the_cases(results):
    root = ET.fromstring(junit.report(results))  # noqa: S314
    assert root.tag == "testsuites"
    (suite,) = root
    for element in (root, suite):
        assert element.get("tests") == "3"
        assert element.get("failures") == "1"
        assert element.get("errors") == "0"
        assert element.get("skipped") == "1"
        assert float(element.get("time")) > 0
    assert len(suite.findall("testcase")) == 3


def test_each_case_has_the_attributes_and_children_of_the_schema(results):
    root = ET.fromstring(junit.report(results))  # noqa: S314
    good, bad, skipped = root.iter("testcase")
    assert (good.get("classname"), good.get("name")) == ("brokerctl.sim.flux", "good")
    assert list(good) == []
    assert [child.tag for child in bad] == ["failure", "system-out"]
    assert bad.find("failure").get("message").startswith("expect.exit: expected exit code 0, got 129")
    assert "run it again: brokerctl simulate" in bad.findtext("failure")
    assert skipped.find("skipped").get("message") == "world live lacks ranks"
    allowed = {"name", "classname", "time", "file"}
    assert all(set(case.attrib) <= allowed for case in root.iter("testcase"))

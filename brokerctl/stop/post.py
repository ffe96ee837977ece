"""`brokerctl stop --post`, the ExecStopPost of a service: one line for every ending, also those without an ExecStop.

It exits 1 only where a failure is hidden behind an exit code that the unit counts as a success (FLUX.md 109). A bug of
its own must not turn a good stop into a failed one (P3): it costs the line, and the exit code is 0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.stop.saying import bug, say

if TYPE_CHECKING:
    from brokerctl.stop.errands import Pending, Said
    from brokerctl.stop.journal import Entry

JOURNAL_NS = 3_000_000_000
_WARNING, _INFO = 4, 6


def main(unit: str = "") -> int:
    """The verdict. `unit` is only named in the line."""
    if "SERVICE_RESULT" not in os.environ:
        raise UsageError("--post: is for ExecStopPost=, where systemd says how the service has ended")
    try:
        with _reading() as journal:
            from brokerctl.stop import verdict  # which takes as long as the reading

            found = verdict.verdict(verdict.ending(os.environ), _entries(journal))
    except Exception as error:  # noqa: BLE001 - see above
        say(_WARNING, f"no verdict, {bug(error)}")
        return 0
    say(found.level, f"{unit}: {found.text}" if unit else found.text)
    return EXIT_FOUND if found.hidden else 0


def ended(environment: Mapping[str, str] = os.environ) -> int:
    """An ExecStop without a main: the service has ended by itself (SYSTEMD.md 56). One line, and the same code."""
    code, status = environment.get("EXIT_CODE", ""), environment.get("EXIT_STATUS", "")
    if not code:
        say(_INFO, "nothing to stop: there is no main process")
        return 0
    how = f"exit {status}" if code == "exited" else f"SIG{status}"
    if code == "exited" and status != "0":
        try:
            from brokerctl.stop import story, verdict

            failed = verdict.hidden_failure(story.story(_journal()))
        except Exception as error:  # noqa: BLE001 - see above
            say(_WARNING, bug(error))
            failed = ""
        if failed:
            say(3, f"nothing to stop: main has ended by itself ({how}), and {failed}")
            return EXIT_FOUND
    say(_INFO, f"nothing to stop: main has ended by itself ({how})")
    return 0


def _journal() -> list[Entry]:
    with _reading() as journal:
        return _entries(journal)


def _entries(journal: Pending[tuple[list[Entry], list[Said]]]) -> list[Entry]:
    found, _ = journal.result()
    return found[0] if found else []


def _reading() -> Pending[tuple[list[Entry], list[Said]]]:
    from brokerctl.stop.errands import Pending
    from brokerctl.stop.journal import entries

    failed = os.environ.get("SERVICE_RESULT") != "success"  # why is what the manager says
    return Pending(entries(os.environ.get("INVOCATION_ID", ""), manager=failed), JOURNAL_NS)

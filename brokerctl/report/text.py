"""Results as text for people: the story as Flux would log it, then the verdict. Colour only where it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from brokerctl.durations import S, as_short
from brokerctl.logs.fluxlog import ERR
from brokerctl.report.result import Delay, Result, Told

# From here on it is worth saying how long a run really took.
MANY = 1000
# What a line about many ranks shows of a rank set, and of its text, before it breaks off; a trace has all of it.
RANKS_SHOWN, TEXT_SHOWN = 100, 300
_RED, _GREEN, _YELLOW, _BOLD, _DIM, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_COLOURS = {"passed": _GREEN, "failed": _RED, "skipped": _YELLOW}
_WORDS = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


def short(text: str, limit: int) -> str:
    """The text, or its beginning up to a comma and how much is left out: `1-19,21-43,… (1,512 characters more)`."""
    if len(text) <= limit:
        return text
    at = text.rfind(",", 0, limit) + 1 or limit
    return f"{text[:at]}… ({len(text) - at:,} characters more)"


def _paint(text: str, colour: str, *, on: bool) -> str:
    return f"{colour}{text}{_PLAIN}" if on else text


def printable(text: str) -> str:
    """The text with control characters as escapes: what a process printed must not command a terminal or a reader."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def entry(told: Told, *, colour: bool = False) -> str:
    """One log entry with its time in seconds: `45.103 broker.err[0]: cleanup.3: …`; one line for each of its lines.

    Equal ones of several ranks: `5.000-5.002 broker.info[1-255]: shutdown: run->cleanup`.
    """
    head, entry = f"{told.t_ns / S:9.3f} ", told.entry
    plain = entry.plain_head()
    if told.ranks:
        until = f"{told.until_ns / S:.3f}"
        head = f"{head.rstrip()}{'' if head.strip() == until else f'-{until}':<10} "
        plain = plain.replace(f"[{entry.rank}]", f"[{short(told.ranks, RANKS_SHOWN)}]")
    lines = []
    for line in entry.text.split("\n"):
        text = plain + (short(printable(line), TEXT_SHOWN) if told.ranks else printable(line))
        lines.append(head + (_paint(text, _RED, on=colour) if entry.level <= ERR else text))
    return "\n".join(lines)


def story(result: Result, *, colour: bool = False) -> str:
    """The whole story, with a final newline if there is any."""
    lines = [f"          … {result.untold} earlier lines"] if result.untold else []
    lines += [entry(told, colour=colour) for told in result.story]
    return "".join(f"{line}\n" for line in lines)


def line(result: Result, *, colour: bool = False) -> str:
    """One line of a list: `ok       sim   stuck-cleanup`."""
    word = _paint(f"{_WORDS[result.status]:<8}", _COLOURS[result.status], on=colour)
    text = f"{word} {result.world:<5} {printable(result.name)}"
    if result.status == "skipped":
        return f"{text}: {result.reason}"
    return text


def _ranks(count: int) -> str:
    return f"{count:,} ranks are" if count != 1 else "1 rank is"


def ending(result: Result) -> str:
    """How the run ended: `exit code 129 45.0s after the stop began`."""
    if result.unit and result.exit_code is None:
        return result.unit + ("" if result.outcome == "ended" else f"; the run is {result.outcome}")
    text = f"exit code {result.exit_code}"
    if result.stop_ns is not None:
        text += f", {as_short(result.stop_ns)} after the stop began"
    if result.unit:
        text += f"; {result.unit}"
    if result.outcome == "ended":
        return text + (f"; {_ranks(result.unended)} frozen for good" if result.unended else "")
    if result.exit_code is not None and result.outcome:
        what = "stuck" if result.outcome == "stuck" else "not ended at the horizon"
        return f"{text}; {_ranks(result.unended)} {what}"
    if result.outcome == "stuck":
        return "stuck: nothing can happen any more, and the broker has not ended"
    return "not ended at the horizon" if result.outcome else "could not be run"


def eventlogs(result: Result) -> str:
    """The eventlog of each job, as `flux job eventlog` has it, with an empty line after each."""
    parts = []
    for log in result.eventlogs:
        parts.append(f"eventlog of {printable(log.label)} ({log.job}):\n")
        parts += [f"{t_ns / S:9.3f} {printable(text)}\n" for t_ns, text in log.events]
        parts.append("\n")
    return "".join(parts)


def _delay(delay: Delay) -> str:
    if not delay.over:
        return f"{delay.who}: not over yet"
    how = f": {delay.how}" if delay.how else ""
    return f"{delay.who} for {as_short(delay.held_ns)}{how}"


def verdict(result: Result, *, colour: bool = False) -> str:
    """What became of it, who held the stop up, and what is not as expected; with a final newline."""
    title = f"{result.name} ({result.world}, {result.policy}): {_WORDS[result.status]}"
    lines = [_paint(printable(title), _BOLD + _COLOURS[result.status], on=colour)]
    if result.status == "skipped":
        lines.append(f"  {result.reason}")
        return "".join(f"{text}\n" for text in lines)
    lines += [f"  life {nth}: {each}" for nth, each in enumerate(result.endings, 1)] or [f"  {ending(result)}"]
    for index, delay in enumerate(result.delays):
        word = "held up by" if index == 0 else "      then"
        lines.append(f"  {word} {printable(_delay(delay))}")
    for deadlock in result.deadlocks:
        text = f"deadlock at {deadlock.t_ns / S:.3f}: {printable(deadlock.text)}"
        lines.append("  " + _paint(text, _RED, on=colour))
    if result.checks:
        held = max(result.checks - len(result.failures), 0)
        unchecked = f"; not looked at: {', '.join(result.unchecked)}" if result.unchecked else ""
        lines.append(f"  {held} of {result.checks} expectations and invariants hold{unchecked}")
    if result.size >= MANY:
        stop = f", {as_short(result.stopping_ns)} of it the stop" if result.stopping_ns else ""
        lines.append(f"  {result.size:,} ranks took {as_short(result.elapsed_ns)} of real time{stop}")
    for failure in result.failures:
        rank = f" (rank {failure.rank})" if failure.rank else ""
        text = f"{failure.name}{rank}: {printable(failure.text)}"
        lines.append("  " + _paint(text, _RED, on=colour))
    if result.failures:
        lines.append(f"  run it again: {printable(result.replay)}")
    return "".join(f"{text}\n" for text in lines)


def summary(results: Sequence[Result], *, colour: bool = False) -> str:
    """The last line of a run of many: how many passed, failed and were skipped."""
    counts = [(sum(result.status == status for result in results), status) for status in _WORDS]
    shown = ", ".join(f"{count} {status}" for count, status in counts if count or status == "passed")
    return _paint(shown, _RED if counts[1][0] else _GREEN, on=colour)


def report(results: Sequence[Result], *, colour: bool = False) -> str:
    """A line for each, then the story and the verdict of each that failed, then the counts."""
    parts = [f"{line(result, colour=colour)}\n" for result in results]
    for result in results:
        if result.status == "failed":
            parts += ["\n", story(result, colour=colour), verdict(result, colour=colour)]
    return "".join([*parts, "\n", f"{summary(results, colour=colour)}\n"])

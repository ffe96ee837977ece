"""Random unit files: every odd thing that the syntax allows, and some that it does not."""

from __future__ import annotations

from random import Random

SPANS = [
    "90",
    "1min 30s",
    "1.5h",
    "infinity",
    "0",
    "500ms",
    "2 min",
    "3s 250 ms",
    "10us",
    "1d2h",
    "+5",
    "1M",
    "7w",
    "  4  s ",
]
BAD_SPANS = ["soon", "-5", "5 parsecs", "90 # seconds", "1..5", "none", "5s,"]
WORDS = [
    "plain", "two\\x20words", '"in double quotes"', "'in single ones'", 'mid"dle of" one', "tab\\tbed", "$HOME",
    "${A}b", "%i", "%n-%p", "%%", "%I",
    "a\\;b", "\\;", "octal\\101", "odd\\q", "ünïcode", "\\u00fc", "'it is \"so\"'",
    '"a\\"b"',
    "%j", "%N", "back\\\\slash", "=", "''", "x'y'z", "\\\\\\\\", "[x]", "-S", "a=b", "%",
]  # fmt: skip
PREFIXES = ["", "", "", "-", "@", ":", "+", "!", "!!", "-:", "+-", "@-", "-!!"]
BAD_COMMANDS = [
    "",
    "relative/path",
    "/bin/true 'open",
    "/bin/",
    '/bin/sh -c "no end',
    "@/bin/true",
    "- ",
    "-rel/ative x",
    "+!/bin/true",
]
STATUSES = ["42", "TEMPFAIL 250", "SIGKILL", "1 2 3", "KILL SIGUSR1", "DATAERR", "0", "255"]
BAD_STATUSES = ["256", "SIGNOPE", "forty", "1 x"]
SIGNALS = ["SIGINT", "QUIT", "1", "RTMIN+3", "SIGRTMAX-2", "SIGUSR1"]
BAD_SIGNALS = ["SIGNOPE", "0", "term", "RTMIN+99"]
BOOLS = ["yes", "no", "1", "off", "TRUE", "y", "f"]

SERVICE = {
    "RestartSec": (SPANS, BAD_SPANS), "TimeoutStartSec": (SPANS, BAD_SPANS), "TimeoutStopSec": (SPANS, BAD_SPANS),
    "TimeoutSec": (SPANS, BAD_SPANS), "TimeoutAbortSec": (SPANS, BAD_SPANS), "WatchdogSec": (SPANS, BAD_SPANS),
    "RuntimeMaxSec": (SPANS, BAD_SPANS),
    "Type": (["simple", "exec", "notify", "idle"], ["Notify", "none", "daemon"]),
    "Restart": (["no", "always", "on-failure", "on-abnormal", "on-abort", "on-watchdog"], ["on-fail", "yes", "never"]),
    "SuccessExitStatus": (STATUSES, BAD_STATUSES), "RestartPreventExitStatus": (STATUSES, BAD_STATUSES),
    "RestartForceExitStatus": (STATUSES, BAD_STATUSES),
    "NotifyAccess": (["none", "main", "exec", "all"], ["Main", "everyone"]),
    "KillMode": (["control-group", "mixed", "process"], ["group", "Mixed"]),
    "KillSignal": (SIGNALS, BAD_SIGNALS), "FinalKillSignal": (SIGNALS, BAD_SIGNALS),
    "WatchdogSignal": (SIGNALS, BAD_SIGNALS), "RestartKillSignal": (SIGNALS, BAD_SIGNALS),
    "SendSIGKILL": (BOOLS, ["maybe"]), "SendSIGHUP": (BOOLS, ["maybe"]), "RemainAfterExit": (BOOLS, ["2"]),
    "PermissionsStartOnly": (BOOLS, ["?"]), "TimeoutStopFailureMode": (["terminate", "abort", "kill"], ["term"]),
    "TimeoutStartFailureMode": (["terminate", "abort", "kill"], ["stop"]),
    "ExitType": (["main", "cgroup"], ["Main"]), "Description": (["x"], ["y"]), "TimeoutStopSecs": (["5"], ["z"]),
}  # fmt: skip
UNIT = {
    "StartLimitBurst": (["3", "0", "10"], ["many", "-1"]), "StartLimitIntervalSec": (SPANS, BAD_SPANS),
    "CollectMode": (["inactive", "inactive-or-failed"], ["never"]), "DefaultDependencies": (BOOLS, ["x"]),
    "JobTimeoutSec": (["infinity", "5min"], BAD_SPANS),
}  # fmt: skip
EXEC = ("ExecStartPre", "ExecStart", "ExecStop", "ExecStopPost", "ExecReload", "ExecStartPost", "ExecCondition")


def unit_file(random: Random, *, base: bool) -> bytes:
    """One file; a `base` has a command to start, which a drop-in need not have."""
    lines = []
    for section, table in (("Unit", UNIT), ("Service", SERVICE)):
        lines.append(f"{random.choice(['', '', '  '])}[{section}]")
        for _ in range(random.randrange(8 if section == "Service" else 3)):
            key = random.choice(list(table))
            good, bad = table[key]
            value = random.choices([random.choice(good), random.choice(bad), ""], [12, 2, 1])[0]
            lines += _odd(random)
            lines.append(f"{key}{random.choice(['=', ' = ', '= '])}{value}")
    commands = [_exec(random, random.choice(EXEC)) for _ in range(random.randrange(4))]
    if base:
        lines.append("ExecStart=/bin/true first")
    lines += [line for command in commands for line in command]
    return ("\n".join(lines) + random.choice(["\n", "", "\n\n"])).encode()


def _odd(random: Random) -> list[str]:
    return random.choices(
        [[], ["# a comment"], ["; another"], [""], ["no equals sign"], ["= no key"], ["[X-Mine]", "A=b", "[Service]"],
         ["  "]],
        [20, 2, 1, 2, 1, 1, 1, 1],
    )[0]  # fmt: skip


def _exec(random: Random, key: str) -> list[str]:
    if random.random() < 0.1:
        return [f"{key}={random.choice(BAD_COMMANDS)}"]
    words = [random.choice(PREFIXES) + random.choice(["/bin/true", "/usr/bin/env", "sh", "/bin//sh"]), "zeroth"]
    words += random.choices(WORDS, k=random.randrange(6))
    if random.random() < 0.15 and key != "ExecStart":
        words += [";", "/bin/echo", random.choice(WORDS)]
    reset = ["ExecStart="] if key == "ExecStart" else []
    out = [f"{key}={words[0]}"]
    for word in words[1:]:
        # A line that begins with `;` would be a comment, even in a continuation.
        if random.random() < 0.3 and word != ";":
            out[-1] += " \\"
            if random.random() < 0.3:
                out.append("# between")
            out.append("  " + word)
        else:
            out[-1] += random.choice([" ", "  ", "\t"]) + word
    return reset + out
